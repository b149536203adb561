//! What the kernel engines ask of a TCP socket.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use crate::net::TcpInfo;
pub(super) use crate::net::unacknowledged as send_queue;

/// Offset of `tcpi_bytes_acked` in `struct tcp_info`, in bytes; part of the kernel's interface since 4.1.
const BYTES_ACKED: usize = 120;

/// Bytes that wait to be read.
pub(super) fn receive_queue(socket: &impl AsRawFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes an integer.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    if rc == 0 { Ok(bytes as u32) } else { Err(io::Error::last_os_error()) }
}

/// A number that no other socket of this machine has had since it started.
pub(super) fn cookie(socket: &impl AsRawFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the value has the length that the call is told.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &mut length,
        )
    };
    if rc == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// Bytes that have entered the socket's send queue since the connection began, but for a constant.
///
/// Bytes that the kernel redirected count from when they leave the redirect's own queue: that is how
/// the engine sees that this queue has drained. No system call gives this number, but it is the sum
/// of two that do, if the first does not change between them.
pub(super) fn queued_in_all(socket: &(impl AsFd + AsRawFd)) -> io::Result<u64> {
    let mut before = acknowledged(socket)?;
    loop {
        let waiting = send_queue(socket)?;
        let after = acknowledged(socket)?;
        if before == after {
            return Ok(before + waiting);
        }
        before = after;
    }
}

fn acknowledged(socket: &impl AsFd) -> io::Result<u64> {
    Ok(TcpInfo::of(socket)?.long(BYTES_ACKED))
}

/// Takes the socket's lock once, and makes the program look at packets that came before the socket
/// joined. Takes no bytes.
///
/// A program that was at work on one of the socket's packets has ended when this returns.
pub(super) fn kick(socket: &impl AsRawFd) {
    let mut byte = 0u8;
    // SAFETY: the buffer has one byte.
    let _ = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            (&raw mut byte).cast(),
            1,
            libc::MSG_PEEK | libc::MSG_DONTWAIT,
        )
    };
}

/// The kernel's clock that its programs see, in nanoseconds.
pub(super) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives through the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
