//! What both kernel engines are tested with.

use std::{future::poll_fn, io::ErrorKind, task::Poll, time::Duration};

use router_ebpf::framing::Framing;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    Attempts, Copier, Handover, HandoverPoint, KernelEngine, Output, Policy, Step,
    outcome::{Decline, HandoverEnd, HandoverOutcome},
    tcp,
};
use crate::{config::EngineMode, engine::Conn};

const IDLE: Duration = Duration::from_secs(60);
const PIECES: usize = 20;
const PIECE: usize = 100;

/// Each piece follows as soon as the target has the one before, and is there before the gateway comes to
/// hand over. The kernel moves the body from the second attempt on.
pub(super) async fn always_quicker(
    engine: &KernelEngine,
    (from, source): (&mut Conn, &mut TcpStream),
    (to, target): (&mut Conn, &mut TcpStream),
) {
    let body: Vec<u8> = (0..PIECES * PIECE).map(|at| (at / 7) as u8).collect();
    let mut copier = Copier::new(Framing::length(body.len() as u64), Output::Verbatim);
    let policy =
        Policy { mode: EngineMode::Splice, hand_over_from_bytes: 0, hand_over_from_reads: 0 };
    let mut attempts = Attempts::default();
    let mut refused = 0;
    let mut got = [0; PIECE];
    source.write_all(&body[..PIECE]).await.unwrap();
    for (number, piece) in body.chunks(PIECE).enumerate() {
        wait(from).await;
        let moment = policy.hand_over(&copier, attempts);
        let step = poll_fn(|cx| {
            Poll::Ready(copier.poll(cx, from, &mut to.stream, moment).map(Result::unwrap))
        });
        let step = step.await;
        let end = (number + 1) * PIECE;
        assert_eq!((copier.bytes(), step.is_ready()), (end as u64, moment != HandoverPoint::Never));
        if moment == HandoverPoint::HeldBack {
            assert_eq!(step, Poll::Ready(Step::Drained));
            assert_eq!(target.try_read(&mut got).unwrap_err().kind(), ErrorKind::WouldBlock);
            let framing = copier.framing_mut();
            let handover = engine.hand_over(Handover::new(from, to, framing, IDLE));
            let far = async {
                target.read_exact(&mut got).await.unwrap();
                assert_eq!(got, piece);
                source.write_all(&body[end..]).await.unwrap();
                let mut rest = vec![0; body.len() - end];
                target.read_exact(&mut rest).await.unwrap();
                assert!(rest == body[end..]);
            };
            let (outcome, ()) = tokio::join!(handover, far);
            let bytes = (body.len() - end) as u64;
            assert_eq!(
                outcome,
                HandoverOutcome { bytes, released: false, end: HandoverEnd::Ended }
            );
            assert_eq!(refused, 1);
            return;
        }
        target.read_exact(&mut got).await.unwrap();
        assert_eq!(got, piece);
        source.write_all(&body[end..end + PIECE]).await.unwrap();
        wait(from).await;
        if step.is_ready() {
            let framing = copier.framing_mut();
            let handover = engine.hand_over(Handover::new(from, to, framing, IDLE));
            let outcome = handover.await;
            assert_eq!(outcome.end, HandoverEnd::Declined(Decline::Unread));
            attempts.note(&outcome.end, &copier, 0);
            refused += 1;
        }
    }
    panic!("it was not handed over");
}

/// Waits until a piece is there, and the event loop has said so.
async fn wait(from: &Conn) {
    while from.input.is_empty() {
        poll_fn(|cx| from.stream.poll_readable(cx)).await.unwrap();
        if tcp::receive_queue(&from.stream).unwrap() >= PIECE as u32 {
            break;
        }
    }
}
