//! A connection's place in the kernel's maps.

use std::{io, os::fd::AsFd, sync::Arc};

use super::Decline;
use crate::{
    engine::{Conn, tcp},
    kernel::sockmap::{Direction, SockmapObject},
    net::with_read_buffer,
};

/// A connection's place in the kernel's maps; leaves them when dropped.
///
/// It must be dropped after the connection's socket, as the order of [`Conn`]'s fields sees to.
pub struct Membership {
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

/// Why a connection cannot be a source now.
pub(super) enum NoSource {
    /// User space goes on.
    Declined(Decline),
    /// The connection is broken.
    Broken,
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
    /// The membership of a connection, which at first is of neither map.
    fn of<'a>(object: &Arc<SockmapObject>, conn: &'a mut Conn) -> io::Result<&'a mut Self> {
        if conn.sockmap.is_none() {
            let cookie = tcp::cookie(&conn.stream)?;
            let object = Arc::clone(object);
            conn.sockmap = Some(Box::new(Self { object, cookie, source: None, target: None }));
        }
        Ok(conn.sockmap.as_mut().expect("just set"))
    }

    /// Makes the connection a target, if it is not one. Returns its key.
    pub(super) fn target(object: &Arc<SockmapObject>, conn: &mut Conn) -> Result<u64, Decline> {
        let member = Self::of(object, conn).map_err(declined)?;
        let cookie = member.cookie;
        if member.target.is_none() {
            object.join_target(cookie, conn.stream.as_fd()).map_err(declined)?;
            let queued = tcp::queued_in_all(&conn.stream).map_err(declined)?;
            // May wrap: only the difference is used, likewise wrapping.
            let offset = queued.wrapping_sub(conn.stream.bytes_written());
            conn.sockmap.as_mut().expect("a member").target = Some(Target { offset });
        }
        Ok(cookie)
    }

    /// Makes the connection a source, if it is not one. Returns its direction.
    ///
    /// The program must see every byte from some point of the stream on. The packets that it will
    /// see are those that user space has not begun to read: hence nothing may be left in the
    /// socket's queue that is half read, which reading until nothing is left makes sure of. What
    /// arrives between that and the insertion waits in the queue until the kick.
    pub(super) fn source(
        object: &Arc<SockmapObject>,
        conn: &mut Conn,
        worker: u32,
    ) -> Result<Direction, NoSource> {
        let member = Self::of(object, conn).map_err(|error| NoSource::Declined(declined(error)))?;
        if let Some(source) = member.source {
            return Ok(object.direction(source.direction));
        }
        read_rest(conn)?;
        let direction = Self::join(object, conn, worker).map_err(NoSource::Declined)?;
        tcp::kick(&conn.stream);
        Ok(direction)
    }

    /// Puts the connection among the sources. The program does not look at what waits in its queue
    /// until something else happens to the socket.
    pub(super) fn join(
        object: &Arc<SockmapObject>,
        conn: &mut Conn,
        worker: u32,
    ) -> Result<Direction, Decline> {
        let cookie = Self::of(object, conn).map_err(declined)?.cookie;
        let index = object.take_direction().ok_or(Decline::NoRoom)?;
        let direction = object.direction(index);
        direction.prepare(worker);
        if let Err(error) = object.join_source(cookie, conn.stream.as_fd(), index) {
            object.return_direction(index);
            return Err(declined(error));
        }
        let source = Source { direction: index, read: conn.stream.bytes_read() };
        conn.sockmap.as_mut().expect("a member").source = Some(source);
        Ok(direction)
    }

    /// Stream bytes read, or moved by the kernel, since the program began to count.
    pub(super) fn read_since_joined(conn: &Conn) -> Option<u64> {
        let source = conn.sockmap.as_ref()?.source?;
        Some(conn.stream.bytes_read() - source.read)
    }

    /// The index of the connection's direction.
    pub(super) fn direction_index(conn: &Conn) -> Option<u32> {
        Some(conn.sockmap.as_ref()?.source?.direction)
    }

    /// Bytes that are counted as written but have not reached the socket's send queue.
    pub(super) fn backlog(conn: &Conn) -> io::Result<u64> {
        let Some(target) = conn.sockmap.as_ref().and_then(|member| member.target) else {
            return Ok(0);
        };
        let queued = tcp::queued_in_all(&conn.stream)?;
        Ok(conn.stream.bytes_written().wrapping_add(target.offset).wrapping_sub(queued))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(source) = self.source {
            self.object.leave_source(self.cookie, source.direction);
        }
    }
}

/// Makes sure that nothing is left to read. What was there goes to the connection's input, and user
/// space must forward it first; more than a scratch buffer's worth at once is left to ordinary
/// reading, which minds how much it may hold.
fn read_rest(conn: &mut Conn) -> Result<(), NoSource> {
    let read = with_read_buffer(|scratch| {
        let n = conn.stream.try_read(scratch)?;
        conn.input.extend_from_slice(&scratch[..n]);
        Ok(n)
    });
    match read {
        // A FIN: it will be seen again.
        Ok(0) => Err(NoSource::Declined(Decline::NotEstablished)),
        Ok(_) => Err(NoSource::Declined(Decline::Unread)),
        Err(error) if io::Error::kind(&error) == io::ErrorKind::WouldBlock => Ok(()),
        Err(_) => Err(NoSource::Broken),
    }
}

fn declined(error: io::Error) -> Decline {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => Decline::NotEstablished,
        Some(libc::ENOSPC | libc::E2BIG | libc::ENOMEM) => Decline::NoRoom,
        _ => Decline::System,
    }
}
