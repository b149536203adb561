//! Putting connections into the kernel's maps, as sources and as targets.

use std::{io, sync::Arc};

use super::Membership;
use crate::{
    engine::{Conn, outcome::Decline, tcp},
    kernel::sockmap::{Direction, SockmapObject},
    net::with_read_buffer,
};

/// Why a connection cannot be a source now.
pub(super) enum NoSource {
    /// User space goes on.
    Declined(Decline),
    /// The connection is broken.
    Broken,
}

/// The membership of a connection, which at first is of neither map.
fn member<'a>(
    object: &Arc<SockmapObject>,
    conn: &'a mut Conn,
) -> Result<&'a mut Membership, Decline> {
    if conn.sockmap.is_none() {
        conn.sockmap = Some(Box::new(Membership::new(object, &conn.stream).map_err(declined)?));
    }
    Ok(conn.sockmap.as_mut().expect("just set"))
}

/// Makes the connection a target, if it is not one. Returns its key.
pub(super) fn target(object: &Arc<SockmapObject>, conn: &mut Conn) -> Result<u64, Decline> {
    member(object, conn)?;
    let Conn { stream, sockmap, .. } = conn;
    sockmap.as_mut().expect("a member").join_targets(stream).map_err(declined)
}

/// Makes the connection a source, if it is not one. Returns its direction, and the direction's index.
///
/// The program must see every byte from some point of the stream on. The packets that it will
/// see are those that user space has not begun to read: hence nothing may be left in the
/// socket's queue that is half read, which reading until nothing is left makes sure of. What
/// arrives between that and the insertion waits in the queue until the kick.
pub(super) fn source(
    object: &Arc<SockmapObject>,
    conn: &mut Conn,
    worker: u32,
) -> Result<(u32, Direction), NoSource> {
    if let Some(known) = member(object, conn).map_err(NoSource::Declined)?.direction() {
        return Ok(known);
    }
    read_rest(conn)?;
    let joined = source_unkicked(object, conn, worker).map_err(NoSource::Declined)?;
    tcp::kick(&conn.stream);
    Ok(joined)
}

/// Puts the connection among the sources. The program does not look at what waits in its queue
/// until something else happens to the socket.
pub(super) fn source_unkicked(
    object: &Arc<SockmapObject>,
    conn: &mut Conn,
    worker: u32,
) -> Result<(u32, Direction), Decline> {
    member(object, conn)?;
    let index = object.take_direction().ok_or(Decline::NoRoom)?;
    let direction = object.direction(index);
    direction.prepare(worker);
    let Conn { stream, sockmap, .. } = conn;
    if let Err(error) = sockmap.as_mut().expect("a member").join_sources(stream, index) {
        object.return_direction(index);
        return Err(declined(error));
    }
    Ok((index, direction))
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
