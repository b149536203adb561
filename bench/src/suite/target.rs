//! What is compared: the gateway with each engine, the usual proxies, and nothing in between.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::machine::{
    daemon::{Daemon, free_port},
    hosts::{self, Hosts},
};

/// A way from the client to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Target {
    /// No gateway.
    Direct,
    /// No gateway either, but its host forwards the packets. Only between hosts.
    Forwarding,
    /// nginx.
    Nginx,
    /// HAProxy.
    Haproxy,
    /// HAProxy with its own way through the kernel: `option splice-auto`, which moves bodies from socket
    /// to socket with splice(2).
    #[serde(rename = "haproxy-splice")]
    #[value(name = "haproxy-splice")]
    HaproxySplice,
    /// Atalho, relaying in user space.
    Userspace,
    /// Atalho, relaying in the kernel wherever it can.
    Sockmap,
    /// Atalho, rewriting packets wherever it can, at once: not how it ships.
    Splice,
    /// The same, in drivers where they can.
    #[serde(rename = "splice-xdp")]
    #[value(name = "splice-xdp")]
    SpliceXdp,
    /// Atalho as it ships, choosing by itself.
    Auto,
}

impl Target {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Forwarding => "forwarding",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::HaproxySplice => "haproxy splice-auto",
            Self::Userspace => "atalho userspace",
            Self::Sockmap => "atalho sockmap",
            Self::Splice => "atalho splice at once",
            Self::SpliceXdp => "atalho splice-xdp at once",
            Self::Auto => "atalho as shipped (auto)",
        }
    }

    /// Starts it in front of `backend`, on the gateway's host if there are hosts. Its files go to
    /// `directory`.
    ///
    /// # Errors
    /// When the program is missing or does not start.
    pub fn start(
        self,
        programs: &Programs,
        hosts: Option<&Hosts>,
        backend: SocketAddr,
        directory: &Path,
    ) -> anyhow::Result<Running> {
        let without = |address| Running { address, admin: None, daemon: None };
        match (self, hosts) {
            (Self::Direct, None) | (Self::Forwarding, Some(_)) => return Ok(without(backend)),
            (Self::Direct, Some(_)) => {
                return Ok(without(SocketAddr::new(hosts::SERVER_DIRECT, backend.port())));
            }
            (Self::Forwarding, None) => bail!("needs hosts of their own (--hosts)"),
            _ => {}
        }
        let (address, admin) = match hosts {
            None => (free_port()?, free_port()?),
            // Nobody else is there.
            Some(_) => {
                (SocketAddr::new(hosts::GATEWAY, 8080), SocketAddr::new(hosts::GATEWAY, 9901))
            }
        };
        let command = |program: &OsStr| match hosts {
            None => Command::new(program),
            Some(hosts) => hosts.gateway.command(program),
        };
        let mut command = match self {
            Self::Direct | Self::Forwarding => unreachable!("returned above"),
            Self::Nginx => {
                let file = directory.join("nginx.conf");
                fs::write(&file, nginx(address, backend, directory))?;
                let mut command = command("nginx".as_ref());
                command.arg("-e").arg(directory.join("nginx.err")).arg("-c").arg(file);
                command
            }
            Self::Haproxy | Self::HaproxySplice => {
                let file = directory.join("haproxy.cfg");
                fs::write(&file, haproxy(address, backend, self == Self::HaproxySplice))?;
                let mut command = command("haproxy".as_ref());
                command.arg("-db").arg("-f").arg(file);
                command
            }
            Self::Userspace | Self::Sockmap | Self::Splice | Self::SpliceXdp | Self::Auto => {
                let file = directory.join("atalho.toml");
                fs::write(&file, self.atalho(address, admin, backend))?;
                let mut command = command(programs.atalho.as_ref());
                command.arg("serve").arg("--config").arg(file);
                command
            }
        };
        let mut daemon = Daemon::start(self.name(), directory, &mut command)?;
        daemon.wait_until_listening(address)?;
        let admin = self.is_atalho().then_some(admin);
        Ok(Running { address, admin, daemon: Some(daemon) })
    }

    fn is_atalho(self) -> bool {
        matches!(
            self,
            Self::Userspace | Self::Sockmap | Self::Splice | Self::SpliceXdp | Self::Auto
        )
    }

    /// The gateway as it is by default, except that `sockmap` and `splice` hand every body over at once:
    /// what it costs is to be measured, also where `auto` would rather not.
    fn atalho(self, listen: SocketAddr, admin: SocketAddr, backend: SocketAddr) -> String {
        let engine = match self {
            Self::Sockmap => "mode = \"sockmap\"\nhand_over_from_bytes = 0",
            Self::Splice => "mode = \"splice\"\nhand_over_from_bytes = 0\nhand_over_from_reads = 0",
            Self::SpliceXdp => {
                "mode = \"splice\"\nxdp = \"on\"\nhand_over_from_bytes = 0\nhand_over_from_reads = 0"
            }
            Self::Auto => "mode = \"auto\"",
            _ => "mode = \"userspace\"",
        };
        format!(
            "listen = [\"{listen}\"]
admin = \"{admin}\"
[engine]
{engine}
[[endpoint]]
name = \"default\"
[[endpoint.variant]]
name = \"v\"
[[endpoint.variant.instance]]
url = \"http://{backend}\"
"
        )
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

    /// Starts the backend of timed events, on the server's host if there are hosts.
    ///
    /// # Errors
    /// When it does not start.
    pub fn backend(
        &self,
        hosts: Option<&Hosts>,
        directory: &Path,
    ) -> anyhow::Result<(Daemon, SocketAddr)> {
        let mut command = match hosts {
            None => Command::new(&self.load),
            Some(hosts) => hosts.server.command(&self.load),
        };
        command.args(["backend", "--exit-with-parent"]);
        if hosts.is_some() {
            command.args(["--listen", "0.0.0.0:0"]);
        }
        let (daemon, mut address) =
            Daemon::start_announcing("backend", directory, &mut command).context("the backend")?;
        if hosts.is_some() {
            address.set_ip(hosts::SERVER);
        }
        Ok((daemon, address))
    }
}

