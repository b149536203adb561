//! A connection between two gateways, which carries messages and descriptors.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream},
    },
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};

use super::message::Message;

/// Descriptors that one call passes: the kernel takes 253.
const TOGETHER: usize = 128;
/// Longest message: the slots of a few hundred thousand instances.
const MAX_BYTES: usize = 64 << 20;
/// Most descriptors of a message.
const MAX_DESCRIPTORS: usize = 1 << 16;

/// Why nothing was understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    /// The other side has closed the connection, or has died.
    #[error("the other gateway has gone")]
    Gone,
    /// Not a word came in time.
    #[error("the other gateway did not answer in time")]
    Silent,
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] io::Error),
    /// What came makes no sense.
    #[error("the other gateway says what this version does not understand: {0}")]
    Unknown(String),
}

/// One side of the connection. It blocks: it is for a thread of its own.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

/// The name at which the gateway is found that has this address for its clients. It has no file: it is gone
/// with the process, and belongs to the network namespace as the address does.
pub(super) fn name(address: std::net::SocketAddr) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("atalho-take-over {address}"))
}

/// Listens at a [`name`].
pub(super) fn listen(name: &UnixAddress) -> io::Result<UnixListener> {
    UnixListener::bind_addr(name)
}

impl Channel {
    /// Connects to whoever listens at a name; `None` if nobody does.
    pub(super) fn connect(name: &UnixAddress) -> io::Result<Option<Self>> {
        match UnixStream::connect_addr(name) {
            Ok(stream) => Self::of(stream).map(Some),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a connection whose other side is this user, or root.
    ///
    /// # Errors
    /// `PermissionDenied` for anybody else: a name without a file has no owner.
    pub(super) fn of(stream: UnixStream) -> io::Result<Self> {
        let user = sockopt::socket_peercred(&stream)?.uid.as_raw();
        let own = rustix::process::geteuid().as_raw();
        if user != own && user != 0 {
            let why = format!("the process at the other side runs as user {user}");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Self(stream))
    }

    /// Bounds the wait for each message; none for ever.
    pub(super) fn patience(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(limit)?;
        self.0.set_write_timeout(limit)
    }

    pub(super) fn send(
        &mut self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        let body = serde_json::to_vec(message).map_err(|error| unknown(&error))?;
        let mut out = Vec::with_capacity(8 + body.len());
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&(descriptors.len() as u32).to_le_bytes());
        out.extend_from_slice(&body);
        self.0.write_all(&out).map_err(broken)?;
        for together in descriptors.chunks(TOGETHER) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(together));
            // Descriptors need a byte that they come with.
            sendmsg(&self.0, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)
                .map_err(|error| broken(error.into()))?;
        }
        Ok(())
    }

    pub(super) fn receive(&mut self) -> Result<(Message, Vec<OwnedFd>), ChannelError> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head).map_err(broken)?;
        let number = |at: usize| {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        };
        let (len, count) = (number(0), number(4));
        if len > MAX_BYTES || count > MAX_DESCRIPTORS {
            return Err(ChannelError::Unknown(format!("{len} bytes and {count} descriptors")));
        }
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).map_err(broken)?;
        let mut descriptors = Vec::new();
        while descriptors.len() < count {
            self.receive_descriptors(&mut descriptors)?;
        }
        let message = serde_json::from_slice(&body).map_err(|error| unknown(&error))?;
        Ok((message, descriptors))
    }

    fn receive_descriptors(&mut self, into: &mut Vec<OwnedFd>) -> Result<(), ChannelError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)
            .map_err(|error| broken(error.into()))?;
        let before = into.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                into.extend(descriptors);
            }
        }
        match got.bytes {
            0 => Err(ChannelError::Gone),
            // With no descriptor left, the kernel leaves out what it has no room for.
            _ if got.flags.contains(ReturnFlags::CTRUNC) || into.len() == before => {
                Err(ChannelError::Unknown("descriptors were lost on the way: `ulimit -n`".into()))
            }
            _ => Ok(()),
        }
    }

    /// The other side's process.
    pub(super) fn peer(&self) -> Option<i32> {
        let credentials = sockopt::socket_peercred(self.0.as_fd()).ok()?;
        Some(credentials.pid.as_raw_nonzero().get())
    }
}

fn unknown(error: &dyn std::fmt::Display) -> ChannelError {
    ChannelError::Unknown(error.to_string())
}

fn broken(error: io::Error) -> ChannelError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => ChannelError::Gone,
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ChannelError::Silent,
        _ => ChannelError::Broken(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, two) = UnixStream::pair().expect("sockets");
        (Channel::of(one).expect("this user"), Channel::of(two).expect("this user"))
    }

    #[test]
    fn messages_bring_their_descriptors_in_order() {
        let (mut one, mut two) = pair();
        // More than one call passes.
        let files: Vec<_> = (0..300).map(|_| tempfile::tempfile().expect("a file")).collect();
        for (n, mut file) in files.iter().enumerate() {
            write!(file, "{n}").expect("written");
        }
        let descriptors: Vec<_> = files.iter().map(std::os::fd::AsFd::as_fd).collect();
        let sent = std::thread::scope(|scope| {
            scope.spawn(|| {
                one.send(&Message::Noted, &descriptors).expect("sent");
                one.send(&Message::Serving, &[]).expect("sent");
            });
            let (message, got) = two.receive().expect("received");
            assert_eq!(message, Message::Noted);
            assert_eq!(two.receive().expect("received").0, Message::Serving);
            got
        });
        assert_eq!(sent.len(), 300);
        for (n, descriptor) in sent.into_iter().enumerate() {
            // SAFETY: a plain call on an open descriptor.
            let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFD) };
            assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "not for the children");
            let mut file = std::fs::File::from(descriptor);
            std::io::Seek::rewind(&mut file).expect("a file");
            assert_eq!(std::io::read_to_string(file).expect("readable"), n.to_string());
        }
    }

    #[test]
    fn an_end_and_a_silence_are_told_apart() {
        let (one, mut two) = pair();
        two.patience(Some(Duration::from_millis(1))).expect("set");
        assert!(matches!(two.receive(), Err(ChannelError::Silent)));
        drop(one);
        assert!(matches!(two.receive(), Err(ChannelError::Gone)));
        assert!(matches!(two.send(&Message::Noted, &[]), Err(ChannelError::Gone)));
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [&[0xff; 8][..], b"\x02\0\0\0\0\0\0\0{}", b"\x01\0\0\0\0\0\x02\0{"] {
            let (mut one, mut two) = pair();
            one.0.write_all(bytes).expect("written");
            assert!(matches!(two.receive(), Err(ChannelError::Unknown(_))), "{bytes:?}");
        }
    }

    #[test]
    fn where_nobody_listens_is_no_error() {
        let address = "127.0.0.1:1".parse().expect("valid");
        let name = name(address).expect("a name");
        assert!(Channel::connect(&name).expect("no error").is_none());
        let listener = listen(&name).expect("free");
        listen(&name).expect_err("taken");
        let there = Channel::connect(&name).expect("no error").expect("somebody");
        assert_eq!(there.peer(), Some(std::process::id() as i32));
        drop(listener);
    }
}
