//! Processes that run beside a measurement and end with it.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a process may take to start, and to end when told to.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that is told to end, and waited for, when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Daemon {
    /// Starts a command; what it prints goes to `NAME.log` in `directory`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, directory: &Path, command: &mut Command) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("{}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { child, name: name.to_owned(), log })
    }

    /// Starts a command that prints `listening on ADDRESS` as its first line.
    ///
    /// # Errors
    /// When it cannot be started, or prints something else.
    pub fn start_announcing(
        name: &str,
        directory: &Path,
        command: &mut Command,
    ) -> anyhow::Result<(Self, SocketAddr)> {
        let log = directory.join(format!("{name}.log"));
        let errors = File::create(&log).with_context(|| format!("{}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let output = child.stdout.take().context("the output was asked for")?;
        let daemon = Self { child, name: name.to_owned(), log };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        match line.trim().strip_prefix("listening on ").map(str::parse) {
            Some(Ok(address)) => Ok((daemon, address)),
            _ => bail!("{name} did not say where it listens: {line:?}{}", daemon.said()),
        }
    }

    /// Waits until connections to `address` are accepted.
    ///
    /// # Errors
    /// When the process ends before, or takes too long.
    pub fn wait_until_listening(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status} at its start{}", self.name, self.said());
            }
            if start.elapsed() > PATIENCE {
                bail!(
                    "{} does not listen on {address} after {PATIENCE:?}{}",
                    self.name,
                    self.said()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process and its children.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        super::cpu::family(self.pid())
    }

    fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let tail: Vec<&str> = text.lines().rev().take(8).collect();
        tail.into_iter().rev().fold(String::new(), |all, line| all + "\n  " + line)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > PATIENCE / 4 {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A port of the loopback address that is free now.
///
/// # Errors
/// When there is none.
pub fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
