//! What the engine asks of a TCP socket.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// `tcpi_options` of `struct tcp_info`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const SCALES: u8 = 4;
const ECN: u8 = 8;

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
}

impl Info {
    /// Asks the socket.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut info = [0u32; 64];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the buffer has the length that the call is told.
        let rc = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        // The layout is part of the kernel's interface (linux/tcp.h).
        let [_, options, scales, _] = info[1].to_ne_bytes();
        let scaled = options & SCALES != 0;
        Ok(Self {
            timestamps: options & TIMESTAMPS != 0,
            sack: options & SACK != 0,
            ecn: options & ECN != 0,
            scale_peer: if scaled { scales & 15 } else { 0 },
            scale_own: if scaled { scales >> 4 } else { 0 },
            path: info[15],
            mss: info[21],
        })
    }
}
