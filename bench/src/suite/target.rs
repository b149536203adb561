//! What is compared: the gateway with each engine, the usual proxies, and nothing in between.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;

use crate::machine::daemon::{Daemon, free_port};

/// A way from the client to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Target {
    /// No gateway.
    Direct,
    /// nginx.
    Nginx,
    /// HAProxy.
    Haproxy,
    /// Atalho, relaying in user space.
    Userspace,
    /// Atalho, relaying in the kernel wherever it can.
    Sockmap,
    /// Atalho, choosing by itself.
    Auto,
}

impl Target {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Userspace => "atalho userspace",
            Self::Sockmap => "atalho sockmap",
            Self::Auto => "atalho auto",
        }
    }

    /// Starts it in front of `backend`. Its files go to `directory`.
    ///
    /// # Errors
    /// When the program is missing or does not start.
    pub fn start(
        self,
        programs: &Programs,
        backend: SocketAddr,
        directory: &Path,
    ) -> anyhow::Result<Running> {
        if self == Self::Direct {
            return Ok(Running { address: backend, daemon: None });
        }
        let address = free_port()?;
        let mut command = match self {
            Self::Direct => unreachable!("returned above"),
            Self::Nginx => {
                let file = directory.join("nginx.conf");
                fs::write(&file, nginx(address, backend, directory))?;
                let mut command = Command::new("nginx");
                command.arg("-e").arg(directory.join("nginx.err")).arg("-c").arg(file);
                command
            }
            Self::Haproxy => {
                let file = directory.join("haproxy.cfg");
                fs::write(&file, haproxy(address, backend))?;
                let mut command = Command::new("haproxy");
                command.arg("-db").arg("-f").arg(file);
                command
            }
            Self::Userspace | Self::Sockmap | Self::Auto => {
                let engine = match self {
                    Self::Sockmap => "sockmap",
                    Self::Auto => "auto",
                    _ => "userspace",
                };
                let mut command = Command::new(&programs.atalho);
                command
                    .args(["serve", "--listen", &address.to_string()])
                    .args(["--backend", &format!("http://{backend}")])
                    .args(["--engine", engine, "--admin", &free_port()?.to_string()]);
                command
            }
        };
        let mut daemon = Daemon::start(self.name(), directory, &mut command)?;
        daemon.wait_until_listening(address)?;
        Ok(Running { address, daemon: Some(daemon) })
    }
}

/// Where the project's own programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The gateway.
    pub atalho: PathBuf,
    /// The load generator, which is the backend too.
    pub load: PathBuf,
    /// The simulated engine.
    pub sim: PathBuf,
}

impl Programs {
    /// Those beside the running program.
    ///
    /// # Errors
    /// When one is missing.
    pub fn find() -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let find = |name: &str| {
            let path = own.with_file_name(name);
            match path.exists() {
                true => Ok(path),
                false => Err(anyhow::anyhow!(
                    "{} is missing; `cargo xtask bench` builds it",
                    path.display()
                )),
            }
        };
        Ok(Self { atalho: find("atalho")?, load: find("atalho-load")?, sim: find("atalho-sim")? })
    }

    /// Starts the backend of timed events.
    ///
    /// # Errors
    /// When it does not start.
    pub fn backend(&self, directory: &Path) -> anyhow::Result<(Daemon, SocketAddr)> {
        let mut command = Command::new(&self.load);
        command.args(["backend", "--exit-with-parent"]);
        Daemon::start_announcing("backend", directory, &mut command).context("the backend")
    }
}

/// A target that accepts connections.
#[derive(Debug)]
pub struct Running {
    /// Where.
    pub address: SocketAddr,
    daemon: Option<Daemon>,
}

impl Running {
    /// Its processes.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        self.daemon.as_ref().map_or(Ok(Vec::new()), Daemon::pids)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// As fast as it goes: a worker and a listener per core, nothing buffered or logged, and
/// connections to the backend kept. The buffer takes one 16 KiB write of the backend at a time.
fn nginx(listen: SocketAddr, backend: SocketAddr, directory: &Path) -> String {
    let (cores, directory) = (cores(), directory.display());
    format!(
        "daemon off;
user root;
worker_processes {cores};
worker_rlimit_nofile 65536;
pid {directory}/nginx.pid;
error_log {directory}/nginx.err warn;
events {{ worker_connections 32768; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_timeout 120s;
    keepalive_requests 1000000;
    client_body_temp_path {directory}/client;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    upstream backend {{
        server {backend};
        keepalive 512;
        keepalive_requests 1000000;
    }}
    server {{
        listen {listen} reuseport backlog=8192;
        location / {{
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_buffer_size 16k;
            proxy_buffers 8 16k;
            proxy_read_timeout 300s;
        }}
    }}
}}
"
    )
}

/// A thread per core, keep-alive on both sides, no log; `http-no-delay` because the responses are
/// interactive streams.
fn haproxy(listen: SocketAddr, backend: SocketAddr) -> String {
    let cores = cores();
    format!(
        "global
    nbthread {cores}
    maxconn 8000
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    timeout http-keep-alive 120s
frontend gateway
    bind {listen} backlog 8192
    default_backend engines
backend engines
    server engine {backend}
"
    )
}
