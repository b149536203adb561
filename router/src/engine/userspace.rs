//! The engine that works everywhere: read, follow the framing, write.
//!
//! A chunk costs one read and one write. It goes through the thread's read buffer straight to the
//! target; only what the target does not take is copied aside, and then nothing more is read until
//! that is gone. So a connection owns no buffer while it waits, and a slow reader slows its own
//! sender and nobody else.

use super::{Conn, Output};
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::{Buf, Bytes, BytesMut};
use router_ebpf::framing::{Framing, FramingError};

use crate::net::{Stream, with_read_buffer};

/// Buffers that one write takes at most.
const WRITE_BUFFERS: usize = 8;

/// Why a body could not be moved to its end.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The sender closed before the end of the body.
    #[error("the sender closed before the end of the body")]
    SourceClosed,
    /// The sender's connection broke.
    #[error("the sender's connection broke: {0}")]
    SourceBroken(#[source] io::Error),
    /// The receiver's connection broke.
    #[error("the receiver's connection broke: {0}")]
    TargetGone(#[source] io::Error),
    /// The body is longer than [`Copier::limit`] allows. What is beyond was not written.
    #[error("the body is longer than it may be")]
    TooLong,
    /// The sender's bytes are no HTTP/1.1 body.
    #[error("the body is malformed: {0}")]
    Malformed(#[from] FramingError),
}

/// Where [`Copier::poll`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The body ended, and all of it was written.
    Complete,
    /// All that was read has been written, and nothing more is there: a moment to hand over.
    Drained,
}

/// Whether [`Copier::poll`] is to stop for a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverPoint {
    /// It goes on.
    Never,
    /// As soon as it is [`Step::Drained`].
    Drained,
    /// As well, with the last bytes in the target's socket, which sends them when it is told to by
    /// [`Stream::hold_back`]. A source that waits for its peer to get them sends nothing until then.
    HeldBack,
}

/// Relays one body, from where it stands to its end.
#[derive(Debug)]
pub struct Copier {
    /// What must be written before anything more is read.
    queue: VecDeque<Bytes>,
    framing: Framing,
    output: Output,
    bytes: u64,
    limit: u64,
    reads: u64,
    /// Of `bytes`, those that had been read with what was before the body.
    ahead: u64,
    progress: Instant,
    /// A copy of `bytes`, from the first on.
    kept: Option<BytesMut>,
    /// Bytes kept at most.
    keep: usize,
}

impl Copier {
    /// Relays the rest of a body that stands at `framing`.
    pub fn new(framing: Framing, output: Output) -> Self {
        let progress = Instant::now();
        let (bytes, limit) = (0, u64::MAX);
        let (reads, ahead) = (0, 0);
        let (queue, kept, keep) = (VecDeque::new(), None, 0);
        Self { queue, framing, output, bytes, limit, reads, ahead, progress, kept, keep }
    }

    /// Keeps a copy of the next `limit` bytes that come from the source, until [`Copier::forget`].
    pub fn keep(&mut self, limit: usize) {
        self.kept = Some(BytesMut::new());
        self.keep = limit;
    }

    /// The bytes that came from the source since [`Copier::keep`]; `None` when they are not kept.
    pub fn kept(&self) -> Option<&[u8]> {
        self.kept.as_deref()
    }

    /// Keeps nothing any more.
    pub fn forget(&mut self) {
        self.kept = None;
    }

    /// Lets no more than `limit` bytes come from the source, framing included.
    pub fn limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    fn count(&mut self, used: usize) -> Result<(), CopyError> {
        self.bytes += used as u64;
        if self.bytes > self.limit { Err(CopyError::TooLong) } else { Ok(()) }
    }

    /// Writes `bytes` before whatever comes from the source.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    /// Where the body stands: of what was read, not of what was written.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Lets another engine move the body on.
    pub fn framing_mut(&mut self) -> &mut Framing {
        &mut self.framing
    }

    /// Whether the source has sent the whole body.
    pub fn source_done(&self) -> bool {
        self.framing.is_done()
    }

