//! Bodies arrive whole, in order, once.

use hashbrown::HashMap;

use super::*;
use crate::engine::{KernelEngine, testing::always_quicker};

/// Writes `bytes` in random pieces, with pauses of other tasks' work between.
async fn write_in_pieces(stream: &mut TcpStream, rng: &mut fastrand::Rng, bytes: &[u8]) {
    let most = [1, 50, 2_000, 100_000][rng.usize(..4)].max(bytes.len() / 200);
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = rng.usize(1..=most).min(rest.len());
        stream.write_all(&rest[..n]).await.unwrap();
        rest = &rest[n..];
        if rng.u8(..) < 100 {
            tokio::task::yield_now().await;
        }
    }
}

fn random_body(rng: &mut fastrand::Rng, largest: usize) -> (Framing, Vec<u8>) {
    let largest = [10, 300, 20_000, largest][rng.usize(..4)];
    let payload = pattern(rng.u64(..), rng.usize(0..=largest));
    if rng.bool() {
        (Framing::length(payload.len() as u64), payload)
    } else {
        let most = [1, 200, 5_000, 70_000][rng.usize(..4)].max(payload.len() / 3_000 + 1);
        (Framing::chunked(), chunked(rng, &payload, most))
    }
}

/// Sends a body part by part, each once the one before has arrived, so that no backlog builds up.
/// Returns whether all arrived as sent.
async fn pass_in_parts(source: &mut TcpStream, target: &mut TcpStream, body: &[u8], part: usize) {
    let mut got = vec![0; part];
    for part in body.chunks(part) {
        source.write_all(part).await.unwrap();
        let got = &mut got[..part.len()];
        target.read_exact(got).await.unwrap();
        assert!(got == part);
    }
}

#[test]
fn a_body_is_carried_to_its_end_by_the_kernel_alone() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let payload = pattern(1, 300_000);
        let mut rng = fastrand::Rng::with_seed(1);
        let bodies = [
            (Framing::length(payload.len() as u64), payload.clone()),
            (Framing::chunked(), chunked(&mut rng, &payload, 200)),
            (Framing::chunked(), chunked(&mut rng, &payload, 100_000)),
            (Framing::chunked(), b"0\r\n\r\n".to_vec()),
            (Framing::length(1), b"x".to_vec()),
        ];
        for (mut framing, body) in bodies {
            let length = body.len() as u64;
            let far = tokio::task::spawn_local(async move {
                pass_in_parts(&mut source, &mut target, &body, 1_777).await;
                (source, target)
            });
            let outcome =
                engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
            assert_eq!(
                outcome,
                HandoverOutcome { bytes: length, released: false, end: HandoverEnd::Ended }
            );
            assert!(framing.is_done());
            (source, target) = far.await.unwrap();
        }
        // User space has the connections back, both ways.
        source.write_all(b"next").await.unwrap();
        std::future::poll_fn(|cx| from.poll_fill(cx, 100)).await.unwrap();
        assert_eq!(&from.input[..], b"next");
        to.stream.write_all(b"reply").await.unwrap();
        let mut got = [0; 5];
        target.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"reply");
    });
}

#[test]
fn a_source_that_is_always_quicker_is_handed_over() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let carrier = KernelEngine::Sockmap(engine);
        always_quicker(&carrier, (&mut from, &mut source), (&mut to, &mut target)).await;
    });
}

