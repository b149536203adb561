//! Child processes that never outlive us.

use std::{
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::command::Cmd;

/// How long a child may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running child; asked to end, and then made to, when dropped.
pub(crate) struct Running {
    pub(crate) name: String,
    /// For whoever watches: its end has been told.
    pub(crate) reported: bool,
    child: Child,
}

impl Running {
    /// Starts it in a process group of its own, so that Ctrl-C reaches us alone and children end in
    /// order. The kernel ends it if we are killed.
    ///
    /// Call it from the main thread: the kernel's rule is about the thread that started the child.
    pub(crate) fn start(name: impl Into<String>, command: Cmd) -> Result<Running> {
        Self::start_with(name, command, Stdio::inherit())
    }

    /// As [`Running::start`], and waits for the first line that it prints.
    pub(crate) fn start_and_read(
        name: impl Into<String>,
        command: Cmd,
        patience: Duration,
    ) -> Result<(Running, String)> {
        let mut running = Self::start_with(name, command, Stdio::piped())?;
        let output = running.child.stdout.take().context("a pipe")?;
        let line = first_line(output, patience)
            .with_context(|| format!("{} said nothing in time", running.name))?;
        Ok((running, line))
    }

    fn start_with(name: impl Into<String>, command: Cmd, stdout: Stdio) -> Result<Running> {
        let name = name.into();
        let parent = std::process::id();
        let mut command = command.into_command();
        command.stdin(Stdio::null()).stdout(stdout).process_group(0);
        // SAFETY: between fork and exec only async-signal-safe calls are made: sigemptyset,
        // sigprocmask, prctl and getppid.
        unsafe {
            command.pre_exec(move || {
                // Children inherit what [`Signals`] blocked.
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // We may have died before the line above.
                match libc::getppid().cast_unsigned() == parent {
                    true => Ok(()),
                    false => Err(io::ErrorKind::BrokenPipe.into()),
                }
            });
        }
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Running { name, reported: false, child })
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to end.
    fn terminate(&self) {
        // SAFETY: the child is ours and not yet waited for, so its id cannot name another process.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        self.terminate();
        let deadline = Instant::now() + PATIENCE;
        while self.ended().is_none() {
            if Instant::now() > deadline {
                eprintln!("{} does not end: killing it", self.name);
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn first_line(output: ChildStdout, patience: Duration) -> Result<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(output).lines();
        let _ = send.send(lines.next());
        // Whatever else it says is read, or it would block, and shown.
        lines.map_while(Result::ok).for_each(|line| println!("{line}"));
    });
    match receive.recv_timeout(patience) {
        Ok(Some(line)) => Ok(line?),
        Ok(None) => bail!("it ended"),
        Err(_) => bail!("not within {patience:?}"),
    }
}

/// Ctrl-C, SIGTERM and the end of children, taken one by one instead of at any moment.
pub(crate) struct Signals {
    set: libc::sigset_t,
}

/// What [`Signals::wait`] waited for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// We are asked to stop.
    Stop,
    /// A child ended.
    Child,
    /// Nothing happened in time.
    Nothing,
}

impl Signals {
    /// Call it before any thread is started: they inherit what is blocked.
    pub(crate) fn block() -> Result<Signals> {
        // SAFETY: a zeroed set is a valid place for sigemptyset to write to; the other calls get
        // valid pointers and signal numbers.
        let (set, failed) = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
                libc::sigaddset(&raw mut set, signal);
            }
            let failed =
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            (set, failed)
        };
        if failed != 0 {
            bail!("cannot block signals: {}", io::Error::from_raw_os_error(failed));
        }
        Ok(Signals { set })
    }

    pub(crate) fn wait(&self, at_most: Duration) -> Signal {
        let time = libc::timespec {
            tv_sec: at_most.as_secs().min(3600) as libc::time_t,
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // SAFETY: both pointers are valid for the call, and the information is not asked for.
        let signal = unsafe {
            libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const time)
        };
        match signal {
            libc::SIGCHLD => Signal::Child,
            signal if signal > 0 => Signal::Stop,
            _ => Signal::Nothing,
        }
    }
}
