//! The simulated engine as a process.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use anyhow::Context;
use bench::engine::{
    fault::Fault,
    params::Params,
    server::{Options, Server},
};
use clap::Parser;

/// An inference server without a GPU: it speaks the usual APIs and takes the time a GPU host would.
///
/// Prints `listening on ADDRESS` once it serves. A token is four characters; answers are nonsense,
/// but the same nonsense for the same prompt. `POST /sim/fault` with e.g. `{"kind": "reset",
/// "after_tokens": 5}` makes answers fail, `POST /sim/reset` empties the cache, `GET /sim/state`
/// tells what goes on, and `/sim/echo` answers with what it was sent.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Model or adapter to list; repeat for more.
    #[arg(long = "model", default_value = "sim-model")]
    models: Vec<String>,
    /// Name in the header `x-sim-name` [default: the port].
    #[arg(long)]
    name: Option<String>,
    /// Seconds after which an idle connection is closed, as common servers do.
    #[arg(long, default_value_t = 5.0)]
    keep_alive: f64,
    /// End when the process that started this one ends.
    #[arg(long)]
    exit_with_parent: bool,
    #[command(flatten)]
    params: Params,
    #[command(flatten)]
    fault: Fault,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if cli.exit_with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    bench::machine::raise_open_files()?;
    let keep_alive = Duration::try_from_secs_f64(cli.keep_alive)
        .context("--keep-alive must be a positive number of seconds")?;
    let listener = bench::machine::listen((cli.host, cli.port).into())
        .with_context(|| format!("cannot listen on {}:{}", cli.host, cli.port))?;
    let address = listener.local_addr()?;
    let options = Options {
        models: cli.models,
        name: cli.name.unwrap_or_else(|| address.port().to_string()),
        keep_alive,
    };
    let server = Server::new(cli.params, options, cli.fault);
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening on {address}")?;
    stdout.flush()?;
    server.serve(listener).await.context("the listener failed")
}
