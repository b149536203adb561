//! What the engine asks of a TCP socket.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::net::TcpInfo;

/// `tcpi_options` of `struct tcp_info`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const SCALES: u8 = 4;
const ECN: u8 = 8;

/// `TCP_REPAIR`, `TCP_REPAIR_QUEUE`, `TCP_QUEUE_SEQ` and `TCP_REPAIR_WINDOW` of linux/tcp.h.
const REPAIR: libc::c_int = 19;
const REPAIR_QUEUE: libc::c_int = 20;
const QUEUE_SEQ: libc::c_int = 21;
const REPAIR_WINDOW: libc::c_int = 29;
/// Values of `TCP_REPAIR`: the second ends it without a packet to the peer, the third with a probe of its window.
const ON: libc::c_int = 1;
const OFF: libc::c_int = -1;
const OFF_WITH_PROBE: libc::c_int = 0;
/// Values of `TCP_REPAIR_QUEUE`.
const RECEIVE_QUEUE: libc::c_int = 1;
const SEND_QUEUE: libc::c_int = 2;

/// `struct tcp_repair_window`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RepairWindow {
    snd_wl1: u32,
    snd_wnd: u32,
    max_window: u32,
    rcv_wnd: u32,
    rcv_wup: u32,
}

/// Lets a socket take `bytes` from what it has acknowledged on, as if it had announced them. It tells its peer
/// nothing, and never takes it back. While this runs, no packets may come for the socket, whose news about the
/// peer's window would be lost.
///
/// # Errors
/// When the system refuses: this takes `CAP_NET_ADMIN`.
pub(crate) fn widen(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    in_repair(socket, OFF, || {
        let mut window: RepairWindow = get(socket, libc::IPPROTO_TCP, REPAIR_WINDOW)?;
        if window.rcv_wnd >= bytes {
            return Ok(());
        }
        window.rcv_wnd = bytes;
        set(socket, libc::IPPROTO_TCP, REPAIR_WINDOW, &window)
    })
}

/// Makes a socket ask its peer for a sign of life.
///
/// # Errors
/// When the system refuses: this takes `CAP_NET_ADMIN`.
pub(crate) fn probe(socket: BorrowedFd<'_>) -> io::Result<()> {
    in_repair(socket, OFF_WITH_PROBE, || Ok(()))
}

/// Closes a connection by a reset with a number that lies `bytes` before the last one sent: as a socket would
/// whose numbers are no longer those that the peer knows. The peer takes no notice.
///
/// # Errors
/// When the system refuses: this takes `CAP_NET_ADMIN`.
pub(crate) fn reset_with_old_number(socket: TcpStream, bytes: u32) -> io::Result<()> {
    let (local, remote) = (socket.local_addr()?, socket.peer_addr()?);
    let number = |socket: BorrowedFd<'_>, queue: libc::c_int| -> io::Result<u32> {
        set(socket, libc::IPPROTO_TCP, REPAIR_QUEUE, &queue)?;
        get(socket, libc::IPPROTO_TCP, QUEUE_SEQ)
    };
    let set_number = |socket: BorrowedFd<'_>, queue: libc::c_int, number: u32| {
        set(socket, libc::IPPROTO_TCP, REPAIR_QUEUE, &queue)?;
        set(socket, libc::IPPROTO_TCP, QUEUE_SEQ, &number)
    };
    set(socket.as_fd(), libc::IPPROTO_TCP, REPAIR, &ON)?;
    let sent = number(socket.as_fd(), SEND_QUEUE)?;
    let got = number(socket.as_fd(), RECEIVE_QUEUE)?;
    // Without a word to the peer, and another in its place likewise.
    drop(socket);
    let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
    set(socket.as_fd(), libc::IPPROTO_TCP, REPAIR, &ON)?;
    socket.bind(&local.into())?;
    set_number(socket.as_fd(), SEND_QUEUE, sent.wrapping_sub(bytes))?;
    set_number(socket.as_fd(), RECEIVE_QUEUE, got)?;
    socket.connect(&remote.into())?;
    set(socket.as_fd(), libc::IPPROTO_TCP, REPAIR, &OFF)?;
    socket.set_linger(Some(Duration::ZERO))
}