    /// How the body is written.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Lets something else be written than what comes from the source.
    pub fn output_mut(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Body bytes that came from the source, framing included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads that found some of it: about the tokens of a stream so far.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// In how many reads the whole body would have come, `moved` bytes of which another engine has moved.
    pub fn reads_with(&self, moved: u64) -> u64 {
        let each = (self.bytes - self.ahead) / self.reads.max(1);
        self.reads.saturating_add(moved.div_ceil(each.max(1)))
    }

    /// When bytes last moved.
    pub fn progress(&self) -> Instant {
        self.progress
    }

    /// Notes that another engine moved bytes.
    pub fn touch(&mut self) {
        self.progress = Instant::now();
    }

    /// Moves bytes until the body ends or neither side can go on.
    ///
    /// With a `hand_over`, returns as soon as everything read has been written and the source has nothing
    /// more at hand.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &mut Stream,
        hand_over: HandoverPoint,
    ) -> Poll<Result<Step, CopyError>> {
        let step = self.poll_step(cx, from, to, hand_over);
        if !matches!(step, Poll::Ready(Ok(Step::Drained))) {
            to.hold_back(false);
        }
        step
    }

    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &mut Stream,
        hand_over: HandoverPoint,
    ) -> Poll<Result<Step, CopyError>> {
        loop {
            // Before what is queued is written: a head goes in one write with the body behind it.
            if !from.input.is_empty() && !self.framing.is_done() {
                self.take_input(from)?;
            }
            if self.framing.is_done() {
                let end = self.output.end();
                self.push(Bytes::from_static(end));
            }
            let holds = hand_over == HandoverPoint::HeldBack;
            if holds && !self.queue.is_empty() {
                to.hold_back(true);
            }
            ready!(self.poll_flush(cx, to)).map_err(CopyError::TargetGone)?;
            if self.framing.is_done() {
                return Poll::Ready(Ok(Step::Complete));
            }
            match self.poll_pass(cx, from, to, holds) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if hand_over != HandoverPoint::Never && self.queue.is_empty() => {
                    return Poll::Ready(Ok(Step::Drained));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Writes what is queued.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<io::Result<()>> {
        while !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); WRITE_BUFFERS];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(&self.queue) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            let mut n = ready!(to.poll_write_vectored(cx, &slices[..count]))?;
            self.progress = Instant::now();
            while n > 0 {
                let front = self.queue.front_mut().expect("no more was written than was queued");
                if n < front.len() {
                    front.advance(n);
                    break;
                }
                n -= front.len();
                self.queue.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn copy(&mut self, body: &[u8]) {
        if let Some(kept) = &mut self.kept {
            let room = self.keep - kept.len();
            kept.extend_from_slice(&body[..body.len().min(room)]);
        }
    }

    /// Takes over what was read before, as far as it belongs to the body.
    fn take_input(&mut self, from: &mut Conn) -> Result<(), CopyError> {
        let (used, len) = self.advance(&mut from.input)?;
        self.count(used)?;
        if self.output.is_verbatim() {
            self.ahead += used as u64;
        }
        let mut bytes = from.input.split_to(used);
        bytes.truncate(len);
        let body = bytes.freeze();
        from.release_input();
        self.copy(&body);
        let done = self.framing.is_done();
        match &mut self.output {
            Output::Held(held) => held.add(&body),
            Output::Events(events) if !body.is_empty() => {
                let frame = events.frame(&body, done);
                let [head, _, tail] = frame.slices(&body);
                let (head, tail) = (Bytes::copy_from_slice(&head), Bytes::copy_from_slice(&tail));
                [head, body, tail].into_iter().for_each(|bytes| self.push(bytes));
            }
            Output::Events(_) => {}
            Output::Verbatim | Output::Payload => self.push(body),
        }
        Ok(())
    }

    /// Follows the body through `bytes`. Says how many belong to it, and how many are to be written: those
    /// stand at the start of `bytes` then.
    fn advance(&mut self, bytes: &mut [u8]) -> Result<(usize, usize), FramingError> {
        if self.output.is_verbatim() {
            let used = self.framing.advance(bytes)?;
            return Ok((used, used));
        }
        compact(&mut self.framing, bytes)
    }

    /// Reads once and writes what came.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &mut Stream,
        holds: bool,
    ) -> Poll<Result<(), CopyError>> {
        with_read_buffer(|scratch| {
            let n = ready!(from.stream.poll_read(cx, scratch)).map_err(CopyError::SourceBroken)?;
            self.progress = Instant::now();
            if n == 0 {
                if !self.framing.is_until_close() {
                    return Poll::Ready(Err(CopyError::SourceClosed));
                }
                self.framing = Framing::none();
                return Poll::Ready(Ok(()));
            }
            let arrived = &mut scratch[..n];
            self.reads += 1;
            let (used, len) = self.advance(arrived)?;
            self.count(used)?;
            from.input.extend_from_slice(&arrived[used..]);
            let body = &arrived[..len];
            self.copy(body);
            if body.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if holds {
                to.hold_back(true);
            }
            Poll::Ready(self.write(cx, body, to).map_err(CopyError::TargetGone))
        })
    }

    /// Writes `body`, as the output has it; what the target does not take is queued.
    fn write(&mut self, cx: &mut Context<'_>, body: &[u8], to: &mut Stream) -> io::Result<()> {
        let taken = |written| match written {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(0),
        };
        let last = self.framing.is_done();
        match &mut self.output {
            Output::Held(held) => held.add(body),
            Output::Verbatim | Output::Payload => {
                let written = taken(to.poll_write(cx, body))?;
                self.push(Bytes::copy_from_slice(&body[written..]));
            }
            Output::Events(events) => {
                let frame = events.frame(body, last);
                let mut slices = &mut frame.slices(body)[..];
                let written = taken(to.poll_write_vectored(cx, slices))?;
                IoSlice::advance_slices(&mut slices, written);
                let rest: usize = slices.iter().map(|slice| slice.len()).sum();
                if rest > 0 {
                    let mut left = BytesMut::with_capacity(rest);
                    slices.iter().for_each(|slice| left.extend_from_slice(slice));
                    self.push(left.freeze());
                }
            }
        }
        Ok(())
    }
}

/// Follows a body through `bytes`, and moves its payload to their start. Says how many of them belong to the
/// body, and how many are payload. What is behind the body stays where it is.
///
/// # Errors
/// When the bytes are no chunked body.
pub fn compact(framing: &mut Framing, bytes: &mut [u8]) -> Result<(usize, usize), FramingError> {
    let (mut at, mut len) = (0, 0);
    while at < bytes.len() && !framing.is_done() {
        if framing.in_payload() {
            let n = framing.skip((bytes.len() - at) as u64) as usize;
            bytes.copy_within(at..at + n, len);
            at += n;
            len += n;
        } else {
            framing.step(bytes[at]);
            if let Some(error) = framing.error() {
                return Err(error);
            }
            at += 1;
        }
    }
    Ok((at, len))
}

/// [`Framing::advance`], with every run of payload bytes given to `payload`.
///
/// # Errors
/// When the bytes are no chunked body.
pub fn advance_payload(
    framing: &mut Framing,
    bytes: &[u8],
    mut payload: impl FnMut(&[u8]),
) -> Result<usize, FramingError> {
    let mut at = 0;
    while at < bytes.len() && !framing.is_done() {
        if framing.in_payload() {
            let n = framing.skip((bytes.len() - at) as u64) as usize;
            payload(&bytes[at..at + n]);
            at += n;
        } else {
            framing.step(bytes[at]);
            if let Some(error) = framing.error() {
                return Err(error);
            }
            at += 1;
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::{future::poll_fn, io::Read, io::Write};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn payload_runs_are_the_body_without_its_framing() {
        let mut framing = Framing::chunked();
        let mut payload = Vec::new();
        let body = b"3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\nnext";
        let used =
            advance_payload(&mut framing, body, |part| payload.extend_from_slice(part)).unwrap();
        assert_eq!((used, payload.as_slice()), (body.len() - 4, &b"abcde"[..]));
    }

    #[tokio::test]
    async fn surplus_stays_with_the_source_and_queued_bytes_go_first() {
        let (mut sender, from) = pair();
        let (to, mut receiver) = pair();
        let mut from = Conn::new(Stream::new(from).unwrap());
        let mut to = Stream::new(to).unwrap();
        sender.write_all(b"bodyNEXT").unwrap();
        let mut copier = Copier::new(Framing::length(4), Output::Verbatim);
        copier.push(Bytes::from_static(b"head "));
        let step =
            poll_fn(|cx| copier.poll(cx, &mut from, &mut to, HandoverPoint::Never)).await.unwrap();
        assert_eq!(step, Step::Complete);
        drop(to);
        let mut got = String::new();
        receiver.read_to_string(&mut got).unwrap();
        assert_eq!(got, "head body");
        // The surplus may have come with the body or may still be in the socket.
        while from.input.len() < 4 {
            poll_fn(|cx| from.poll_fill(cx, 64)).await.unwrap();
        }
        assert_eq!(&from.input[..], b"NEXT");
    }

    #[tokio::test]
    async fn a_close_is_an_end_only_where_the_framing_says_so() {
        for (framing, clean) in [
            (Framing::length(9), false),
            (Framing::chunked(), false),
            (Framing::until_close(), true),
        ] {
            let (mut sender, from) = pair();
            let (to, _receiver) = pair();
            let mut from = Conn::new(Stream::new(from).unwrap());
            let mut to = Stream::new(to).unwrap();
            sender.write_all(b"4\r\nbod").unwrap();
            drop(sender);
            let mut copier = Copier::new(framing, Output::Verbatim);
            let end = poll_fn(|cx| copier.poll(cx, &mut from, &mut to, HandoverPoint::Never)).await;
            match end {
                Ok(step) => assert!(clean && step == Step::Complete),
                Err(error) => assert!(!clean && matches!(error, CopyError::SourceClosed)),
            }
        }
    }
}
