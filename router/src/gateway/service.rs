//! The gateway as a service: what the service manager is told, and how the process starts its own successor.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use sd_notify::NotifyState;
use tokio::signal::unix::Signal;

/// The flag of a process that takes over.
const TAKE_OVER: &str = "--take-over";

/// The file of this program at its start. A new version comes under the same name, and the kernel's link to the
/// running one then leads to a file that is gone.
static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Notes where the program is, as long as it is sure to be there.
pub(super) fn started() {
    PROGRAM.get_or_init(|| std::env::current_exe().ok());
}

/// Tells the service manager, if there is one, that this process serves, and is the one that counts.
pub(super) fn ready() {
    tell(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
}

/// Tells it that this process ends.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager cannot be told how far this is");
    }
}

/// At each signal, starts the program anew with the same arguments, to take over from this process.
pub(super) async fn replace(mut signal: Signal) {
    while signal.recv().await.is_some() {
        let Some(program) = PROGRAM.get().and_then(Option::as_ref) else {
            tracing::error!("SIGUSR2: it is not known where this program is");
            continue;
        };
        let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        if arguments.iter().all(|argument| argument != TAKE_OVER) {
            arguments.push(TAKE_OVER.into());
        }
        let mut command = Command::new(program);
        // The service manager's sockets are this process's, and are handed over.
        command
            .args(arguments)
            .stdin(Stdio::null())
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID");
        match command.spawn() {
            Ok(mut child) => {
                tracing::info!(pid = child.id(), program = %program.display(), "SIGUSR2: started anew");
                // Somebody has to take note of its end, as long as this process is its parent.
                std::thread::spawn(move || match child.wait() {
                    Ok(status) if status.success() => {}
                    Ok(status) => {
                        tracing::error!(%status, "the new process has ended; this one serves on")
                    }
                    Err(error) => tracing::error!(%error, "the new process cannot be waited for"),
                });
            }
            Err(error) => {
                tracing::error!(%error, program = %program.display(), "SIGUSR2: cannot be started anew");
            }
        }
    }
}
