//! A scripted instance.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use socket2::{Domain, Socket, Type};

use crate::{
    gate::Gate,
    message::{Head, Message},
    network::{Network, instance_address},
    peer::Peer,
    wait::{DEADLINE, within},
};

/// What an instance does with a connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Reads the next request.
    Keep,
    /// Closes it.
    Close,
    /// Resets it.
    Reset,
}

/// An instance under the test's control. There are two ways to play it:
///
/// - by hand ([`Upstream::manual`]): the test takes each connection with [`Upstream::accept`] and
///   speaks on it itself, so that everything happens in the order of the test's lines;
/// - by a function ([`Upstream::serve`]): a thread for each connection calls it for each request.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    listener: Option<TcpListener>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    network: Option<Arc<Network>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    accepted: AtomicUsize,
    next: AtomicUsize,
    open: Mutex<HashMap<usize, TcpStream>>,
    requests: Mutex<Vec<Message>>,
    failures: Mutex<Vec<String>>,
}

impl Upstream {
    /// An instance played by hand.
    pub fn manual() -> Self {
        Self::manual_at(instance_address())
    }

    /// An instance played by hand, at an address of the test's choice.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn manual_at(address: SocketAddr) -> Self {
        let network = Network::current();
        let listener = on_instance(&network, || listen(address));
        listener.set_nonblocking(true).expect("a fresh socket");
        Self {
            address: listener.local_addr().expect("a bound socket"),
            listener: Some(listener),
            shared: Arc::default(),
            thread: None,
            network,
        }
    }

    /// An instance that calls `exchange` for each request head; the body is still to be read from
    /// the peer. A panic in it fails the test when the instance is dropped.
    pub fn serve(exchange: impl Fn(&mut Peer, &Head) -> Next + Send + Sync + 'static) -> Self {
        Self::serve_at(instance_address(), exchange)
    }

    /// As [`Upstream::serve`], at an address of the test's choice.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn serve_at(
        address: SocketAddr,
        exchange: impl Fn(&mut Peer, &Head) -> Next + Send + Sync + 'static,
    ) -> Self {
        let network = Network::current();
        let listener = on_instance(&network, || listen(address));
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::<Shared>::default();
        let exchange = Arc::new(exchange);
        let thread = std::thread::spawn({
            let shared = shared.clone();
            move || accept_all(&listener, &shared, &exchange)
        });
        Self { address, listener: None, shared, thread: Some(thread), network }
    }

    /// An instance that records each request, and then answers with what `answer` makes of it.
    pub fn answering(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::answering_at(instance_address(), answer)
    }

    /// As [`Upstream::answering`], at an address of the test's choice.
    pub fn answering_at(
        address: SocketAddr,
        answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let slot = Arc::new(Mutex::new(None::<Arc<Shared>>));
        let upstream = Self::serve_at(address, {
            let slot = slot.clone();
            move |peer, head| {
                let Ok(body) = peer.try_request_body(head) else { return Next::Close };
                let message = Message { head: head.clone(), body };
                if let Some(shared) = lock(&slot).as_ref() {
                    lock(&shared.requests).push(message.clone());
                }
                let reply = answer(&message);
                match peer.try_send(&reply) {
                    Ok(()) => Next::Keep,
                    Err(_) => Next::Close,
                }
            }
        });
        *lock(&slot) = Some(upstream.shared.clone());
        upstream
    }

    /// Records each request, and answers with `ok` once the gate is open.
    pub fn held(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::answering(move |_| {
            gate.wait();
            crate::message::response(200, "ok")
        })
    }

    /// Answers everything with `ok`.
    pub fn ok() -> Self {
        Self::answering(|_| crate::message::response(200, "ok"))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, as in a configuration.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes the next connection.
    ///
    /// # Panics
    /// When none comes within [`DEADLINE`], or the instance is not played by hand.
    #[track_caller]
    pub fn accept(&self) -> Peer {
        match self.try_accept(DEADLINE) {
            Some(peer) => peer,
            None => panic!("no connection came to {} within {DEADLINE:?}", self.address),
        }
    }

    /// Takes the next connection, if one comes within `limit`.
    ///
    /// # Panics
    /// When the instance is not played by hand.
    pub fn try_accept(&self, limit: Duration) -> Option<Peer> {
        let listener = self.listener.as_ref().expect("an instance played by hand");
        within(limit, || match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("a fresh socket");
                self.shared.accepted.fetch_add(1, Ordering::SeqCst);
                Some(Peer::new(stream))
            }
            Err(_) => None,
        })
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections open now (of an instance played by a function).
    pub fn open(&self) -> usize {
        lock(&self.shared.open).len()
    }

    /// The other ends of the connections open now (of an instance played by a function).
    pub fn peers(&self) -> Vec<Option<SocketAddr>> {
        lock(&self.shared.open).values().map(|stream| stream.peer_addr().ok()).collect()
    }

    /// The requests recorded so far (of an instance made by [`Upstream::answering`]).
    pub fn requests(&self) -> Vec<Message> {
        lock(&self.shared.requests).clone()
    }

    /// How many requests were recorded so far.
    pub fn count(&self) -> usize {
        lock(&self.shared.requests).len()
    }

    /// What went wrong in the exchanges so far.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.shared.failures).clone()
    }

    /// Ends as a killed process does: nobody listens any more, every connection is closed.
    pub fn die(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for stream in lock(&self.shared.open).values() {
            // Fails for a connection that is already gone.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        self.close_port();
    }

    /// Refuses connections from now on, as a server does that is stopping. Those that are open stay.
    pub fn close_port(&mut self) {
        self.listener = None;
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Wakes the thread from accept.
            let _ = on_instance(&self.network, || {
                TcpStream::connect_timeout(&self.address, Duration::from_secs(1))
            });
            let _ = thread.join();
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.die();
        let failures = self.failures();
        if !failures.is_empty() && !std::thread::panicking() {
            panic!("the instance at {} failed: {}", self.address, failures.join("; "));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs `work` on the instance's host.
fn on_instance<T: Send>(network: &Option<Arc<Network>>, work: impl FnOnce() -> T + Send) -> T {
    match network {
        Some(network) => network.instance.run(work),
        None => work(),
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    let open = || -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        Ok(socket.into())
    };
    open().unwrap_or_else(|error| panic!("listening on {address}: {error}"))
}

fn accept_all<F>(listener: &TcpListener, shared: &Arc<Shared>, exchange: &Arc<F>)
where
    F: Fn(&mut Peer, &Head) -> Next + Send + Sync + 'static,
{
    loop {
        let Ok((stream, _)) = listener.accept() else { return };
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let id = shared.next.fetch_add(1, Ordering::SeqCst);
        let Ok(clone) = stream.try_clone() else { continue };
        lock(&shared.open).insert(id, clone);
        let (shared, exchange) = (shared.clone(), exchange.clone());
        let work = move || {
            let result = catch_unwind(AssertUnwindSafe(|| connection(stream, &*exchange)));
            let clone = lock(&shared.open).remove(&id);
            match result {
                Ok((peer, Next::Reset)) => {
                    // The last descriptor decides how the connection ends.
                    drop(clone);
                    peer.reset();
                }
                Ok(_) => {}
                Err(panic) => {
                    let text = panic
                        .downcast_ref::<String>()
                        .cloned()
                        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                        .unwrap_or_default();
                    lock(&shared.failures).push(text);
                }
            }
        };
        std::thread::Builder::new()
            .stack_size(256 * 1024)
            .spawn(work)
            .expect("a thread for a connection");
    }
}

fn connection(stream: TcpStream, exchange: impl Fn(&mut Peer, &Head) -> Next) -> (Peer, Next) {
    let mut peer = Peer::new(stream);
    // Between requests a pooled connection may rest for long.
    peer.set_patience(Duration::from_secs(300));
    loop {
        let Ok(head) = peer.try_head() else { return (peer, Next::Close) };
        match exchange(&mut peer, &head) {
            Next::Keep => {}
            other => return (peer, other),
        }
    }
}
