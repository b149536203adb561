//! The gateway under a service manager: what it tells it, what it gets from it, and how it starts anew.

use std::{
    net::TcpListener,
    os::{fd::AsRawFd, unix::net::UnixDatagram, unix::process::CommandExt},
    process::{Command, Stdio},
};

use tests::{
    DEADLINE, End, Engine, Setup, Upstream, eventually, eventually_some,
    message::{CHUNKED_HEAD, chat, response},
};

/// Kills a process that is not a child of the test's.
struct Killed(i32);

impl Drop for Killed {
    fn drop(&mut self) {
        // SAFETY: takes no memory. It is a process that the test's gateway has started, and runs as long as the
        // test does.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

/// A thread of another process that stands still until this is dropped.
struct Stopped(libc::pid_t);

impl Stopped {
    fn thread(process: u32, name: &str) -> Self {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let is_it = |path: &std::path::Path| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|it| it.trim() == name)
        };
        let path = threads.map(|thread| thread.unwrap().path()).find(|path| is_it(path)).unwrap();
        let thread: libc::pid_t = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let null = std::ptr::null_mut::<libc::c_void>();
        let mut status = 0;
        // SAFETY: the calls name a thread of a child that runs, and take no memory but the status.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, thread, null, null), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, thread, null, null), 0);
            assert_eq!(libc::waitpid(thread, &mut status, libc::__WALL), thread);
        }
        Self(thread)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as above; it is this thread that traces it.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, null, null) };
    }
}

/// What the service manager hears next.
fn heard(manager: &UnixDatagram) -> Vec<String> {
    let mut bytes = [0; 1024];
    let n = manager.recv(&mut bytes).expect("it is told something");
    String::from_utf8_lossy(&bytes[..n]).lines().map(str::to_owned).collect()
}

fn manager(directory: &tempfile::TempDir) -> (UnixDatagram, String) {
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    (socket, path.display().to_string())
}

/// As an upgrade does: by the signal, the program is started anew, with the same flags and environment.
#[test]
fn by_a_signal_it_starts_its_own_successor() {
    let upstream = Upstream::manual();
    let directory = tempfile::tempdir().unwrap();
    let (manager, notify) = manager(&directory);
    // The next one has to listen where this one does.
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut gateway = Setup::single(Engine::Userspace, &upstream)
        .environment("NOTIFY_SOCKET", &notify)
        .set("listen", vec![port()])
        .set("admin", port())
        .start();
    assert_eq!(heard(&manager), [format!("MAINPID={}", gateway.pid()), "READY=1".into()]);
    let mut client = gateway.connect();
    client.send(chat("x"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(CHUNKED_HEAD);
    client.head();
    gateway.signal(libc::SIGUSR2);
    let line = gateway.expect_line(&["SIGUSR2: started anew"]);
    let pid = line.split("pid=").nth(1).and_then(|it| it.split(' ').next()).unwrap().to_owned();
    let _killed = Killed(pid.parse().unwrap());
    assert_eq!(heard(&manager), [format!("MAINPID={pid}"), "READY=1".into()]);
    let mut other = gateway.connect();
    other.send(chat("y"));
    let mut second = upstream.accept();
    second.request();
    second.send(response(200, "new"));
    assert_eq!(other.response().payload(), b"new");
    instance.send("3\r\nabc\r\n0\r\n\r\n");
    client.expect("3\r\nabc\r\n0\r\n\r\n");
    drop(client);
    assert!(gateway.wait().success());
}

/// The file is wrong, or the program is gone: it serves on, and says so.
#[test]
fn a_successor_that_cannot_start_changes_nothing() {
    let upstream = Upstream::ok();
    let mut gateway = Setup::single(Engine::Userspace, &upstream).start();
    tests::gateway::replace(&gateway.config_file(), "nonsense = 1");
    gateway.signal(libc::SIGUSR2);
    gateway.expect_line(&["the new process has ended; this one serves on"]);
    assert_eq!(gateway.ask(chat("x")).status(), 200);
    assert!(gateway.running());
}

#[test]
fn the_service_manager_is_told_of_the_end() {
    let upstream = Upstream::ok();
    let directory = tempfile::tempdir().unwrap();
    let (manager, notify) = manager(&directory);
    let gateway =
        Setup::single(Engine::Userspace, &upstream).environment("NOTIFY_SOCKET", &notify).start();
    assert_eq!(heard(&manager).last().unwrap(), "READY=1");
    gateway.stop();
    assert_eq!(heard(&manager), ["STOPPING=1"]);
}

/// With a socket of its own, the service manager keeps connections waiting while no gateway is there.
#[test]
fn sockets_of_the_service_manager_are_used() {
    let upstream = Upstream::ok();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = listener.as_raw_fd();
    let waits = std::thread::spawn(move || tests::Peer::connect(address).ask(chat("early")));
    for _ in 0..2 {
        let mut command = Command::new("sh");
        let serve = format!(
            "LISTEN_PID=$$ LISTEN_FDS=1 exec {} serve --listen {address} --admin off --engine userspace \
             --threads 2 --backend {}",
            tests::process::binary("ATALHO_BIN", "atalho").display(),
            upstream.url()
        );
        command.args(["-c", &serve]).stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: both calls are async-signal-safe and take no memory.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The copy is not closed by exec.
                let passed = if socket == 3 {
                    libc::fcntl(3, libc::F_SETFD, 0)
                } else {
                    libc::dup2(socket, 3)
                };
                if passed < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
            });
        }
        let mut child = command.spawn().unwrap();
        assert_eq!(tests::Peer::connect(address).ask(chat("x")).status(), 200);
        // SAFETY: takes no memory; it is a child that has not been waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        let ended = eventually_some("it ends", || child.try_wait().unwrap());
        assert!(ended.success());
    }
    assert_eq!(waits.join().unwrap().status(), 200);
}

/// A balancer that looks every second sees that it is to send no more, before anything is refused.
#[test]
fn on_sigterm_it_is_a_lame_duck_for_a_while() {
    let upstream = Upstream::ok();
    let mut gateway =
        Setup::single(Engine::Userspace, &upstream).set("timeouts.lame_duck", "1500ms").start();
    let mut kept = gateway.connect();
    assert!(!kept.ask(chat("x")).closes());
    gateway.terminate();
    eventually("it says that it is not ready", || gateway.admin_get("/readyz").status() == 503);
    assert_eq!(gateway.status()["phase"], "lame_duck");
    for client in [&mut kept, &mut gateway.connect()] {
        let answer = client.ask(chat("y"));
        assert_eq!(answer.status(), 200);
        assert!(answer.closes(), "the client learns that it ends");
        assert_eq!(client.expect_end(), End::Closed);
    }
    assert!(gateway.wait().success());
}

/// Connections that wait to be accepted when the signal comes are answered.
#[test]
fn on_sigterm_what_waits_is_accepted() {
    let upstream = Upstream::ok();
    let mut gateway = Setup::single(Engine::Userspace, &upstream).start();
    // Its only worker sees the connections when it sees the signal, and not before.
    let worker = Stopped::thread(gateway.pid(), "worker-0");
    let mut clients: Vec<_> = (0..5).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.send(chat("x"));
    }
    gateway.terminate();
    eventually("it says that it is not ready", || gateway.admin_get("/readyz").status() == 503);
    drop(worker);
    for client in &mut clients {
        let answer = client.response();
        assert_eq!(answer.status(), 200);
        assert!(answer.closes(), "the client learns that it ends");
    }
    drop(clients);
    assert!(gateway.wait().success());
}
