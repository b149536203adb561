//! `atalho endpoint`: endpoints of a running gateway, for people who do not use AWS's tools.

mod apply;
mod client;
mod delete;
mod file;
mod report;
mod wait;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, Subcommand};

use self::client::Client;
use super::fleet_flags::{AddressOrOff, address_or_off};
use crate::config;

/// The address of a gateway without a word about it.
const DEFAULT: &str = "127.0.0.1:9902";

/// List, show, make, change and delete endpoints of a running gateway.
///
/// Speaks to the gateway's control API, as the AWS CLI does: at the address of --control, or of the
/// configuration file (`control.listen`), or 127.0.0.1:9902. Endpoints that are made here take their hosts
/// from the gateway's host pools and are kept across restarts. Those of the configuration file are shown,
/// and changed in that file alone.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List all endpoints with their status.
    List {
        #[command(flatten)]
        gateway: Gateway,
        /// Print what the gateway says as it is, in JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show one endpoint: its status, its variants, and what is under way.
    Show {
        #[command(flatten)]
        gateway: Gateway,
        /// The endpoint's name.
        name: String,
        /// Print what the gateway says as it is, in JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make endpoints as a file describes them, or change them where they are different.
    ///
    /// The file has the words of the configuration's [[endpoint]] and [[endpoint.variant]]; in place
    /// of [[endpoint.variant.instance]] it says of each variant which hosts it takes, and how many:
    ///
    ///   [[endpoint]]
    ///   name = "chat"
    ///
    ///   [[endpoint.variant]]
    ///   name = "main"
    ///   instance_type = "ml.p5.48xlarge"
    ///   instances = 3
    ///   prefix_length = 4096
    ///   concurrency_threshold = 10
    ///
    /// Endpoints that the file does not name stay as they are. Waits until each is in service, and
    /// exits with 1 if one is not.
    #[command(
        verbatim_doc_comment,
        about = "Make endpoints as a file describes them, or change them where they differ"
    )]
    Apply {
        #[command(flatten)]
        gateway: Gateway,
        /// The file (TOML); - reads standard input.
        file: PathBuf,
        /// Say what was begun, and do not wait for it.
        #[arg(long)]
        no_wait: bool,
    },
    /// Delete an endpoint, and what `apply` made for it.
    ///
    /// Its requests under way end; new ones are answered with 404. Waits until it is gone.
    Delete {
        #[command(flatten)]
        gateway: Gateway,
        /// The endpoint's name.
        name: String,
        /// Do not wait until it is gone; its configuration and its model stay.
        #[arg(long)]
        no_wait: bool,
    },
}

/// Which gateway.
#[derive(Args, Debug)]
struct Gateway {
    /// The address of the gateway's control API. [default: 127.0.0.1:9902]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ATALHO_CONTROL",
        value_parser = address_or_off,
        conflicts_with = "config"
    )]
    control: Option<AddressOrOff>,
    /// The gateway's configuration file, to read the address from.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn endpoint(options: &Options) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &options.command {
            Command::List { gateway, json } => {
                report::list(&mut gateway.client().await?, *json).await
            }
            Command::Show { gateway, name, json } => {
                report::show(&mut gateway.client().await?, name, *json).await
            }
            Command::Apply { gateway, file, no_wait } => {
                // What is wrong with the file is said without a gateway, too.
                let endpoints = file::read(file)?;
                apply::apply(&mut gateway.client().await?, &endpoints, !no_wait).await
            }
            Command::Delete { gateway, name, no_wait } => {
                delete::delete(&mut gateway.client().await?, name, !no_wait).await
            }
        }
    })
}

impl Gateway {
    async fn client(&self) -> anyhow::Result<Client> {
        Client::connect(self.address()?).await
    }

    fn address(&self) -> anyhow::Result<SocketAddr> {
        let configured = match (&self.config, self.control) {
            (Some(file), _) => config::load(file)?.control.listen,
            (None, Some(AddressOrOff(address))) => address,
            (None, None) => return Ok(DEFAULT.parse()?),
        };
        configured.context(
            "the control API is off (`control.listen = \"off\"`): there is nothing to speak to",
        )
    }
}
