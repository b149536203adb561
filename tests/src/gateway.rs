//! The real binary, as a process.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    Engine, Peer, Setup,
    message::{Message, request_with},
    metrics::Metrics,
    netns,
    network::Network,
    process,
    wait::{DEADLINE, eventually, eventually_some, within},
};

/// Starting includes loading eBPF programs and testing the engines.
const START: Duration = Duration::from_secs(60);

/// A user that owns nothing.
const NOBODY: u32 = 65534;

/// The response header that names the instance.
pub const INSTANCE_HEADER: &str = "x-atalho-instance";
/// The response header that says why it was chosen.
pub const REASON_HEADER: &str = "x-atalho-reason";

/// A running gateway. Ended when dropped; its log is printed if the test has failed.
pub struct Gateway {
    child: Child,
    engine: Engine,
    addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    control: Option<SocketAddr>,
    log: Arc<Mutex<Vec<String>>>,
    directory: tempfile::TempDir,
    exited: Option<ExitStatus>,
    namespace: Option<String>,
    _network: Option<Arc<Network>>,
}

impl Gateway {
    /// Starts it with a configuration.
    ///
    /// # Panics
    /// When it does not get ready.
    #[track_caller]
    pub fn start(setup: &Setup) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("atalho.toml");
        fs::write(&file, setup.text()).expect("a file in a fresh directory");
        let mut command = atalho(setup.namespace.as_deref());
        command.arg("serve").arg("--config").arg(&file).args(&setup.flags);
        if setup.nobody {
            for (path, mode) in [(directory.path(), 0o755), (&file, 0o644)] {
                let mode = fs::Permissions::from_mode(mode);
                fs::set_permissions(path, mode).expect("a file of ours");
            }
            command.uid(NOBODY).gid(NOBODY);
        }
        if !setup.logs_by_itself() && std::env::var_os("ATALHO_LOG").is_none() {
            // Decisions of ours, without those of the libraries.
            command.env("ATALHO_LOG", "info,router=debug");
        }
        command.envs(setup.environment.iter().map(|(name, value)| (name, value)));
        let mut gateway = Self::launch(command, setup.engine(), directory);
        gateway.namespace.clone_from(&setup.namespace);
        gateway._network.clone_from(&setup.network);
        gateway
    }

    /// Starts it with flags only.
    ///
    /// # Panics
    /// When it does not get ready.
    #[track_caller]
    pub fn start_with_flags(engine: Engine, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = atalho(None);
        command.arg("serve").args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(["--engine", engine.name()]).args(flags);
        Self::launch(command, engine, directory)
    }

    #[track_caller]
    fn launch(mut command: Command, engine: Engine, directory: tempfile::TempDir) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Does not outlive a test that is killed.
        // SAFETY: prctl is async-signal-safe and takes no memory.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = Arc::new(Mutex::new(Vec::new()));
        collect(child.stderr.take().expect("a pipe"), &log);
        collect(child.stdout.take().expect("a pipe"), &log);
        let mut gateway = Self {
            child,
            engine,
            addresses: Vec::new(),
            admin: None,
            control: None,
            log,
            directory,
            exited: None,
            namespace: None,
            _network: None,
        };
        let started = within(START, || {
            if let Some(status) = gateway.child.try_wait().expect("our child") {
                gateway.exited = Some(status);
                return Some(false);
            }
            gateway.lines().iter().any(|line| announced(line, "ready").is_some()).then_some(true)
        });
        if started != Some(true) {
            gateway.print_log();
            panic!("the gateway did not get ready; it exited with {:?}", gateway.exited);
        }
        for line in gateway.lines() {
            let address = |event: &str| announced(&line, event).and_then(|a| a.parse().ok());
            gateway.addresses.extend(address("listening"));
            gateway.admin = gateway.admin.or(address("admin"));
            gateway.control = gateway.control.or(address("control API"));
        }
        assert!(!gateway.addresses.is_empty(), "it did not say where it listens");
        gateway
    }

    // === talking to it ===

    /// Where it listens (the first address).
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Every address that it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where its admin listener is.
    ///
    /// # Panics
    /// When it has none.
    #[track_caller]
    pub fn admin(&self) -> SocketAddr {
        self.admin.expect("an admin listener")
    }

    /// Where its control API is.
    ///
    /// # Panics
    /// When it has none.
    #[track_caller]
    pub fn control(&self) -> SocketAddr {
        self.control.expect("a control API")
    }

    /// Where its control API is, if it has one.
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.control
    }

    /// The URL of the API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// A new client connection.
    ///
    /// # Panics
    /// When it refuses.
    #[track_caller]
    pub fn connect(&self) -> Peer {
        Peer::connect(self.address())
    }

    /// Sends one request on a connection of its own.
    ///
    /// # Panics
    /// When no complete response comes.
    #[track_caller]
    pub fn ask(&self, request: impl AsRef<[u8]>) -> Message {
        self.connect().ask(request)
    }

    /// GET on the admin listener.
    ///
    /// # Panics
    /// When no complete response comes.
    #[track_caller]
    pub fn admin_get(&self, path: &str) -> Message {
        // On the loopback of the gateway's host.
        let mut admin = match &self.namespace {
            Some(name) => netns::within(name, || Peer::connect(self.admin())),
            None => Peer::connect(self.admin()),
        };
        admin.ask(request_with("GET", path, &[("Connection", "close")], ""))
    }

    /// Calls an operation of the control API.
    ///
    /// # Panics
    /// When no complete response comes.
    #[track_caller]
    pub fn call(&self, operation: &str, input: &serde_json::Value) -> Message {
        let target = format!("SageMaker.{operation}");
        let fields = [
            ("X-Amz-Target", &*target),
            ("Content-Type", "application/x-amz-json-1.1"),
            ("Connection", "close"),
        ];
        Peer::connect(self.control()).ask(request_with("POST", "/", &fields, input.to_string()))
    }

    /// As [`call`](Self::call): its output.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn done(&self, operation: &str, input: &serde_json::Value) -> serde_json::Value {
        let answer = self.call(operation, input);
        let text = String::from_utf8_lossy(&answer.payload()).into_owned();
        assert_eq!(answer.status(), 200, "{operation}: {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    // === looking into it ===

    /// Its metrics now.
    ///
    /// # Panics
    /// When there are none.
    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let page = self.admin_get("/metrics");
        assert_eq!(page.status(), 200);
        let metrics = Metrics::parse(&String::from_utf8(page.payload()).expect("text"));
        metrics.assert_names();
        metrics
    }

    /// The sum of a metric's samples that have these labels.
    #[track_caller]
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics().sum(name, labels)
    }

    /// Its status page.
    ///
    /// # Panics
    /// When it is no JSON.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        self.admin_get("/status").json()
    }

    /// Requests in flight, over all instances.
    #[track_caller]
    pub fn in_flight(&self) -> u32 {
        self.metric("atalho_in_flight_requests", &[]) as u32
    }

    /// Waits until nothing is in flight.
    ///
    /// # Panics
    /// When something stays.
    #[track_caller]
    pub fn expect_idle(&self) {
        eventually("nothing in flight", || self.in_flight() == 0);
    }

    /// Exchanges that ended so.
    #[track_caller]
    pub fn outcomes(&self, outcome: &str) -> u64 {
        self.metric("atalho_exchanges_total", &[("outcome", outcome)]) as u64
    }

    /// Waits until this many exchanges have ended so, and not more.
    ///
    /// # Panics
    /// When it becomes more, or does not become as many.
    #[track_caller]
    pub fn expect_outcomes(&self, outcome: &str, count: u64) {
        let seen = eventually_some(&format!("{count} exchanges ended as {outcome}"), || {
            let seen = self.outcomes(outcome);
            (seen >= count).then_some(seen)
        });
        assert_eq!(seen, count, "exchanges ended as {outcome}");
    }

    /// Body bytes that an engine has carried in a direction (`request` or `response`).
    #[track_caller]
    pub fn carried(&self, engine: Engine, direction: &str) -> u64 {
        let labels = [("engine", engine.name()), ("direction", direction)];
        self.metric("atalho_body_bytes_total", &labels) as u64
    }

    /// Proves that the engine under test has worked at all: without this, a gateway that falls
    /// back to user space would pass every test of the kernel engines.
    ///
    /// # Panics
    /// When it has carried nothing.
    #[track_caller]
    pub fn expect_carried(&self, direction: &str) {
        let carried = || (self.carried(self.engine, direction) > 0).then_some(());
        if within(DEADLINE, carried).is_none() {
            let metrics = self.metrics();
            let why: Vec<_> = ["atalho_handovers_total", "atalho_fallbacks_total"]
                .iter()
                .flat_map(|name| metrics.matching(name, &[]))
                .filter(|sample| sample.value > 0.0)
                .collect();
            panic!("{:?} carried no bytes of a {direction}: {why:#?}", self.engine);
        }
    }

    /// Whether the engine under test has carried bytes in these directions, and drivers have forwarded
    /// packets if it is about them. On a busy machine that takes longer than an exchange or two.
    #[track_caller]
    pub fn takes_part(&self, directions: &[&str]) -> bool {
        directions.iter().all(|direction| self.carried(self.engine, direction) > 0)
            && (self.engine != Engine::SpliceXdp
                || self.metric("atalho_xdp_packets_total", &[]) > 0.0)
    }

    /// Asserts that drivers have forwarded packets, if the engine under test is that.
    ///
    /// # Panics
    /// When they have not.
    #[track_caller]
    pub fn expect_drivers_took_part(&self) {
        if self.engine == Engine::SpliceXdp {
            assert!(
                self.metric("atalho_xdp_packets_total", &[]) > 0.0,
                "drivers forwarded nothing"
            );
        }
    }

    /// As [`Gateway::expect_carried`]; but where an engine may have to refuse for a reason that lies in
    /// the peers, having refused for that reason is enough. `splice` can only carry to a client whose
    /// window is as large as what the instance has been promised; and whatever an instance sends
    /// before the hand-over is `unread`.
    ///
    /// # Panics
    /// When it has neither carried nor refused.
    #[track_caller]
    pub fn expect_carried_unless(&self, direction: &str, excuses: &[(Engine, &str)]) {
        let refused = |(engine, reason): &(Engine, &str)| {
            let labels = [("engine", engine.name()), ("reason", *reason)];
            engine.name() == self.engine.name()
                && self.metric("atalho_fallbacks_total", &labels) > 0.0
        };
        if !excuses.iter().any(refused) {
            self.expect_carried(direction);
        }
    }

    /// The engine under test.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed, on both streams.
    pub fn lines(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line that contains all of `parts`.
    ///
    /// # Panics
    /// When none comes.
    #[track_caller]
    pub fn expect_line(&self, parts: &[&str]) -> String {
        eventually_some(&format!("a log line with {parts:?}"), || {
            self.lines().into_iter().find(|line| parts.iter().all(|part| line.contains(part)))
        })
    }

    // === changing it ===

    /// Its configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.directory.path().join("atalho.toml")
    }

    /// How many configurations have taken effect.
    #[track_caller]
    pub fn generation(&self) -> u64 {
        self.metric("atalho_config_generation", &[]) as u64
    }

    /// Replaces the configuration file as editors do (by rename), and waits until it is in effect.
    ///
    /// # Panics
    /// When it does not take effect.
    #[track_caller]
    pub fn reload(&self, setup: &Setup) {
        let before = self.generation();
        replace(&self.config_file(), &setup.text());
        eventually("the new configuration is in effect", || self.generation() > before);
    }

    /// Sends a signal, if it has not been seen to end: its number may be somebody else's then.
    pub fn signal(&self, signal: i32) {
        if self.exited.is_none() {
            // SAFETY: takes no memory; the process is our child and has not been waited for.
            unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        }
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().expect("our child");
        }
        self.exited.is_none()
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the gateway ends", || !self.running());
        self.exited.expect("it has ended")
    }

    /// Asks it to end, and waits.
    ///
    /// # Panics
    /// When it does not, or fails.
    #[track_caller]
    pub fn stop(mut self) {
        self.terminate();
        let status = self.wait();
        assert!(status.success(), "it ended with {status}");
    }

    /// Kills it (SIGKILL), and waits.
    ///
    /// # Panics
    /// When it had ended before.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        assert_eq!(self.wait().signal(), Some(libc::SIGKILL));
    }

    fn print_log(&self) {
        let lines = self.lines();
        let from = lines.len().saturating_sub(200);
        if let Some(status) = self.exited {
            eprintln!("--- the gateway ended with {status}");
        }
        eprintln!("--- the gateway's last {} lines:", lines.len() - from);
        for line in &lines[from..] {
            eprintln!("    {line}");
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let running = self.running();
        if std::thread::panicking() {
            self.print_log();
        }
        if running {
            let _ = self.child.kill();
            let _ = self.child.wait();
        } else if !std::thread::panicking() {
            let panicked = self.lines().iter().any(|line| line.contains("panicked at"));
            assert!(!panicked, "the gateway panicked: {:#?}", self.lines());
        }
    }
}

/// The command, to be run in a network namespace if one is named.
///
/// # Panics
/// When the binary has not been built.
pub fn atalho(namespace: Option<&str>) -> Command {
    let binary = process::binary("ATALHO_BIN", "atalho");
    match namespace {
        None => Command::new(binary),
        Some(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(binary);
            command
        }
    }
}

/// Replaces a file in one step.
///
/// # Panics
/// When the directory cannot be written to.
pub fn replace(file: &Path, text: &str) {
    let fresh = file.with_extension("new");
    fs::write(&fresh, text).expect("a file beside the old one");
    fs::rename(&fresh, file).expect("a rename within a directory");
}

/// The address of an event that a line of standard output announces, in either format of the log;
/// empty where the event has none.
fn announced(line: &str, event: &str) -> Option<String> {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(line) {
        let address = json["address"].as_str().unwrap_or_default();
        return (json["message"] == event).then(|| address.to_owned());
    }
    let rest = line.strip_prefix(event)?;
    if rest.is_empty() { Some(String::new()) } else { rest.strip_prefix(" on ").map(str::to_owned) }
}

fn collect(stream: impl Read + Send + 'static, log: &Arc<Mutex<Vec<String>>>) {
    let log = log.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
}
