//! What the control thread does for a gateway that takes over.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::successor::{Ask, State};
use crate::{
    control::Control,
    fleet::Counters,
    gateway::reload::InForce,
    shared::{Phase, Shared},
};

/// Who is to be told once this gateway accepts no more.
pub(in crate::gateway) type Drained = oneshot::Sender<()>;

/// The control thread's side of a take-over.
pub(in crate::gateway) struct Asks {
    /// What is asked for.
    pub(in crate::gateway) asked: mpsc::UnboundedReceiver<Ask>,
    /// Takes the one that ends this gateway's accepting.
    pub(in crate::gateway) taken: oneshot::Sender<Drained>,
}

impl Asks {
    /// Answers until another gateway serves, or for ever. Nothing changes while one is about to.
    pub(in crate::gateway) async fn answer(
        mut self,
        in_force: &InForce<'_>,
        shared: &Shared,
        counters: &Counters,
        control: Option<Arc<Control>>,
    ) {
        let mut frozen = None;
        while let Some(ask) = self.asked.recv().await {
            match ask {
                Ask::Offer(reply) if *shared.phase.borrow() != Phase::Running => {
                    let _ = reply.send(Err("it is ending already: wait, or stop it".into()));
                }
                Ask::Offer(reply) => {
                    frozen = Some(in_force.freeze().await);
                    let mut slots = shared.fleet.load().slots();
                    slots.extend(counters.kept());
                    let _ = reply.send(Ok(State { slots, has_store: control.is_some() }));
                }
                Ask::ReleaseStore(reply) => {
                    if let Some(control) = &control {
                        control.release_store();
                    }
                    let _ = reply.send(());
                }
                Ask::GoOn => {
                    drop(frozen.take());
                    if let Some(control) = &control {
                        control.regain_store();
                    }
                }
                Ask::Drain(drained) => {
                    let _ = self.taken.send(drained);
                    // Nothing changes any more: what is frozen stays so.
                    return std::future::pending().await;
                }
            }
        }
    }
}
