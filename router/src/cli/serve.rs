//! `atalho serve`.

use std::{net::SocketAddr, process::ExitCode};

use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser};

use super::{
    fleet_flags::{AddressOrOff, FleetFlags, address_or_off},
    heap,
};
use crate::{
    config::{EngineMode, Flags, LogFormat, LogLevel},
    gateway, log,
};

/// Serve clients: the gateway itself.
///
/// Without a configuration file, --backend flags name the inference servers and the other flags
/// say the rest; each flag has an environment variable as well. With --config FILE everything is in
/// the file, which is taken over again when it changes or on SIGHUP; a file with a mistake changes
/// nothing and the log says what is wrong in which line.
///
/// SIGTERM and Ctrl-C let open exchanges end and then stop; a second one stops at once.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(flatten)]
    fleet: FleetFlags,

    /// Address and port for clients; repeat it for several. [default: 0.0.0.0:8080]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ATALHO_LISTEN",
        value_delimiter = ',',
        conflicts_with = "config"
    )]
    listen: Vec<SocketAddr>,

    /// What carries bodies: auto (splice where it works, else user space), splice (packets past the
    /// sockets), sockmap (from socket to socket in the kernel), userspace (never the kernel). Splice and
    /// sockmap refuse to start where they do not work. [default: auto]
    #[arg(
        long,
        value_name = "ENGINE",
        env = "ATALHO_ENGINE",
        conflicts_with = "config",
        value_parser = one_of(
            [EngineMode::Auto, EngineMode::Sockmap, EngineMode::Splice, EngineMode::Userspace]
                .map(|mode| (mode.as_str(), mode))
        )
    )]
    engine: Option<EngineMode>,

    /// Address of metrics, health and status, or `off`. They have no authentication: keep them on
    /// loopback or on a network of your own. [default: 127.0.0.1:9901]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ATALHO_ADMIN",
        conflicts_with = "config",
        value_parser = address_or_off
    )]
    admin: Option<AddressOrOff>,

    /// Worker threads; 0 is one per processor. [default: 0]
    #[arg(long, value_name = "THREADS", env = "ATALHO_THREADS", conflicts_with = "config")]
    threads: Option<u64>,

    /// Take over from the gateway that serves the same addresses on this host, if there is one: it hands its listeners
    /// over once this one can serve, and ends what it has. When this one cannot start, nothing changes.
    #[arg(long)]
    take_over: bool,

    /// Write one log line per request. It names no prompt and no header value.
    #[arg(long, env = "ATALHO_ACCESS_LOG", conflicts_with = "config")]
    access_log: bool,

    /// How log lines are written, whatever the file says: text or json.
    #[arg(
        long,
        value_name = "FORMAT",
        env = "ATALHO_LOG_FORMAT",
        value_parser = one_of([("text", LogFormat::Text), ("json", LogFormat::Json)])
    )]
    log_format: Option<LogFormat>,

    /// The least severe level that is logged, whatever the file says.
    ///
    /// For a filter by module, set ATALHO_LOG, for example to `info,router::fleet=debug`.
    #[arg(
        long,
        value_name = "LEVEL",
        env = "ATALHO_LOG_LEVEL",
        value_parser = one_of([
            LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace,
        ].map(|level| (level.as_str(), level)))
    )]
    log_level: Option<LogLevel>,
}

/// Takes one of the names, and gives what stands behind it.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    names: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names.map(|(name, _)| name)).try_map(move |given| {
        let found = names.iter().find(|(name, _)| *name == given);
        found.map(|(_, value)| *value).ok_or("no such value")
    })
}

pub(super) fn serve(options: Options) -> anyhow::Result<ExitCode> {
    let flags = Flags {
        listen: options.listen,
        engine: options.engine,
        admin: options.admin.map(|AddressOrOff(address)| address),
        threads: options.threads,
        access_log: options.access_log,
        ..Flags::default()
    };
    let mut config = options.fleet.config(flags)?;
    config.log.format = options.log_format.unwrap_or(config.log.format);
    config.log.level = options.log_level.unwrap_or(config.log.level);
    heap::return_large_blocks();
    log::init(config.log.format == LogFormat::Json, config.log.level.as_str())?;
    gateway::run(config, options.fleet.config, options.take_over)?;
    Ok(ExitCode::SUCCESS)
}
