//! Load by hand: the parts of the benchmarks as commands.

use std::{io::Write, net::SocketAddr, time::Duration};

use anyhow::Context;
use bench::load::{backend, relay, routing};
use clap::{Args, Parser, Subcommand};

/// Generates load and measures what a client sees; results are JSON.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve timed events to `streams`, `requests` and `hold`.
    Backend {
        /// Address to listen on; port 0 takes a free one. Printed as `listening on ADDRESS`.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// End when the process that started this one ends.
        #[arg(long)]
        exit_with_parent: bool,
    },
    /// Open streams and measure how long events take to arrive.
    Streams {
        #[command(flatten)]
        target: Target,
        /// Streams to open.
        #[arg(long, default_value_t = 100)]
        streams: usize,
        /// Bytes of an event.
        #[arg(long, default_value_t = 200, value_parser = size)]
        size: usize,
        /// Microseconds between the events of a stream; 0 for as fast as it goes.
        #[arg(long, default_value_t = 10_000)]
        gap_us: u64,
        /// Frame the body with a content length instead of chunks.
        #[arg(long)]
        length: bool,
    },
    /// Send short requests on connections that stay open and measure the time to the first byte.
    Requests {
        #[command(flatten)]
        target: Target,
        /// Connections.
        #[arg(long, default_value_t = 16)]
        connections: usize,
        /// Microseconds between the requests of a connection; 0 for back to back.
        #[arg(long, default_value_t = 10_000)]
        gap_us: u64,
    },
    /// Open silent streams and keep them open for a while.
    Hold {
        #[command(flatten)]
        target: Target,
        /// Streams to open.
        #[arg(long, default_value_t = 5_000)]
        streams: usize,
    },
    /// Hold conversations that share system prompts, and see what was in the engines' caches.
    Sessions {
        /// The gateway, or an engine.
        #[arg(long)]
        target: SocketAddr,
        #[command(flatten)]
        workload: routing::Workload,
    },
}

#[derive(Args)]
struct Target {
    /// The gateway, or the backend itself.
    #[arg(long)]
    target: SocketAddr,
    /// Seconds to run before measuring.
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Seconds to measure.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
}

fn size(text: &str) -> Result<usize, String> {
    use bench::load::event::{MAX_SIZE, MIN_SIZE};
    match text.parse() {
        Ok(size) if (MIN_SIZE..=MAX_SIZE).contains(&size) => Ok(size),
        _ => Err(format!("a number from {MIN_SIZE} to {MAX_SIZE}")),
    }
}

fn main() -> anyhow::Result<()> {
    bench::machine::raise_open_files()?;
    match Cli::parse().command {
        Command::Backend { listen, exit_with_parent } => serve(listen, exit_with_parent)?,
        Command::Streams { target, streams, size, gap_us, length } => {
            let load = relay::Load {
                streams,
                size,
                gap_us,
                chunked: !length,
                endpoint: None,
                warm_up: Duration::try_from_secs_f64(target.warm_up)?,
                measure: Duration::try_from_secs_f64(target.seconds)?,
            };
            print(&relay::streams(target.target, load, || {}, || {})?)?;
        }
        Command::Requests { target, connections, gap_us } => {
            let load = relay::Requests {
                events: 0,
                connections,
                gap_us,
                warm_up: Duration::try_from_secs_f64(target.warm_up)?,
                measure: Duration::try_from_secs_f64(target.seconds)?,
            };
            print(&relay::requests(target.target, load, || {}, || {})?)?;
        }
        Command::Sessions { target, workload } => print(&routing::run(target, &workload)?)?,
        Command::Hold { target, streams } => {
            let seconds = Duration::try_from_secs_f64(target.seconds)?;
            print(&relay::hold(target.target, streams, || std::thread::sleep(seconds))?)?;
        }
    }
    Ok(())
}

fn serve(listen: SocketAddr, exit_with_parent: bool) -> anyhow::Result<()> {
    if exit_with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener =
            bench::machine::listen(listen).with_context(|| format!("cannot listen on {listen}"))?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "listening on {}", listener.local_addr()?)?;
        stdout.flush()?;
        backend::serve(listener).await.context("the listener failed")
    })
}

fn print<T: serde::Serialize>(result: &T) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(result)?);
    Ok(())
}
