//! Handing a body over to the kernel while its source keeps sending.
//!
//! The hand-over needs a moment at which user space has forwarded every byte that the program has
//! seen. A source that sends flat out leaves no such moment between a read and the next: every read
//! opens its window, and more is there before the swap. So the bytes are copied out of the receive
//! queue and forwarded while they stay in it. The window stays shut, and once the queue is full and
//! forwarded as a whole, nothing can come in between: the swap succeeds, and then the queue is
//! emptied, which lets the source go on, now with the kernel in charge.

use std::{cell::RefCell, io};

use router_ebpf::framing::Framing;

use super::{Decline, HandedOver, Membership, Sockmap, SteerEnd, member::RECEIVE_BUFFER, tcp};
use crate::{kernel::Body, net::Conn};

/// Room for all that a receive queue can hold, in bytes: the buffer, and a last packet that it still
/// took.
const QUEUE: usize = RECEIVE_BUFFER + 128 * 1024;
/// Bytes that are left in the queue, to be taken one by one when the window needs a nudge.
const KEPT: usize = 64;
/// How often the queue is forwarded before the source counts as too fast for now.
const ATTEMPTS: usize = 8;

/// Why a hand-over did not come about.
pub(super) enum Missed {
    /// The target does not take what has arrived: again when it is writable.
    TargetFull,
    /// User space is to carry on.
    Declined(Decline),
    /// One of the connections is gone.
    Ended(SteerEnd),
}

/// What has been forwarded of a body on the way to a hand-over.
#[derive(Default)]
pub(super) struct Ahead {
    /// Bytes at the front of the source's receive queue that have been forwarded already.
    pub(super) queued: usize,
    /// Bytes forwarded in all.
    pub(super) copied: u64,
    /// Most bytes that may be forwarded and carried by the kernel in all.
    pub(super) most: u64,
}

impl Sockmap {
    /// Hands over, after forwarding what has arrived. `framing` follows what is forwarded.
    ///
    /// When it is missed, `ahead` says how much of the receive queue is not to be forwarded again.
    pub(super) fn take_over(
        &self,
        from: &mut Conn,
        to: &mut Conn,
        framing: &mut Framing,
        release: Option<u32>,
        ahead: &mut Ahead,
    ) -> Result<HandedOver<'_>, Missed> {
        debug_assert!(from.input.is_empty(), "bytes that user space holds would be overtaken");
        let inner = &*self.inner;
        let target =
            Membership::join(&inner.kernel, to, inner.worker).map_err(Missed::Declined)?.key();
        Membership::join(&inner.kernel, from, inner.worker).map_err(Missed::Declined)?;
        with_queue(|queue| {
            for _ in 0..ATTEMPTS {
                let queued = match from.stream.try_peek(queue) {
                    // A FIN: user space will meet it too.
                    Ok(0) => return Err(Missed::Declined(Decline::NotEstablished)),
                    Ok(n) => n,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(_) => return Err(Missed::Ended(SteerEnd::SourceBroken)),
                };
                let fresh = &queue[ahead.queued.min(queued)..queued];
                let mut after = *framing;
                if after.advance(fresh) != Ok(fresh.len()) || after.is_done() {
                    // The rest is here, and user space's affair.
                    return Err(Missed::Declined(Decline::Unread));
                }
                let Some(most) = ahead.most.checked_sub(ahead.copied + fresh.len() as u64) else {
                    return Err(Missed::Declined(Decline::Unread));
                };
                let written = if fresh.is_empty() {
                    0
                } else {
                    let gone = |_| Missed::Ended(SteerEnd::TargetGone);
                    to.stream.try_write(fresh).map_err(gone)?
                };
                let full = written < fresh.len();
                // Cannot fail: all of it passed just now.
                let _ = framing.advance(&fresh[..written]);
                ahead.queued += written;
                ahead.copied += written as u64;
                if full {
                    return Err(Missed::TargetFull);
                }
                let body = Body {
                    framing: *framing,
                    target,
                    release,
                    most,
                    backlog_limit: inner.settings.backlog_bytes,
                };
                let member = from.sockmap.as_ref().expect("just joined");
                let forwarded = member.counted(from.stream.bytes_read()) + ahead.queued as u64;
                let (direction, index) = (member.direction(), member.index());
                if direction.hand_over(forwarded, &body, tcp::now_ns()) {
                    let kept = ahead.queued.min(KEPT);
                    let mut handed =
                        HandedOver { inner, direction, index, release, armed: true, kept };
                    discard(from, queue, std::mem::take(&mut ahead.queued) - kept)?;
                    handed.nudge(from);
                    return Ok(handed);
                }
                if queued == queue.len() {
                    // More is queued than can be seen at once.
                    discard(from, queue, std::mem::take(&mut ahead.queued))?;
                }
            }
            Err(Missed::Declined(Decline::Unread))
        })
    }

    /// Takes out of the receive queue what has been forwarded, so that user space can read on.
    pub(super) fn settle(&self, from: &mut Conn, ahead: &mut Ahead) -> Result<(), Missed> {
        let queued = std::mem::take(&mut ahead.queued);
        if queued == 0 { Ok(()) } else { with_queue(|queue| discard(from, queue, queued)) }
    }
}

impl HandedOver<'_> {
    /// Opens the source's window if it is shut.
    ///
    /// Reading opens it while this thread holds the socket's lock. A peer on the same machine answers
    /// at once, and its packets are taken when the lock is released, in one batch, all of which the
    /// kernel counts as unread while it computes the next window. The last acknowledgement of the
    /// batch can shut the window, with an empty queue and nobody who will read: the peer would wait
    /// for its probe timer, 200 ms and more. Each byte read lets another batch in.
    pub(super) fn nudge(&mut self, from: &mut Conn) {
        while self.kept > 0 && self.direction.redirects() && tcp::window_is_shut(&from.stream) {
            if from.stream.try_read(&mut [0]).is_err() {
                return;
            }
            self.kept -= 1;
        }
    }

    /// Takes what was left in the queue, before user space reads what is behind it.
    pub(super) fn discard_kept(&mut self, from: &mut Conn) {
        // A broken connection has nothing that could come after.
        let _ = discard(from, &mut [0; KEPT], std::mem::take(&mut self.kept));
    }
}

/// Takes bytes that have been forwarded out of the receive queue.
fn discard(from: &mut Conn, buffer: &mut [u8], mut forwarded: usize) -> Result<(), Missed> {
    while forwarded > 0 {
        let most = forwarded.min(buffer.len());
        match from.stream.try_read(&mut buffer[..most]) {
            Ok(n) if n > 0 => forwarded -= n,
            // They were there a moment ago: only a reset takes them away.
            _ => return Err(Missed::Ended(SteerEnd::SourceBroken)),
        }
    }
    Ok(())
}

fn with_queue<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    thread_local! {
        static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; QUEUE].into_boxed_slice());
    }
    BUFFER.with_borrow_mut(|buffer| f(buffer))
}