/// A target that accepts connections.
#[derive(Debug)]
pub struct Running {
    /// Where.
    pub address: SocketAddr,
    admin: Option<SocketAddr>,
    daemon: Option<Daemon>,
}

/// Bytes of response bodies that a gateway has carried so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Carried {
    /// Through user space.
    pub userspace: f64,
    /// In the kernel.
    pub kernel: f64,
}

impl Carried {
    fn parse(metrics: &str) -> Self {
        let of = |engine: &str| {
            let name =
                format!("atalho_body_bytes_total{{direction=\"response\",engine=\"{engine}\"}} ");
            let value = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
        };
        Self { userspace: of("userspace"), kernel: of("sockmap") + of("splice") }
    }

    /// What was carried since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { userspace: self.userspace - earlier.userspace, kernel: self.kernel - earlier.kernel }
    }

    /// Share of the kernel, 0 to 1.
    pub fn kernel_share(self) -> f64 {
        self.kernel / (self.kernel + self.userspace).max(1.0)
    }
}

impl Running {
    /// What was carried by which engine; `None` for other proxies.
    pub fn carried(&self) -> Option<Carried> {
        let mut stream = TcpStream::connect(self.admin?).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(Carried::parse(&text))
    }

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
/// interactive streams. `splice` moves bodies in the kernel where HAProxy finds that worth it.
fn haproxy(listen: SocketAddr, backend: SocketAddr, splice: bool) -> String {
    let cores = cores();
    let splice = if splice { "\n    option splice-auto" } else { "" };
    format!(
        "global
    nbthread {cores}
    maxconn 8000
defaults
    mode http
    option http-no-delay{splice}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried_bytes_are_read_from_metrics() {
        let text = "# TYPE atalho_body_bytes_total counter\n\
            atalho_body_bytes_total{direction=\"request\",engine=\"sockmap\"} 7\n\
            atalho_body_bytes_total{direction=\"response\",engine=\"sockmap\"} 30\n\
            atalho_body_bytes_total{direction=\"response\",engine=\"userspace\"} 10\n";
        let carried = Carried::parse(text);
        assert_eq!(carried, Carried { userspace: 10.0, kernel: 30.0 });
        assert_eq!(carried.kernel_share(), 0.75);
        assert_eq!(Carried::parse("").kernel_share(), 0.0);
    }

    #[test]
    fn the_gateway_takes_its_configuration() {
        let [listen, admin, backend] =
            ["127.0.0.1:1000", "127.0.0.1:1001", "127.0.0.1:1002"].map(|it| it.parse().unwrap());
        for target in
            [Target::Userspace, Target::Sockmap, Target::Splice, Target::SpliceXdp, Target::Auto]
        {
            let text = target.atalho(listen, admin, backend);
            router::config::parse("bench.toml", &text).unwrap();
        }
    }
}
