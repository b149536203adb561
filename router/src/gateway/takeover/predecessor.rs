//! The new gateway's side.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::{
    channel::{Channel, ChannelError, name},
    counted::{Counted, Shared},
    message::{Listener, Message, Offer, PROTOCOL, Role},
};
use crate::{fleet::Counters, kernel::counters::CounterMemory};

/// For each answer of the old gateway. It is busy for a moment at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// The gateway that serves until this one does.
#[derive(Debug)]
pub(in crate::gateway) struct Predecessor {
    channel: Channel,
    listeners: Vec<(Listener, TcpListener)>,
    counters: Vec<Shared>,
    slots: Vec<(String, u32)>,
    has_store: bool,
}

/// A connection to the predecessor, which is told of gateways that are newer still.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct Older(Arc<Mutex<Option<Channel>>>);

impl Predecessor {
    /// Asks the gateway that serves one of these addresses for what it has; `None` if there is none.
    ///
    /// # Errors
    /// When it refuses, or does not answer. It goes on serving.
    pub(in crate::gateway) fn find(addresses: &[SocketAddr]) -> anyhow::Result<Option<Self>> {
        for address in addresses {
            let found = Channel::connect(&name(*address)?)
                .with_context(|| format!("cannot reach the gateway that serves {address}"))?;
            if let Some(channel) = found {
                let pid = channel.peer();
                tracing::info!(pid, %address, "taking over from the gateway that serves it");
                return Self::ask(channel).map(Some).with_context(|| {
                    format!("cannot take over from the gateway that serves {address}")
                });
            }
        }
        Ok(None)
    }

    fn ask(mut channel: Channel) -> anyhow::Result<Self> {
        channel.patience(Some(PATIENCE))?;
        let hello = Message::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
        };
        channel.send(&hello, &[])?;
        let (message, descriptors) = channel.receive()?;
        let offer = match message {
            Message::Offer(offer) => offer,
            Message::Refused { why } => bail!("{why}"),
            other => return Err(unexpected(&other).into()),
        };
        let Offer { listeners, counters, slots, others, has_store } = offer;
        let mut descriptors = descriptors.into_iter();
        let lost = || ChannelError::Unknown("an offer with fewer descriptors than it names".into());
        let listeners = listeners
            .into_iter()
            .map(|listener| {
                let descriptor = descriptors.next().ok_or_else(lost)?;
                let socket = TcpListener::from(descriptor);
                let address = socket.local_addr()?;
                if address != listener.address {
                    let what = format!("a listener on {address} as {}", listener.address);
                    return Err(ChannelError::Unknown(what));
                }
                Ok((listener, socket))
            })
            .collect::<Result<_, ChannelError>>()?;
        let tables = std::iter::once(counters).chain(others);
        let counters = tables
            .map(|table| Shared::received(table, &mut descriptors).ok_or_else(lost))
            .collect::<Result<_, _>>()?;
        Ok(Self { channel, listeners, counters, slots, has_store })
    }

    /// Takes its listeners for an address; none if it has none there.
    pub(in crate::gateway) fn listeners(
        &mut self,
        role: Role,
        address: SocketAddr,
    ) -> Vec<TcpListener> {
        let wanted = Listener { role, address };
        let (taken, left) =
            std::mem::take(&mut self.listeners).into_iter().partition(|(it, _)| *it == wanted);
        self.listeners = left;
        let taken: Vec<(Listener, TcpListener)> = taken;
        taken.into_iter().map(|(_, socket)| socket).collect()
    }

    /// Counts its requests, and those of gateways that are older still, as long as they live. To be called
    /// before the first fleet takes its counters, which get the slots that the instances have there.
    pub(in crate::gateway) fn share_counters(
        &mut self,
        counters: &Counters,
        own: &CounterMemory,
    ) -> anyhow::Result<Counted> {
        let counted = Counted::new(counters);
        for shared in std::mem::take(&mut self.counters) {
            if let Err(error) = counted.add(shared) {
                tracing::warn!(%error, "thresholds hold for each gateway by itself until the old one ends");
            }
        }
        if !counted.others().is_empty() {
            counters.keep_for(std::mem::take(&mut self.slots));
        }
        let own = Shared::own(own).context("cannot share in-flight counters")?;
        self.channel.send(&Message::Counters(own.table), &own.descriptors())?;
        self.expect(&Message::Noted)?;
        Ok(counted)
    }

    /// Has it close the control API's state, if it has it open. It opens it again if this process ends before
    /// it [serves](Self::serving).
    pub(in crate::gateway) fn release_store(&mut self) -> anyhow::Result<()> {
        if self.has_store {
            self.channel.send(&Message::ReleaseStore, &[])?;
            self.expect(&Message::StoreReleased)?;
        }
        Ok(())
    }

    /// Has it accept no more connections, once this process does.
    pub(in crate::gateway) fn serving(mut self) -> anyhow::Result<Older> {
        self.channel.send(&Message::Serving, &[])?;
        self.expect(&Message::Draining)?;
        if self.expect(&Message::Left).is_err() {
            // It has ended, and left everything.
            return Ok(Older::default());
        }
        tracing::info!("the old gateway ends its exchanges, and accepts no more");
        self.channel.patience(Some(PATIENCE))?;
        Ok(Older(Arc::new(Mutex::new(Some(self.channel)))))
    }

    fn expect(&mut self, wanted: &Message) -> anyhow::Result<()> {
        match self.channel.receive()?.0 {
            message if message == *wanted => Ok(()),
            Message::Refused { why } => bail!("{why}"),
            other => Err(unexpected(&other).into()),
        }
    }
}

impl Older {
    /// Tells it of the counters of a newer gateway.
    pub(super) fn tell(&self, shared: &Shared) {
        let mut channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let message = Message::Counters(shared.table);
        let told = channel.as_mut().map(|it| it.send(&message, &shared.descriptors()));
        if let Some(Err(_)) = told {
            // It has ended.
            *channel = None;
        }
    }
}

pub(super) fn unexpected(message: &Message) -> ChannelError {
    ChannelError::Unknown(format!("{message:?} at this point"))
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> Self {
        Self::other(error)
    }
}
