//! Real proxies that end TLS in front of the gateway, with the configurations that the documents give.

use std::{
    fs,
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::{Gateway, eventually, process};

/// The host that the certificate is for.
pub const HOST: &str = "llm.example.com";

/// Which proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// nginx.
    Nginx,
    /// HAProxy.
    Haproxy,
    /// HAProxy that passes TCP on, with the PROXY protocol.
    HaproxyTcp,
}

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy | Self::HaproxyTcp => "haproxy",
        }
    }

    /// Its configuration on the page.
    fn configuration(self, page: &str) -> String {
        block(page, self.program(), usize::from(self == Self::HaproxyTcp))
    }

    /// The gateway's configuration that belongs to it.
    pub fn gateways(self, page: &str) -> toml::Table {
        let text = block(page, "toml", usize::from(self == Self::HaproxyTcp));
        text.parse().expect("TOML")
    }
}

/// A running proxy; ended when dropped.
pub struct Front {
    child: Child,
    directory: tempfile::TempDir,
    address: SocketAddr,
}

impl Front {
    /// Starts a proxy before a gateway, with its configuration on `docs/tls-in-front.md`, in which only
    /// addresses and paths are replaced. `None`, said aloud, when it is not installed.
    ///
    /// # Panics
    /// In CI, when it is not installed; when it does not start.
    pub fn start(kind: Kind, page: &str, gateway: &Gateway) -> Option<Self> {
        let name = kind.program();
        let (program, openssl) = (find(name)?, find("openssl")?);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        certificate(&openssl, path);
        let port = free_port();
        let gateways = gateway.address().to_string();
        let admin = format!("port {}", gateway.admin().port());
        let place = format!("{}/", path.display());
        let (listens, listen) = match kind {
            Kind::Nginx => ("listen 443 ssl", format!("listen 127.0.0.1:{port} ssl")),
            Kind::Haproxy | Kind::HaproxyTcp => {
                ("bind :443 ssl", format!("bind 127.0.0.1:{port} ssl"))
            }
        };
        let mut text = kind.configuration(page);
        for (from, to) in [("127.0.0.1:8080", &gateways), ("/etc/ssl/", &place), (listens, &listen)]
        {
            text = replaced(&text, from, to);
        }
        let file = path.join("front.conf");
        let mut command = Command::new(program);
        match kind {
            Kind::Nginx => {
                fs::write(path.join("site.conf"), text).expect("a file");
                fs::write(&file, around(path)).expect("a file");
                command.arg("-e").arg("stderr").arg("-c").arg(&file);
            }
            Kind::Haproxy | Kind::HaproxyTcp => {
                fs::write(&file, replaced(&text, "port 9901", &admin)).expect("a file");
                command.arg("-db").arg("-f").arg(&file);
            }
        }
        // SAFETY: prctl is async-signal-safe and takes no memory.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let child = command.stdin(Stdio::null()).spawn().expect("a program that is there");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut front = Self { child, directory, address };
        eventually("the proxy listens", || {
            let ended = front.child.try_wait().expect("our child");
            assert!(ended.is_none(), "{name} ended: {ended:?}");
            TcpStream::connect(address).is_ok()
        });
        Some(front)
    }

    /// Starts curl with a URL of the host's on this proxy; its output is a pipe, and its input too.
    /// It gives up after some time, and fails for statuses of 400 and more.
    pub fn curl(&self, args: &[&str], path: &str) -> Curl {
        let port = self.address.port();
        let child = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--no-buffer", "--max-time", "30"])
            .arg("--resolve")
            .arg(format!("{HOST}:{port}:127.0.0.1"))
            .arg("--cacert")
            .arg(self.directory.path().join(format!("{HOST}.pem")))
            .args(args)
            .arg(format!("https://{HOST}:{port}{path}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl");
        Curl(child)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // So that the workers end too. SAFETY: the process is ours, and not yet waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        let _ = self.child.wait();
    }
}

/// A running curl; ended when dropped, as a client that is killed.
pub struct Curl(Child);

impl Curl {
    /// Where its body is written to.
    ///
    /// # Panics
    /// When it was taken already.
    pub fn input(&mut self) -> ChildStdin {
        self.0.stdin.take().expect("a pipe")
    }

    /// Takes the next bytes of the answer.
    ///
    /// # Panics
    /// When others come, or it gives up.
    #[track_caller]
    pub fn expect(&mut self, bytes: &[u8]) {
        let output: &mut ChildStdout = self.0.stdout.as_mut().expect("a pipe");
        let mut got = vec![0; bytes.len()];
        let result = output.read_exact(&mut got);
        assert!(result.is_ok(), "no {:?} came: {result:?}", String::from_utf8_lossy(bytes));
        crate::payload::assert_same("what curl got", &got, bytes);
    }

    /// Takes what is left of the answer, and its end.
    ///
    /// # Panics
    /// When it was not complete, or no success.
    #[track_caller]
    pub fn rest(mut self) -> Vec<u8> {
        drop(self.0.stdin.take());
        let mut rest = Vec::new();
        self.0.stdout.take().expect("a pipe").read_to_end(&mut rest).expect("a pipe");
        let status = self.0.wait().expect("our child");
        assert!(status.success(), "{status}; {:?}", String::from_utf8_lossy(&rest));
        rest
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A block of a page in this language, by its number.
fn block(page: &str, language: &str, number: usize) -> String {
    let begin = format!("\n```{language}\n");
    let rest = page.split(&begin).nth(1 + number);
    let rest = rest.unwrap_or_else(|| panic!("no block {number} of {language}"));
    rest.split_once("\n```").expect("the block's end").0.to_owned() + "\n"
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the configuration says nothing of {from:?}");
    text.replace(from, to)
}

/// What stands around a file of nginx's `conf.d`.
fn around(directory: &Path) -> String {
    let dir = directory.display();
    // SAFETY: geteuid takes nothing and cannot fail.
    let user = if unsafe { libc::geteuid() } == 0 { "user root;" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\n{user}\npid {dir}/pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}include {dir}/site.conf;\n}}\n"
    )
}

fn certificate(openssl: &Path, directory: &Path) {
    let (certificate, key) =
        (directory.join(format!("{HOST}.pem")), directory.join(format!("{HOST}.key")));
    let output = Command::new(openssl)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", &format!("/CN={HOST}")])
        .args(["-addext", &format!("subjectAltName=DNS:{HOST}")])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("a program that is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // HAProxy takes both from one file, and nginx does not mind.
    let both = [fs::read(&certificate), fs::read(&key)].map(|file| file.expect("it was written"));
    fs::write(&certificate, both.concat()).expect("a file of ours");
}

/// A port that nobody listens on now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Finds a program, where the system's own are too.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = places.map(|dir: PathBuf| dir.join(name)).find(|file| file.is_file());
    if found.is_none() {
        process::skip(&format!("{name} is not installed"));
    }
    found
}