/// Does something with a socket in repair mode, which is ended by `off`.
///
/// The mode changes one thing that the socket has had before, and does not put it back: ended, it leaves the
/// socket without SO_REUSEADDR (`tcp_repair` in net/ipv4/tcp.c). The socket would then keep its port for itself
/// as long as it waits in TIME_WAIT, and the next process could not listen there.
fn in_repair(
    socket: BorrowedFd<'_>,
    off: libc::c_int,
    work: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let reuse: libc::c_int = get(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    set(socket, libc::IPPROTO_TCP, REPAIR, &ON)?;
    let done = work();
    // As long as it is on, the socket would be closed without a reset.
    set(socket, libc::IPPROTO_TCP, REPAIR, &off)?;
    if reuse != 0 {
        set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &reuse)?;
    }
    done
}

/// Makes a socket send the acknowledgement that it owes, if it does.
pub(crate) fn acknowledge_now(socket: BorrowedFd<'_>) {
    let _ = set(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &1i32);
}

fn set<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the value has the length that the call is told.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that consists of integers, for which any bytes are valid.
fn get<T: Default>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the buffer has the length that the call is told.
    let rc = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &mut length)
    };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// What two peers agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
    /// Scale of the socket's window fields.
    pub(crate) scale_own: u8,
    /// Scale of the peer's.
    pub(crate) scale_peer: u8,
    /// The longest segment that the peer was told it may send, options included.
    pub(crate) mss: u32,
    /// The longest packet on the way to the peer.
    pub(crate) path: u32,
    /// The smoothed round-trip time, in microseconds.
    pub(crate) rtt_us: u32,
    /// How many packets the socket has sent.
    pub(crate) sent: u32,
    /// How many it has got.
    pub(crate) got: u32,
}

impl Info {
    /// Asks the socket.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let info = TcpInfo::of(&socket)?;
        let [_, options, scales, _] = info.bytes(4);
        let scaled = options & SCALES != 0;
        Ok(Self {
            timestamps: options & TIMESTAMPS != 0,
            sack: options & SACK != 0,
            ecn: options & ECN != 0,
            scale_peer: if scaled { scales & 15 } else { 0 },
            scale_own: if scaled { scales >> 4 } else { 0 },
            path: info.word(60),
            mss: info.word(84),
            rtt_us: info.word(68),
            sent: info.word(136),
            got: info.word(140),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::fd::AsFd,
    };

    use super::*;

    /// `tcpi_rcv_wnd`.
    fn window(socket: &TcpStream) -> u32 {
        TcpInfo::of(socket).unwrap().word(232)
    }

    /// Or nobody could listen on its port while it waits in TIME_WAIT.
    #[test]
    fn what_repair_changes_is_put_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let socket = socket2::SockRef::from(&near);
        for reuse in [true, false] {
            socket.set_reuse_address(reuse).unwrap();
            for change in [|socket| widen(socket, 3 << 20), probe] {
                match change(near.as_fd()) {
                    Ok(()) => assert_eq!(socket.reuse_address().unwrap(), reuse),
                    Err(error) => return crate::testing::skip(error),
                }
            }
        }
    }

    #[test]
    fn a_socket_is_opened_wider_in_silence() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut near, _) = listener.accept().unwrap();
        far.write_all(b"to").unwrap();
        near.read_exact(&mut [0; 2]).unwrap();
        let before = window(&near);
        match widen(near.as_fd(), 3 << 20) {
            Ok(()) => {}
            Err(error) => return crate::testing::skip(error),
        }
        assert!(before < 1 << 20, "{before}");
        assert_eq!(window(&near), 3 << 20);
        // Less than there is changes nothing.
        widen(near.as_fd(), 5).unwrap();
        assert_eq!(window(&near), 3 << 20);
        // It works as before, and closes as before.
        near.write_all(b"from").unwrap();
        far.read_exact(&mut [0; 4]).unwrap();
        far.write_all(&[7; 1000]).unwrap();
        near.read_exact(&mut [0; 1000]).unwrap();
        drop(near);
        assert_eq!(far.read(&mut [0; 4]).unwrap(), 0);
    }
}
