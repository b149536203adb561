//! The control thread: signals, reloads, health, the admin pages.
use super::worker::{Phase, Shared};
use crate::fleet::Counters;
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::sync::watch;

pub(super) struct Setup {
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Counters,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) file: Option<PathBuf>,
    pub(super) admin: Option<std::net::TcpListener>,
    pub(super) addresses: Vec<SocketAddr>,
}

pub(super) fn run(_setup: Setup) -> anyhow::Result<()> {
    Ok(())
}
