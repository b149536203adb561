//! How a gateway ends: on a signal, or because another one has taken over.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
};

use super::takeover::Drained;
use crate::shared::Phase;

/// How long connections that clients keep stay open once another process accepts: the next answer on each says
/// that it ends, so that no request meets a close.
const KEPT: Duration = Duration::from_secs(10);

/// Why it ends.
pub(super) enum Why {
    /// By a signal of this name.
    Signal(&'static str),
    /// Another process serves its addresses.
    TakenOver(Drained),
}

/// The end of a gateway, step by step.
pub(super) struct Ending {
    phase: watch::Sender<Phase>,
    /// Each worker holds a sender: says that one ended, and ends itself with the last one.
    ended: mpsc::UnboundedReceiver<()>,
    terminate: Signal,
    interrupt: Signal,
}

impl Ending {
    /// # Errors
    /// When a signal cannot be handled.
    pub(super) fn new(
        phase: watch::Sender<Phase>,
        ended: mpsc::UnboundedReceiver<()>,
    ) -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        Ok(Self { phase, ended, terminate, interrupt })
    }

    /// Waits for a reason to end.
    ///
    /// # Errors
    /// When a worker thread ended by itself.
    pub(super) async fn begins(
        &mut self,
        mut taken: oneshot::Receiver<Drained>,
    ) -> anyhow::Result<Why> {
        tokio::select! {
            name = stop_signal(&mut self.terminate, &mut self.interrupt) => Ok(Why::Signal(name)),
            Ok(drained) = &mut taken => Ok(Why::TakenOver(drained)),
            _ = self.ended.recv() => bail!("a worker thread ended by itself; the log says why"),
        }
    }

    /// Still accepts connections for as long as that, after SIGTERM: who sent Ctrl-C sees it end.
    pub(super) async fn lame_duck(&mut self, signal: &str, limit: Duration) {
        if signal == TERMINATE && !limit.is_zero() {
            tracing::info!(signal, ?limit, "not ready any more; connections are still accepted");
            self.phase.send_replace(Phase::LameDuck);
            self.sleep(limit).await;
        }
        tracing::info!(signal, "draining: no new connections, open exchanges go on");
    }

    /// Accepts no more, and lets clients give up the connections that they keep.
    pub(super) async fn hand_over(&mut self, drained: Drained) {
        self.phase.send_replace(Phase::HandedOver);
        // The other process need not wait for more.
        let _ = drained.send(());
        self.sleep(KEPT).await;
    }

    /// Lets open exchanges end, until a signal comes: nobody waits for this process.
    pub(super) async fn wait(&mut self) {
        self.phase.send_replace(Phase::Draining);
        tokio::select! {
            () = all_ended(&mut self.ended) => {}
            signal = stop_signal(&mut self.terminate, &mut self.interrupt) => {
                tracing::info!(signal, "open exchanges go on for a while");
            }
        }
    }

    /// Lets open exchanges end, for as long as `limit`.
    pub(super) async fn drain(&mut self, limit: Duration) {
        self.phase.send_replace(Phase::Draining);
        tokio::select! {
            () = all_ended(&mut self.ended) => tracing::info!("all exchanges have ended"),
            () = tokio::time::sleep(limit) => {
                tracing::warn!(?limit, "exchanges are still open after `timeouts.drain`: cutting them");
            }
            name = stop_signal(&mut self.terminate, &mut self.interrupt) => {
                tracing::warn!(signal = name, "second signal: cutting open exchanges");
            }
        }
        self.phase.send_replace(Phase::Stopped);
    }

    /// Until then, or a signal, or the end of all that is open.
    async fn sleep(&mut self, limit: Duration) {
        tokio::select! {
            () = tokio::time::sleep(limit) => {}
            _ = stop_signal(&mut self.terminate, &mut self.interrupt) => {}
            () = all_ended(&mut self.ended) => {}
        }
    }
}

const TERMINATE: &str = "SIGTERM";

async fn stop_signal(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => TERMINATE,
        _ = interrupt.recv() => "SIGINT",
    }
}

/// Each worker holds a sender: none is left once all have ended.
async fn all_ended(ended: &mut mpsc::UnboundedReceiver<()>) {
    while ended.recv().await.is_some() {}
}
