//! A connection as the engines have it.

use std::{
    io,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;

use super::{
    sockmap::membership::Membership as SockmapMembership,
    splice::membership::Membership as SpliceMembership,
};
use crate::net::{Stream, with_read_buffer};

/// A connection: its stream, and what has been read from it but not used yet.
#[derive(Debug)]
pub struct Conn {
    /// The socket.
    pub stream: Stream,
    /// Bytes read and not used: a head in progress, the start of a body, pipelined requests.
    pub input: BytesMut,
    /// What the sockmap engine keeps for this connection, once a body of it was handed over.
    pub(super) sockmap: Option<Box<SockmapMembership>>,
    /// What the splice engine keeps for this connection, once it is known to its programs.
    pub(super) splice: Option<Box<SpliceMembership>>,
}

impl Drop for Conn {
    /// Closing a socket with unread bytes resets the connection, so that a sender that is blocked
    /// by its full window learns at once that nobody reads. The kernel does not do so for bytes
    /// that wait in a socket map: it would send a FIN, which a sender that only writes does not see
    /// for a minute.
    fn drop(&mut self) {
        let unread = |stream: &mut Stream| stream.try_read(&mut [0; 1]).is_ok_and(|n| n > 0);
        let incomplete = self.splice.as_ref().is_some_and(|member| member.is_broken());
        if incomplete || self.sockmap.is_some() && unread(&mut self.stream) {
            self.stream.abort_on_close();
        } else if self.splice.is_some() && !self.stream.aborts() {
            self.stream.reset_on_close(false);
        }
    }
}

impl Conn {
    /// A connection with nothing read yet.
    pub fn new(stream: Stream) -> Self {
        Self { stream, input: BytesMut::new(), sockmap: None, splice: None }
    }

    /// Gives up the input's memory while nothing is in it. A buffer that once held a long prompt
    /// must not stay with a connection that streams, or idles, for minutes.
    pub fn release_input(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// As [`poll_fill`](Self::poll_fill), without regard to readiness: what is queued now, or `WouldBlock`.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn try_fill(&mut self, limit: usize) -> io::Result<usize> {
        let room = limit.saturating_sub(self.input.len());
        with_read_buffer(|scratch| {
            let end = room.min(scratch.len());
            let n = self.stream.try_read(&mut scratch[..end])?;
            self.input.extend_from_slice(&scratch[..n]);
            Ok(n)
        })
    }

    /// Reads once into [`Conn::input`], at most up to `limit` bytes in all. `Ok(0)` is a FIN.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, limit: usize) -> Poll<io::Result<usize>> {
        let room = limit.saturating_sub(self.input.len());
        debug_assert!(room > 0, "a full input would look like a FIN");
        with_read_buffer(|scratch| {
            let end = room.min(scratch.len());
            let n = ready!(self.stream.poll_read(cx, &mut scratch[..end]))?;
            self.input.extend_from_slice(&scratch[..n]);
            Poll::Ready(Ok(n))
        })
    }
}
