//! What the kernel tells of a TCP connection.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// `struct tcp_info` of linux/tcp.h, whose layout is part of the kernel's interface. What an older kernel does
/// not know is zero.
pub struct TcpInfo([u64; 32]);

impl TcpInfo {
    /// Asks the socket.
    ///
    /// # Errors
    /// When it is no TCP socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut info = [0u64; 32];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the buffer has the length that the call is told.
        let rc = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if rc == 0 { Ok(Self(info)) } else { Err(io::Error::last_os_error()) }
    }

    /// The 64 bits at a multiple of eight bytes.
    pub fn long(&self, at: usize) -> u64 {
        self.0[at / 8]
    }

    /// The 32 bits at a multiple of four bytes.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    /// Four bytes, from a multiple of four on.
    pub fn bytes(&self, at: usize) -> [u8; 4] {
        let [a, b, c, d, e, f, g, h] = self.0[at / 8].to_ne_bytes();
        if at.is_multiple_of(8) { [a, b, c, d] } else { [e, f, g, h] }
    }
}

/// `SIOCOUTQ`.
const SIOCOUTQ: libc::c_ulong = 0x5411;

/// Bytes written to the socket that its peer's kernel has not acknowledged (tcp(7), `SIOCOUTQ`). After
/// a connection broke, those that it never will.
///
/// # Errors
/// When it is no TCP socket.
pub fn unacknowledged(socket: &impl AsFd) -> io::Result<u64> {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the request writes an int.
    let rc = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCOUTQ, &raw mut waiting) };
    if rc == 0 { Ok(waiting.max(0) as u64) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn fields_are_where_they_are() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::of(&near).unwrap();
        // `tcpi_state` is the first byte: established.
        assert_eq!(info.bytes(0)[0], 1);
        let [low, high] = [info.word(120), info.word(124)].map(u32::to_ne_bytes);
        assert_eq!(info.long(120).to_ne_bytes(), [low, high].concat()[..]);
        assert!(TcpInfo::of(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn what_a_broken_connection_was_not_acknowledged_stays_known() {
        for (reads, closes) in [(false, true), (true, true), (true, false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut far = listener.accept().unwrap().0;
            assert_eq!(unacknowledged(&near).unwrap(), 0);
            if reads {
                near.write_all(b"read").unwrap();
                far.read_exact(&mut [0; 4]).unwrap();
            }
            let reset = (!closes).then_some(std::time::Duration::ZERO);
            socket2::SockRef::from(&far).set_linger(reset).unwrap();
            drop(far);
            // A FIN acknowledges what was read before it. What comes after it meets a reset.
            let end = near.read(&mut [0]);
            assert_eq!(end.is_ok_and(|n| n == 0), closes);
            let before = unacknowledged(&near).unwrap();
            assert!(before == 0 || !closes, "{before} bytes, and the peer has read them");
            if closes {
                near.write_all(b"unread").unwrap();
                let error = near.write_all(b"more").unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
                assert_eq!(unacknowledged(&near).unwrap(), 6);
            }
        }
        assert!(unacknowledged(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
