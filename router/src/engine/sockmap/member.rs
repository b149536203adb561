//! A connection's place in the kernel's maps.

use std::{io, os::fd::AsFd, sync::Arc};

use super::{Decline, tcp};
use crate::{
    kernel::{Direction, Kernel},
    net::Conn,
};

/// The receive buffer of a member, in bytes.
///
/// Left to itself it grows to many megabytes, because the kernel takes redirecting for reading. It
/// bounds what a stalled client costs, and [`super::take_over`] forwards all that it holds at once.
/// Much smaller than this, it would hold too few of the 64 KiB packets of a peer on the same machine
/// for their acknowledgements to keep the window open.
pub(super) const RECEIVE_BUFFER: usize = 1024 * 1024;
/// The send buffer of a member, in bytes.
const SEND_BUFFER: usize = 1024 * 1024;

/// A connection's place in the kernel's maps; leaves them when dropped.
///
/// It must be dropped after the connection's socket, as the order of [`Conn`]'s fields sees to.
pub struct Membership {
    kernel: Arc<Kernel>,
    cookie: u64,
    direction: u32,
    /// Stream bytes that had been read when the program began to count.
    read: u64,
    /// What [`tcp::queued_in_all`] is ahead of the bytes written.
    offset: u64,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership")
            .field("cookie", &self.cookie)
            .field("direction", &self.direction)
            .finish_non_exhaustive()
    }
}

impl Membership {
    /// Makes the connection a member, if it is not one.
    ///
    /// From this moment on the program sees every byte that this process has not read. Packets that
    /// are in the socket's queue by now wait there for the kick; the first one may have been read in
    /// part, and the program cuts off that part.
    pub(super) fn join<'a>(
        kernel: &Arc<Kernel>,
        conn: &'a mut Conn,
        worker: u32,
    ) -> Result<&'a mut Self, Decline> {
        if conn.sockmap.is_none() {
            let member = Self::new(kernel, conn, worker)?;
            conn.sockmap = Some(Box::new(member));
        }
        Ok(conn.sockmap.as_mut().expect("just set"))
    }

    fn new(kernel: &Arc<Kernel>, conn: &Conn, worker: u32) -> Result<Self, Decline> {
        let cookie = tcp::cookie(&conn.stream).map_err(declined)?;
        tcp::bound_buffers(&conn.stream, RECEIVE_BUFFER, SEND_BUFFER).map_err(declined)?;
        let queued = tcp::queued_in_all(&conn.stream).map_err(declined)?;
        let direction = kernel.take_direction().ok_or(Decline::NoRoom)?;
        kernel.direction(direction).prepare(worker);
        if let Err(error) = kernel.join(cookie, conn.stream.as_fd(), direction) {
            kernel.return_direction(direction);
            return Err(declined(error));
        }
        tcp::kick(&conn.stream);
        Ok(Self {
            kernel: Arc::clone(kernel),
            cookie,
            direction,
            read: conn.stream.bytes_read(),
            // May wrap: only the difference is used, likewise wrapping.
            offset: queued.wrapping_sub(conn.stream.bytes_written()),
        })
    }

    /// The connection's key in the maps.
    pub(super) fn key(&self) -> u64 {
        self.cookie
    }

    /// The direction that has the connection as its source.
    pub(super) fn direction(&self) -> Direction {
        self.kernel.direction(self.direction)
    }

    /// Its index.
    pub(super) fn index(&self) -> u32 {
        self.direction
    }

    /// Of the stream's bytes that have been read (or carried by the kernel), how many the program has
    /// counted.
    pub(super) fn counted(&self, bytes_read: u64) -> u64 {
        bytes_read - self.read
    }

    /// Bytes that are counted as written but have not reached the socket's send queue.
    pub(super) fn backlog(conn: &Conn) -> io::Result<u64> {
        let Some(member) = &conn.sockmap else { return Ok(0) };
        let queued = tcp::queued_in_all(&conn.stream)?;
        Ok(conn.stream.bytes_written().wrapping_add(member.offset).wrapping_sub(queued))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.kernel.leave(self.cookie, self.direction);
    }
}

fn declined(error: io::Error) -> Decline {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => Decline::NotEstablished,
        Some(libc::ENOSPC | libc::E2BIG | libc::ENOMEM) => Decline::NoRoom,
        _ => Decline::System,
    }
}
