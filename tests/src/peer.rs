//! One end of a TCP connection that does exactly what it is told.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use socket2::{Domain, SockRef, Socket, Type};

use crate::{
    chunked::{Scan, find},
    message::{Head, Message},
    wait::{DEADLINE, eventually},
};

/// How the other side ended its sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// FIN.
    Closed,
    /// RST.
    Reset,
}

/// A connection with what has been read from it and not been taken yet.
///
/// Whatever waits for bytes fails the test after [`DEADLINE`] (see [`Peer::set_patience`]).
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
    end: Option<End>,
    patience: Duration,
    pace: Pace,
}

/// How a peer reads.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Bytes per read, at most.
    pub size: usize,
    /// How many of the next reads are preceded by a pause of a millisecond.
    pub pauses: usize,
}

impl Pace {
    /// As fast as it goes.
    pub const FAST: Self = Self { size: 64 * 1024, pauses: 0 };
}

impl Peer {
    /// Takes a connected socket.
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a fresh socket");
        let mut peer =
            Self { stream, input: Vec::new(), end: None, patience: DEADLINE, pace: Pace::FAST };
        peer.set_patience(DEADLINE);
        peer
    }

    /// Connects.
    ///
    /// # Panics
    /// When nobody listens there.
    #[track_caller]
    pub fn connect(to: SocketAddr) -> Self {
        match TcpStream::connect_timeout(&to, DEADLINE) {
            Ok(stream) => Self::new(stream),
            Err(error) => panic!("connecting to {to}: {error}"),
        }
    }

    /// Connects with a receive buffer of `receive_buffer` bytes, so that little fits between a
    /// sender and a reader that has stopped.
    ///
    /// # Panics
    /// When nobody listens there.
    #[track_caller]
    pub fn connect_narrow(to: SocketAddr, receive_buffer: usize) -> Self {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).expect("a socket");
        // Before connecting: the window scale is agreed upon in the handshake.
        socket.set_recv_buffer_size(receive_buffer).expect("a fresh socket");
        socket.connect_timeout(&to.into(), DEADLINE).expect("connecting");
        Self::new(socket.into())
    }

    /// Connects from an address that may have been used a moment ago: a socket that was closed
    /// keeps it until its FIN has been acknowledged, which is waited for.
    ///
    /// # Panics
    /// When nobody listens there, or the address stays in use.
    #[track_caller]
    pub fn connect_from(from: SocketAddr, to: SocketAddr) -> Self {
        let start = Instant::now();
        loop {
            let socket =
                Socket::new(Domain::for_address(to), Type::STREAM, None).expect("a socket");
            socket.set_reuse_address(true).expect("a fresh socket");
            socket.bind(&from.into()).expect("an address of ours");
            match socket.connect_timeout(&to.into(), DEADLINE) {
                Ok(()) => return Self::new(socket.into()),
                Err(error)
                    if error.kind() == ErrorKind::AddrNotAvailable
                        && start.elapsed() < DEADLINE =>
                {
                    std::thread::yield_now();
                }
                Err(error) => panic!("connecting from {from} to {to}: {error}"),
            }
        }
    }

    /// Sets how long to wait for bytes, or for room to write.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
        self.stream.set_read_timeout(Some(patience)).expect("an open socket");
        self.stream.set_write_timeout(Some(patience)).expect("an open socket");
    }

    /// Sets how it reads from now on.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Our address.
    pub fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().expect("an open socket")
    }

    // === sending ===

    /// Sends all of it.
    ///
    /// # Panics
    /// When the other side has gone, or takes no more.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Err(error) = self.try_send(bytes.as_ref()) {
            panic!("sending {} bytes: {error}", bytes.as_ref().len());
        }
    }

    /// Sends all of it, if the other side lets us.
    ///
    /// # Errors
    /// As `write(2)`.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends it in packets of `size` bytes.
    ///
    /// # Panics
    /// As [`Peer::send`].
    #[track_caller]
    pub fn send_in_pieces(&mut self, bytes: impl AsRef<[u8]>, size: usize) {
        for piece in bytes.as_ref().chunks(size) {
            self.send(piece);
        }
    }

    /// Writes without waiting until the socket has taken nothing for `calm`; says how much it took
    /// in all. Stops at `limit`.
    ///
    /// # Panics
    /// When the other side has gone.
    #[track_caller]
    pub fn stuff(&mut self, source: &[u8], calm: Duration) -> usize {
        self.stream.set_nonblocking(true).expect("an open socket");
        let mut sent = 0;
        let mut last = Instant::now();
        while sent < source.len() && last.elapsed() < calm {
            match self.stream.write(&source[sent..source.len().min(sent + 256 * 1024)]) {
                Ok(n) => {
                    sent += n;
                    last = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("after {sent} bytes: {error}"),
            }
        }
        self.stream.set_nonblocking(false).expect("an open socket");
        sent
    }

    /// Waits until all but the last `rest` bytes of what was written have left this host. What has not is
    /// lost when the connection is reset.
    ///
    /// # Panics
    /// When they do not leave.
    #[track_caller]
    pub fn let_go(&self, rest: usize) {
        /// Bytes written and never sent: `SIOCOUTQNSD`.
        const UNSENT: libc::c_ulong = 0x894b;
        eventually("what was written is sent", || {
            let mut unsent: libc::c_int = 0;
            // SAFETY: the descriptor is open; the one number is written during the call.
            let rc = unsafe { libc::ioctl(self.stream.as_raw_fd(), UNSENT, &raw mut unsent) };
            assert_eq!(rc, 0, "SIOCOUTQNSD: {}", io::Error::last_os_error());
            unsent as usize <= rest
        });
    }

    /// Closes our sending side (FIN).
    pub fn finish(&self) {
        // Fails when the other side has reset the connection, which the caller will see.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Sends by another rule than the host's default from now on.
    ///
    /// # Panics
    /// When the system has none of that name.
    pub fn congestion_control(&self, name: &str) {
        SockRef::from(&self.stream).set_tcp_congestion(name.as_bytes()).expect("a rule");
    }

    /// Closes with a reset.
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("an open socket");
    }

    /// Closes in the plain way.
    pub fn close(self) {}

    /// Makes this host forget the connection without a word to the other side, as after a crash: what
    /// comes on it is answered with a reset. Only root can do that.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn vanish(self) {
        // A socket in repair mode says nothing when it is closed.
        self.set_tcp_option(libc::TCP_REPAIR, 1);
    }

    /// Acknowledges at once what has been read; the kernel would take its time.
    ///
    /// # Panics
    /// When the connection is gone.
    pub fn acknowledge(&self) {
        self.set_tcp_option(libc::TCP_QUICKACK, 1);
    }

    fn set_tcp_option(&self, option: libc::c_int, value: libc::c_int) {
        // SAFETY: the descriptor is open, and the value has the length that the call is told.
        let rc = unsafe {
            libc::setsockopt(
                self.stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
        assert_eq!(rc, 0, "TCP option {option}: {}", io::Error::last_os_error());
    }

    // === receiving ===

    /// Reads once more into the input.
    ///
    /// # Errors
    /// How the other side ended; that it did is remembered.
    ///
    /// # Panics
    /// When nothing comes for as long as our patience lasts.
    #[track_caller]
    pub fn fill(&mut self) -> Result<usize, End> {
        if let Some(end) = self.end {
            return Err(end);
        }
        if self.pace.pauses > 0 {
            self.pace.pauses -= 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        let old = self.input.len();
        self.input.resize(old + self.pace.size, 0);
        let result = loop {
            match self.stream.read(&mut self.input[old..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.input.truncate(old + *result.as_ref().unwrap_or(&0));
        let end = match result {
            Ok(0) => End::Closed,
            Ok(n) => return Ok(n),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ) =>
            {
                End::Reset
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                panic!(
                    "nothing came for {:?}; not taken yet: {} bytes {:?}",
                    self.patience,
                    self.input.len(),
                    String::from_utf8_lossy(&self.input[..self.input.len().min(400)])
                )
            }
            Err(error) => panic!("reading: {error}"),
        };
        self.end = Some(end);
        Err(end)
    }

    /// What has come and has not been taken.
    pub fn pending(&self) -> &[u8] {
        &self.input
    }

    #[track_caller]
    fn need(&mut self, what: &str) {
        if let Err(end) = self.fill() {
            panic!(
                "{end:?} while waiting for {what}; not taken yet: {:?}",
                String::from_utf8_lossy(&self.input[..self.input.len().min(400)])
            );
        }
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let rest = self.input.split_off(n);
        std::mem::replace(&mut self.input, rest)
    }

    /// Takes `n` bytes.
    ///
    /// # Panics
    /// When the other side ends before.
    #[track_caller]
    pub fn take_exact(&mut self, n: usize) -> Vec<u8> {
        while self.input.len() < n {
            self.need("more bytes");
        }
        self.take(n)
    }

    /// Takes exactly these bytes.
    ///
    /// # Panics
    /// When others come, or the other side ends before.
    #[track_caller]
    pub fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let got = self.take_exact(bytes.as_ref().len());
        crate::payload::assert_same("next bytes", &got, bytes.as_ref());
    }

    /// Takes a head.
    ///
    /// # Panics
    /// When the other side ends before its end.
    #[track_caller]
    pub fn head(&mut self) -> Head {
        match self.try_head() {
            Ok(head) => head,
            Err(end) => panic!(
                "{end:?} instead of a head; not taken yet: {:?}",
                String::from_utf8_lossy(&self.input[..self.input.len().min(400)])
            ),
        }
    }

    /// Takes a head, or says how the other side ended before the head was complete.
    ///
    /// # Errors
    /// How it ended; what came stays in the input.
    #[track_caller]
    pub fn try_head(&mut self) -> Result<Head, End> {
        let mut from = 0;
        loop {
            if let Some(at) = find(&self.input[from..], b"\r\n\r\n") {
                return Ok(Head::parse(&self.take(from + at + 4)));
            }
            from = self.input.len().saturating_sub(3);
            self.fill()?;
        }
    }

    /// Takes the body that belongs to a request's head.
    ///
    /// # Panics
    /// When the other side ends before its end.
    #[track_caller]
    pub fn request_body(&mut self, head: &Head) -> Vec<u8> {
        match self.try_request_body(head) {
            Ok(body) => body,
            Err(end) => panic!("{end:?} within a request body, after {} bytes", self.input.len()),
        }
    }

    /// Takes the body that belongs to a request's head, or says how the other side ended before.
    ///
    /// # Errors
    /// How it ended; what came stays in the input.
    #[track_caller]
    pub fn try_request_body(&mut self, head: &Head) -> Result<Vec<u8>, End> {
        if head.chunked() {
            self.try_chunked_body()
        } else {
            self.try_sized_body(head.content_length().unwrap_or(0))
        }
    }

    /// Takes the body that belongs to a response's head, as answer to `method`.
    ///
    /// # Errors
    /// How the other side ended within a body whose framing says that more was to come; what came
    /// stays in the input.
    #[track_caller]
    pub fn try_response_body(&mut self, head: &Head, method: &str) -> Result<Vec<u8>, End> {
        let status = head.status();
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            return Ok(Vec::new());
        }
        if head.chunked() {
            return self.try_chunked_body();
        }
        match head.content_length() {
            Some(length) => self.try_sized_body(length),
            None => loop {
                match self.fill() {
                    Ok(_) => {}
                    Err(End::Closed) => return Ok(std::mem::take(&mut self.input)),
                    Err(End::Reset) => return Err(End::Reset),
                }
            },
        }
    }

    #[track_caller]
    fn try_sized_body(&mut self, length: usize) -> Result<Vec<u8>, End> {
        while self.input.len() < length {
            self.fill()?;
        }
        Ok(self.take(length))
    }

    #[track_caller]
    fn try_chunked_body(&mut self) -> Result<Vec<u8>, End> {
        let mut scan = Scan::default();
        loop {
            match scan.end(&self.input) {
                Ok(Some(end)) => return Ok(self.take(end)),
                Ok(None) => self.fill()?,
                Err(error) => panic!("{error}"),
            };
        }
    }

    /// Takes a request.
    ///
    /// # Panics
    /// When the other side ends before its end.
    #[track_caller]
    pub fn request(&mut self) -> Message {
        let head = self.head();
        let body = self.request_body(&head);
        Message { head, body }
    }

    /// Takes a response to a GET or POST.
    ///
    /// # Panics
    /// When the other side ends before its end.
    #[track_caller]
    pub fn response(&mut self) -> Message {
        self.response_to("POST")
    }

    /// Takes a response to `method`.
    ///
    /// # Panics
    /// When the other side ends before its end.
    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> Message {
        let head = self.head();
        match self.try_response_body(&head, method) {
            Ok(body) => Message { head, body },
            Err(end) => panic!(
                "{end:?} within the body of {:?}, after {} bytes",
                head.first,
                self.input.len()
            ),
        }
    }

    /// Sends a request and takes its response.
    ///
    /// # Panics
    /// When anything goes wrong on the way.
    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Message {
        self.send(request);
        self.response()
    }

    /// Waits for the end of the connection; says how it came, and what came before it.
    #[track_caller]
    pub fn end(&mut self) -> (Vec<u8>, End) {
        loop {
            if let Err(end) = self.fill() {
                return (std::mem::take(&mut self.input), end);
            }
        }
    }

    /// Waits for the end of the connection, before which nothing more may come.
    ///
    /// # Panics
    /// When something comes.
    #[track_caller]
    pub fn expect_end(&mut self) -> End {
        let (rest, end) = self.end();
        assert!(rest.is_empty(), "before the end came {:?}", String::from_utf8_lossy(&rest));
        end
    }

    /// Reads what is there without waiting. Says whether anything came.
    pub fn poll(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("an open socket");
        let mut buf = vec![0; 256 * 1024];
        let result = self.stream.read(&mut buf);
        self.stream.set_nonblocking(false).expect("an open socket");
        match result {
            Ok(0) => {
                self.end.get_or_insert(End::Closed);
                false
            }
            Ok(n) => {
                self.input.extend_from_slice(&buf[..n]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(_) => {
                self.end.get_or_insert(End::Reset);
                false
            }
        }
    }

    /// How the other side ended, as far as it has been read.
    pub fn seen_end(&self) -> Option<End> {
        self.end
    }
}
