//! The old gateway's side: waits for a new one, and hands over to it.

use std::{
    net::{SocketAddr, TcpListener},
    os::{
        fd::AsFd as _,
        unix::net::{UnixListener, UnixStream},
    },
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    channel::{self, Channel, ChannelError},
    counted::{Counted, Shared},
    message::{Listener, Message, Offer, PROTOCOL, Role},
    predecessor::{Older, unexpected},
};

/// For each message of a new gateway: it loads its kernel programs and proves them meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the name of a predecessor may still be taken, and between two looks.
const NAME_TAKEN: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What only the control thread can do.
pub(in crate::gateway) enum Ask {
    /// Change nothing any more, and say what there is.
    Offer(oneshot::Sender<Result<State, String>>),
    /// Close the control API's state.
    ReleaseStore(oneshot::Sender<()>),
    /// Go on as before: there will be no other gateway.
    GoOn,
    /// Accept no more connections.
    Drain(oneshot::Sender<()>),
}

/// What the control thread knows of what is offered.
pub(in crate::gateway) struct State {
    /// The slots of its instances.
    pub(in crate::gateway) slots: Vec<(String, u32)>,
    /// Whether the control API's state is open.
    pub(in crate::gateway) has_store: bool,
}

/// The listening sockets of this process, for a new one. Nothing else may keep them open once this process
/// accepts no more.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct Sockets(Arc<Mutex<Vec<(Listener, TcpListener)>>>);

impl Sockets {
    /// Adds a socket, which stays open until [`close`](Self::close).
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub(in crate::gateway) fn add(&self, role: Role, socket: &TcpListener) -> std::io::Result<()> {
        let listener = Listener { role, address: socket.local_addr()? };
        self.lock().push((listener, socket.try_clone()?));
        Ok(())
    }

    pub(in crate::gateway) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Listener, TcpListener)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a new gateway can be given.
#[derive(Clone)]
pub(in crate::gateway) struct Estate {
    sockets: Sockets,
    own: Shared,
    counted: Counted,
    older: Older,
    asks: mpsc::UnboundedSender<Ask>,
    /// Held by the one that is taking over; whether one has.
    turn: Arc<Mutex<bool>>,
    /// Where it can be found.
    names: Arc<Mutex<Vec<UnixListener>>>,
}

impl Estate {
    pub(in crate::gateway) fn new(
        sockets: Sockets,
        memory: &crate::kernel::counters::CounterMemory,
        counted: Counted,
        older: Older,
        asks: mpsc::UnboundedSender<Ask>,
    ) -> std::io::Result<Self> {
        let own = Shared::own(memory)?;
        let (turn, names) = Default::default();
        Ok(Self { sockets, own, counted, older, asks, turn, names })
    }

    /// Can be found by these addresses from now on.
    pub(in crate::gateway) fn announce(&self, addresses: &[SocketAddr]) {
        for &address in addresses {
            let this = self.clone();
            let listens = thread::Builder::new().name("take-over".into()).spawn(move || {
                if let Err(error) = this.listen(address) {
                    tracing::warn!(%address, %error, "no other gateway can take over from this one");
                }
            });
            if let Err(error) = listens {
                tracing::warn!(%address, %error, "no other gateway can take over from this one");
            }
        }
    }

