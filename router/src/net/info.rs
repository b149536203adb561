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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

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
}
