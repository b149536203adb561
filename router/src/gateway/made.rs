//! Endpoints that are made while the gateway runs: the control API at work beside the file.

use std::{net::TcpListener, sync::Arc};

use anyhow::Context as _;
use tokio::sync::watch;

use super::{
    listeners,
    reload::InForce,
    takeover::{Predecessor, Role},
};
use crate::{
    config::{Config, EndpointConfig},
    control::{Control, Identity, reconcile, reconcile::Serving, server},
};

/// The control plane and where it is asked.
pub(super) struct Made {
    control: Arc<Control>,
    /// Its own address, if it has one.
    listener: Option<TcpListener>,
}

impl Made {
    /// Opens the state and the address, if the configuration has them.
    ///
    /// # Errors
    /// When the state cannot be read, or the address not be bound.
    pub(super) fn open(
        config: &Config,
        mut predecessor: Option<&mut Predecessor>,
    ) -> anyhow::Result<Option<Self>> {
        let address = config.control.listen;
        if address.is_none() && !config.control.on_client_listener {
            return Ok(None);
        }
        if let Some(predecessor) = &mut predecessor {
            predecessor.release_store()?;
        }
        let identity = Identity {
            region: config.control.region.clone(),
            account: config.control.account.clone(),
        };
        let control = Control::open(&config.control.store, identity)
            .context("the control API has no state (`control.store`)")?;
        let listener = address.map(|at| listeners::single(at, Role::Control, predecessor));
        let listener = listener.transpose()?;
        if config.control.on_client_listener {
            tracing::warn!(
                "every client can make and delete endpoints: `control.on_client_listener` is on"
            );
        }
        Ok(Some(Self { control: Arc::new(control), listener }))
    }

    /// The endpoints that served when the state was last written.
    pub(super) fn endpoints(&self, file: &Config) -> Vec<EndpointConfig> {
        reconcile::endpoints(&self.control.resources(), &file.host_pools)
    }

    /// What it keeps its state by.
    pub(super) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub(super) fn listener(&self) -> Option<&TcpListener> {
        self.listener.as_ref()
    }

    /// Answers calls, and has their endpoints serve. `fleets` is told of each new fleet; `changed` tells
    /// of a new file.
    pub(super) async fn follow(
        self,
        in_force: &InForce<'_>,
        fleets: &watch::Sender<()>,
        changed: watch::Receiver<()>,
    ) {
        let Self { control, listener } = self;
        let served = async {
            let Some(listener) = listener else { return };
            if let Err(error) = server::serve(listener, Arc::clone(&control)).await {
                tracing::error!(%error, "the control API is gone; requests go on");
            }
        };
        let fleet = CurrentFleet { in_force, fleets };
        tokio::join!(served, reconcile::run(Arc::clone(&control), fleet, changed));
    }
}

/// The fleet, as the reconciler changes it.
struct CurrentFleet<'a> {
    in_force: &'a InForce<'a>,
    fleets: &'a watch::Sender<()>,
}

impl Serving for CurrentFleet<'_> {
    async fn file(&self) -> Arc<Config> {
        self.in_force.file().await
    }

    fn trials(&self, endpoint: &str) -> (u64, u64) {
        self.in_force.trials(endpoint)
    }

    fn loads(&self, endpoint: &str, adapter: &str) -> (usize, Option<String>) {
        self.in_force.loads(endpoint, adapter)
    }

    async fn serve(&self, endpoints: Vec<EndpointConfig>) -> anyhow::Result<()> {
        if self.in_force.take_over_endpoints(endpoints).await? {
            self.fleets.send_replace(());
        }
        Ok(())
    }
}