    /// Cannot be found any more, and keeps no listening socket open.
    pub(in crate::gateway) fn close(&self) {
        for name in self.names.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Ends the wait of the thread that accepts there, which closes it.
            let _ = rustix::net::shutdown(&name, rustix::net::Shutdown::Both);
        }
        self.sockets.close();
    }

    fn listen(self, address: SocketAddr) -> std::io::Result<()> {
        let name = channel::name(address)?;
        let since = Instant::now();
        let listener = loop {
            match channel::listen(&name) {
                // The predecessor's threads have been told to end.
                Err(error)
                    if error.kind() == std::io::ErrorKind::AddrInUse
                        && since.elapsed() < NAME_TAKEN =>
                {
                    thread::sleep(LOOK_INTERVAL);
                }
                other => break other?,
            }
        };
        let kept = listener.try_clone()?;
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        while let Ok((stream, _)) = listener.accept() {
            let this = self.clone();
            thread::Builder::new().name("take-over".into()).spawn(move || this.serve(stream))?;
        }
        Ok(())
    }

    /// Serves a new gateway.
    fn serve(&self, stream: UnixStream) {
        let mut channel = match Channel::of(stream) {
            Ok(channel) => channel,
            Err(error) => {
                tracing::warn!(%error, "somebody else asked to take over");
                return;
            }
        };
        let pid = channel.peer();
        // Before anything is said: a connection that is closed with unread bytes loses what was sent on it.
        let heard = channel.patience(Some(PATIENCE)).map_err(ChannelError::from);
        let heard = heard.and_then(|()| greeting(&mut channel));
        if let Err(error) = heard {
            tracing::warn!(pid, %error, "a take-over has failed; this gateway goes on serving");
            let _ = channel.send(&Message::Refused { why: error.to_string() }, &[]);
            return;
        }
        let refused = match self.turn.try_lock() {
            Err(_) => "another gateway is taking over from it at this moment",
            Ok(taken) if *taken => "another gateway has taken over from it",
            Ok(mut taken) => match self.lead(&mut channel) {
                Ok(()) => {
                    *taken = true;
                    drop(taken);
                    tracing::info!(pid, "another gateway has taken over");
                    return self.follow(channel);
                }
                Err(error) => {
                    let _ = self.asks.send(Ask::GoOn);
                    tracing::warn!(pid, %error, "a take-over has failed; this gateway goes on serving");
                    &error.to_string()
                }
            },
        };
        let _ = channel.send(&Message::Refused { why: refused.into() }, &[]);
    }

    fn lead(&self, channel: &mut Channel) -> Result<(), ChannelError> {
        let (reply, state) = oneshot::channel();
        let _ = self.asks.send(Ask::Offer(reply));
        let state = state.blocking_recv().map_err(|_| ending())?;
        self.offer(channel, state.map_err(ChannelError::Unknown)?)?;
        loop {
            let (message, descriptors) = channel.receive()?;
            match message {
                Message::ReleaseStore => {
                    let (reply, released) = oneshot::channel();
                    let _ = self.asks.send(Ask::ReleaseStore(reply));
                    released.blocking_recv().map_err(|_| ending())?;
                    channel.send(&Message::StoreReleased, &[])?;
                }
                Message::Counters(table) => {
                    self.count(table, descriptors)?;
                    channel.send(&Message::Noted, &[])?;
                }
                Message::Serving => {
                    // As long as it hears this, it is there to accept connections.
                    channel.send(&Message::Draining, &[])?;
                    let (reply, draining) = oneshot::channel();
                    let _ = self.asks.send(Ask::Drain(reply));
                    let _ = draining.blocking_recv();
                    // It serves, whether it hears this or not.
                    let _ = channel.send(&Message::Left, &[]);
                    return Ok(());
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    fn offer(&self, channel: &mut Channel, state: State) -> Result<(), ChannelError> {
        let sockets = self.sockets.lock();
        let others = self.counted.others();
        let mut descriptors: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
        descriptors.extend(self.own.descriptors());
        descriptors.extend(others.iter().flat_map(Shared::descriptors));
        let offer = Offer {
            listeners: sockets.iter().map(|(listener, _)| *listener).collect(),
            counters: self.own.table,
            slots: state.slots,
            others: others.iter().map(|it| it.table).collect(),
            has_store: state.has_store,
        };
        channel.send(&Message::Offer(offer), &descriptors)
    }

    fn count(
        &self,
        table: super::message::Table,
        descriptors: Vec<std::os::fd::OwnedFd>,
    ) -> Result<(), ChannelError> {
        let shared = Shared::received(table, &mut descriptors.into_iter());
        let shared =
            shared.ok_or_else(|| ChannelError::Unknown("counters without memory".into()))?;
        self.older.tell(&shared);
        if let Err(error) = self.counted.add(shared) {
            tracing::warn!(%error, "thresholds hold for each gateway by itself until this one ends");
        }
        Ok(())
    }

    /// Hears of gateways that are newer still, until this one ends.
    fn follow(&self, mut channel: Channel) {
        let _ = channel.patience(None);
        while let Ok((Message::Counters(table), descriptors)) = channel.receive() {
            if self.count(table, descriptors).is_err() {
                return;
            }
        }
    }
}

fn greeting(channel: &mut Channel) -> Result<(), ChannelError> {
    match channel.receive()?.0 {
        Message::Hello { protocol: PROTOCOL, .. } => Ok(()),
        Message::Hello { protocol, version, .. } => Err(ChannelError::Unknown(format!(
            "version {version} takes over in another way ({protocol}) than this one ({PROTOCOL}): stop this \
             gateway and start that one"
        ))),
        other => Err(unexpected(&other)),
    }
}

fn ending() -> ChannelError {
    ChannelError::Unknown("a request to take over while it ends".into())
}