/// One pair of connections carries message after message, in both framings, sometimes with the next
/// one right behind; every counter is released once.
fn keep_alive(seed: u64, rounds: usize, settings: Settings) {
    with_engine(settings, |engine| async move {
        let counter = engine.inner.object.counter(seed as u32 % 64);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let messages: Vec<_> = (0..rounds).map(|_| random_body(&mut rng, 1_000_000)).collect();
        let all: Vec<u8> = messages.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let expected = all.clone();
        let mut writer_rng = rng.fork();
        let writer = tokio::task::spawn_local(async move {
            write_in_pieces(&mut source, &mut writer_rng, &all).await;
            source
        });
        let reader = tokio::task::spawn_local(async move {
            let mut got = vec![0; expected.len()];
            target.read_exact(&mut got).await.unwrap();
            let shift = got.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(shift, None, "the first differing byte");
            target
        });
        let mut ends = HashMap::new();
        for (framing, _) in &messages {
            let mut framing = *framing;
            counter.fetch_add(1, SeqCst);
            let slot = seed as u32 % 64;
            let (released, reasons) =
                relay(&engine, &mut from, &mut to, &mut framing, Some(slot)).await;
            for reason in reasons {
                *ends.entry(format!("{reason:?}")).or_insert(0) += 1;
            }
            if !released {
                counter.fetch_sub(1, SeqCst);
            }
            assert_eq!(counter.load(SeqCst), 0);
            assert!(framing.is_done());
        }
        println!("seed {seed}: {ends:?}");
        drop((reader.await.unwrap(), writer.await.unwrap()));
    });
}

#[test]
fn a_connection_is_handed_over_again_and_again() {
    for seed in 0..12 {
        keep_alive(seed, 60, Settings::default());
    }
}

#[test]
fn a_small_backlog_limit_hands_back_and_loses_nothing() {
    for seed in 20..26 {
        keep_alive(seed, 30, Settings { backlog_bytes: 3_000, ..Settings::default() });
    }
}

/// Both directions of the same two connections are handed over, in turn and at once.
#[test]
fn both_directions() {
    with_engine(Settings::default(), |engine| async move {
        let (mut client, mut client_far) = connection().await;
        let (mut instance, mut instance_far) = connection().await;
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..200 {
            let (framing, request) = random_body(&mut rng, 300_000);
            let (answer_framing, answer) = random_body(&mut rng, 300_000);
            let far = tokio::task::spawn_local({
                let (request, answer) = (request.clone(), answer.clone());
                let mut rng = rng.fork();
                async move {
                    let mut got = vec![0; request.len()];
                    let (_, _) =
                        tokio::join!(write_in_pieces(&mut client_far, &mut rng, &request), async {
                            instance_far.read_exact(&mut got).await.unwrap()
                        });
                    assert!(got == request, "request of round {round}");
                    let mut got = vec![0; answer.len()];
                    let (_, _) = tokio::join!(
                        write_in_pieces(&mut instance_far, &mut rng, &answer),
                        async { client_far.read_exact(&mut got).await.unwrap() }
                    );
                    assert!(got == answer, "answer of round {round}");
                    (client_far, instance_far)
                }
            });
            let mut framing = framing;
            relay(&engine, &mut client, &mut instance, &mut framing, None).await;
            let mut framing = answer_framing;
            relay(&engine, &mut instance, &mut client, &mut framing, None).await;
            (client_far, instance_far) = far.await.unwrap();
        }
    });
}

/// Bytes that arrive at the very moment at which the source joins.
#[test]
fn no_byte_is_missed_when_a_source_joins() {
    with_engine(Settings::default(), |engine| async move {
        let mut carried = 0;
        for round in 0..2_000u64 {
            let (mut from, source) = connection().await;
            let (mut to, mut target) = connection().await;
            let mut source = source.into_std().unwrap();
            source.set_nonblocking(false).unwrap();
            let body = pattern(round, 4_000);
            let sent = body.clone();
            // A thread of its own, so that bytes come while the engine works.
            let writer = std::thread::spawn(move || {
                use std::io::Write;
                for part in sent.chunks(1 + round as usize % 97 * 4) {
                    source.write_all(part).unwrap();
                }
                source
            });
            let mut framing = Framing::length(body.len() as u64);
            let (_, ends) = relay(&engine, &mut from, &mut to, &mut framing, None).await;
            carried += ends.iter().filter(|end| **end == HandoverEnd::Ended).count();
            let mut got = vec![0; body.len()];
            target.read_exact(&mut got).await.unwrap();
            assert!(got == body, "round {round}: {ends:?}");
            drop(writer.join().unwrap());
        }
        println!("{carried} of 2000 bodies ended in the kernel");
        assert!(carried > 20, "the race was never entered");
    });
}
