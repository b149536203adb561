//! A connection's place in the kernel's maps.

use std::{io, os::fd::AsFd, sync::Arc};

use crate::{
    engine::tcp,
    kernel::sockmap::{Direction, SockmapObject},
    net::Stream,
};

/// A connection's place in the kernel's maps; leaves them when dropped.
///
/// It must be dropped after the connection's socket, as the order of [`Conn`](crate::engine::Conn)'s fields sees to.
pub(crate) struct Membership {
    object: Arc<SockmapObject>,
    cookie: u64,
    source: Option<Source>,
    target: Option<Target>,
}

/// The connection's bytes can be redirected.
#[derive(Clone, Copy)]
struct Source {
    direction: u32,
    /// Stream bytes that had been read when the program began to count.
    read: u64,
}

/// The connection can be redirected to.
#[derive(Clone, Copy)]
struct Target {
    /// What [`tcp::queued_in_all`] is ahead of the bytes written.
    offset: u64,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership")
            .field("cookie", &self.cookie)
            .field("source", &self.source.is_some())
            .field("target", &self.target.is_some())
            .finish()
    }
}

impl Membership {
    /// That of a socket, which at first is in neither map.
    ///
    /// # Errors
    /// When the socket is gone.
    pub(super) fn new(object: &Arc<SockmapObject>, stream: &Stream) -> io::Result<Self> {
        let cookie = tcp::cookie(stream)?;
        Ok(Self { object: Arc::clone(object), cookie, source: None, target: None })
    }

    /// Makes the socket a target, if it is not one. Returns its key.
    pub(super) fn join_targets(&mut self, stream: &Stream) -> io::Result<u64> {
        if self.target.is_none() {
            self.object.join_target(self.cookie, stream.as_fd())?;
            let queued = tcp::queued_in_all(stream)?;
            // May wrap: only the difference is used, likewise wrapping.
            let offset = queued.wrapping_sub(stream.bytes_written());
            self.target = Some(Target { offset });
        }
        Ok(self.cookie)
    }

    /// Puts the socket among the sources, with a direction that is its own until it leaves.
    pub(super) fn join_sources(&mut self, stream: &Stream, direction: u32) -> io::Result<()> {
        self.object.join_source(self.cookie, stream.as_fd(), direction)?;
        self.source = Some(Source { direction, read: stream.bytes_read() });
        Ok(())
    }

    /// The direction of a source, and its index.
    pub(super) fn direction(&self) -> Option<(u32, Direction)> {
        let Source { direction, .. } = self.source?;
        Some((direction, self.object.direction(direction)))
    }

    /// Stream bytes read, or moved by the kernel, since the program began to count.
    pub(super) fn read_since_joined(&self, stream: &Stream) -> Option<u64> {
        Some(stream.bytes_read() - self.source?.read)
    }

    /// Bytes that are counted as written but have not reached the socket's send queue.
    pub(super) fn backlog(&self, stream: &Stream) -> io::Result<u64> {
        let Some(target) = self.target else { return Ok(0) };
        let queued = tcp::queued_in_all(stream)?;
        Ok(stream.bytes_written().wrapping_add(target.offset).wrapping_sub(queued))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(source) = self.source {
            self.object.leave_source(self.cookie, source.direction);
        }
    }
}
