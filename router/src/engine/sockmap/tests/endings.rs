//! How hand-overs end: closings, resets, stalls, and a caller that gives up.

use std::time::Instant;

use super::*;

/// Resets a connection, as a peer that crashed does.
fn reset(stream: TcpStream) {
    let socket = socket2::SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

async fn read_to_end(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Waits until the kernel redirects for this connection.
async fn until_handed_over(engine: &Sockmap) {
    while engine.inner.events.is_idle() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_body_until_close_ends_with_the_sources_fin() {
    // With the FIN in the same packet as the last bytes, and in one of its own.
    for apart in [false, true] {
        with_engine(Settings::default(), move |engine| async move {
            let (mut from, mut source) = connection().await;
            let (mut to, mut target) = connection().await;
            let far = tokio::task::spawn_local({
                let engine = engine.clone();
                async move {
                    until_handed_over(&engine).await;
                    source.write_all(&pattern(1, 50_000)).await.unwrap();
                    if apart {
                        let mut got = vec![0; 50_000];
                        target.read_exact(&mut got).await.unwrap();
                        drop(source);
                        return (got, target);
                    }
                    drop(source);
                    let mut got = vec![0; 50_000];
                    target.read_exact(&mut got).await.unwrap();
                    (got, target)
                }
            });
            let mut framing = Framing::until_close();
            let outcome =
                engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
            assert_eq!(outcome.end, HandoverEnd::SourceClosed);
            assert_eq!(outcome.bytes, 50_000);
            let (got, mut target) = far.await.unwrap();
            assert!(got == pattern(1, 50_000));
            // The target is drained, and none the worse for the FIN.
            to.stream.write_all(b"more").await.unwrap();
            to.stream.shutdown_write().unwrap();
            assert_eq!(read_to_end(&mut target).await.unwrap(), b"more");
        });
    }
}

#[test]
fn a_fin_before_the_end_is_reported_after_all_bytes_went_out() {
    for round in 0..50 {
        with_engine(Settings::default(), move |engine| async move {
            let (mut from, mut source) = connection().await;
            let (mut to, mut target) = connection().await;
            let far = tokio::task::spawn_local({
                let engine = engine.clone();
                async move {
                    until_handed_over(&engine).await;
                    source.write_all(&pattern(round, 10_000)).await.unwrap();
                }
            });
            let mut framing = Framing::length(10_001);
            let outcome =
                engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
            assert_eq!(outcome.end, HandoverEnd::SourceClosed);
            assert_eq!(framing.remaining, 1);
            far.await.unwrap();
            drop(to);
            assert!(read_to_end(&mut target).await.unwrap() == pattern(round, 10_000));
        });
    }
}

#[test]
fn a_reset_source_is_noticed_at_once() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let far = tokio::task::spawn_local({
            let engine = engine.clone();
            async move {
                until_handed_over(&engine).await;
                source.write_all(b"some").await.unwrap();
                let mut got = [0; 4];
                target.read_exact(&mut got).await.unwrap();
                reset(source);
                (Instant::now(), target)
            }
        });
        let mut framing = Framing::length(100);
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
        assert_eq!(outcome.end, HandoverEnd::SourceBroken);
        assert_eq!(outcome.bytes, 4);
        assert!(far.await.unwrap().0.elapsed() < Duration::from_millis(50));
    });
}

#[test]
fn a_target_that_takes_all_and_closes_has_had_all() {
    // A server that is slow to read a request, then answers and closes: the engine is still
    // waiting for the backlog to go when it sees the close.
    const LEN: usize = 300_000;
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, target) = connection().await;
        socket2::SockRef::from(&target).set_recv_buffer_size(64 * 1024).unwrap();
        socket2::SockRef::from(&to.stream).set_send_buffer_size(64 * 1024).unwrap();
        let mut target = target.into_std().unwrap();
        target.set_nonblocking(false).unwrap();
        let far = tokio::task::spawn_local({
            let engine = engine.clone();
            async move {
                until_handed_over(&engine).await;
                source.write_all(&pattern(1, LEN)).await.unwrap();
                let reader = tokio::task::spawn_blocking(move || {
                    let mut got = vec![0; LEN];
                    std::io::Read::read_exact(&mut target, &mut got).unwrap();
                    got
                });
                (reader.await.unwrap(), source)
            }
        });
        let mut framing = Framing::length(LEN as u64);
        let outcome = engine
            .hand_over(Handover {
                watch_target: true,
                ..Handover::new(&mut from, &mut to, &mut framing, IDLE)
            })
            .await;
        assert_eq!((outcome.end, outcome.bytes), (HandoverEnd::Ended, LEN as u64));
        assert!(far.await.unwrap().0 == pattern(1, LEN));
    });
}

#[test]
fn a_target_that_leaves_is_noticed_at_once() {
    for by_reset in [false, true] {
        with_engine(Settings::default(), move |engine| async move {
            let (mut from, mut source) = connection().await;
            let (mut to, mut target) = connection().await;
            let far = tokio::task::spawn_local({
                let engine = engine.clone();
                async move {
                    until_handed_over(&engine).await;
                    source.write_all(b"some").await.unwrap();
                    let mut got = [0; 4];
                    target.read_exact(&mut got).await.unwrap();
                    if by_reset {
                        reset(target)
                    } else {
                        drop(target)
                    }
                    (Instant::now(), source)
                }
            });
            let mut framing = Framing::length(100);
            let outcome =
                engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
            assert_eq!(outcome.end, HandoverEnd::TargetGone);
            let (left, mut source) = far.await.unwrap();
            assert!(left.elapsed() < Duration::from_millis(50));
            // Nothing is redirected any more, and the source's user sees what comes.
            source.write_all(b"after").await.unwrap();
            std::future::poll_fn(|cx| from.poll_fill(cx, 100)).await.unwrap();
            assert_eq!(&from.input[..], b"after");
        });
    }
}

#[test]
fn a_half_closed_target_may_be_sent_to_when_configured() {
    let settings = Settings { half_closed_targets: true, ..Settings::default() };
    with_engine(settings, |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let far = tokio::task::spawn_local({
            let engine = engine.clone();
            async move {
                until_handed_over(&engine).await;
                target.shutdown().await.unwrap();
                source.write_all(b"some").await.unwrap();
                let mut got = [0; 4];
                target.read_exact(&mut got).await.unwrap();
                reset(target);
                (Instant::now(), source)
            }
        });
        let mut framing = Framing::length(100);
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
        assert_eq!((outcome.end, outcome.bytes), (HandoverEnd::TargetGone, 4));
        assert!(far.await.unwrap().0.elapsed() < Duration::from_millis(50));
    });
}

#[test]
fn a_target_that_answers_early_interrupts() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let far = tokio::task::spawn_local({
            let engine = engine.clone();
            async move {
                until_handed_over(&engine).await;
                source.write_all(b"some").await.unwrap();
                let mut got = [0; 4];
                target.read_exact(&mut got).await.unwrap();
                target.write_all(b"no").await.unwrap();
                (source, target)
            }
        });
        let mut framing = Framing::length(100);
        let outcome = engine
            .hand_over(Handover {
                watch_target: true,
                ..Handover::new(&mut from, &mut to, &mut framing, IDLE)
            })
            .await;
        assert_eq!(outcome.end, HandoverEnd::TakenBack(TakeBack::TargetReadable));
        assert_eq!((outcome.bytes, framing.remaining), (4, 96));
        std::future::poll_fn(|cx| to.poll_fill(cx, 100)).await.unwrap();
        assert_eq!(&to.input[..], b"no");
        drop(far.await.unwrap());
    });
}

#[test]
fn closed_connections_are_declined() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, source) = connection().await;
        let (mut to, _target) = connection().await;
        drop(source);
        let mut framing = Framing::length(100);
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
        assert_eq!(outcome.end, HandoverEnd::Declined(Decline::NotEstablished));
        let end = std::future::poll_fn(|cx| from.poll_fill(cx, 100)).await.unwrap();
        assert_eq!(end, 0, "the FIN is still seen");

        let (mut from, _source) = connection().await;
        let (mut to, target) = connection().await;
        drop(target);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
        assert_eq!(outcome.end, HandoverEnd::Declined(Decline::NotEstablished));
    });
}

#[test]
fn silence_ends_after_the_idle_time() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        // Long beside what a busy machine may add to a pause.
        let idle = Duration::from_secs(1);
        let far = tokio::task::spawn_local({
            let engine = engine.clone();
            async move {
                until_handed_over(&engine).await;
                // Bytes that come in time begin the idle time anew.
                for _ in 0..4 {
                    tokio::time::sleep(idle / 4).await;
                    source.write_all(b"x").await.unwrap();
                }
                let mut got = [0; 4];
                target.read_exact(&mut got).await.unwrap();
                (source, target)
            }
        });
        let start = Instant::now();
        let mut framing = Framing::length(100);
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, idle)).await;
        assert_eq!((outcome.end, outcome.bytes), (HandoverEnd::Idle, 4));
        assert!(start.elapsed() >= idle * 2);
        drop(far.await.unwrap());
    });
}

#[test]
fn packets_that_the_program_was_not_told_of_are_found() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let body = pattern(5, 100_000);
        source.write_all(&body[..1000]).await.unwrap();
        // Bytes that were there before the source joined: the kernel tells nobody, just as when it
        // loses a wake-up.
        std::future::poll_fn(|cx| from.stream.poll_readable(cx)).await.unwrap();
        let inner = &engine.inner;
        join::source_unkicked(&inner.object, &mut from, inner.worker).unwrap();
        let mut framing = Framing::length(body.len() as u64);
        let reader = tokio::task::spawn_local(async move {
            let mut got = vec![0; body.len()];
            target.read_exact(&mut got[..1000]).await.unwrap();
            source.write_all(&body[1000..]).await.unwrap();
            target.read_exact(&mut got[1000..]).await.unwrap();
            assert!(got == body);
            (source, target)
        });
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
        assert_eq!((outcome.end, outcome.bytes), (HandoverEnd::Ended, 100_000));
        drop(reader.await.unwrap());
    });
}

#[test]
fn a_stalled_target_bounds_what_the_kernel_holds_and_gets_all_in_the_end() {
    let settings = Settings { backlog_bytes: 200_000, ..Settings::default() };
    with_engine(settings, |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let body = pattern(3, 40_000_000);
        let sent = body.clone();
        let writer = tokio::task::spawn_local(async move {
            let mut sent_now = 0;
            while sent_now < sent.len() {
                sent_now += source.write(&sent[sent_now..]).await.unwrap();
            }
            source
        });
        let idle = Duration::from_millis(300);
        let mut framing = Framing::length(body.len() as u64);
        let start = Instant::now();
        let mut ends = Vec::new();
        // Nobody reads: the kernel gives up at its limit, and the drain does not end.
        while ends.last() != Some(&HandoverEnd::Idle) {
            let outcome =
                engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, idle)).await;
            ends.push(outcome.end);
            if outcome.end == HandoverEnd::Declined(Decline::Unread)
                || matches!(outcome.end, HandoverEnd::TakenBack(_))
            {
                if from.input.is_empty() {
                    std::future::poll_fn(|cx| from.poll_fill(cx, 64 * 1024)).await.unwrap();
                }
                let n = framing.advance(&from.input).unwrap();
                let bytes = from.input.split_to(n);
                if tokio::time::timeout(idle, to.stream.write_all(&bytes)).await.is_err() {
                    // The target's own buffer is full; that is user space's bound.
                    println!("stalled in user space after {:?}: {ends:?}", start.elapsed());
                    return;
                }
            }
        }
        let waiting = backlog(&to).unwrap();
        assert!(waiting > 0 && waiting <= 200_000, "{waiting}");
        // Once it reads, everything comes.
        let reader = tokio::task::spawn_local(async move {
            let mut got = vec![0; body.len()];
            target.read_exact(&mut got).await.unwrap();
            assert!(got == body);
            target
        });
        while backlog(&to).unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        relay(&engine, &mut from, &mut to, &mut framing, None).await;
        drop((reader.await.unwrap(), writer.await.unwrap()));
    });
}

#[test]
fn malformed_chunks_come_back_as_they_were() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let far = tokio::task::spawn_local({
            let engine = engine.clone();
            async move {
                until_handed_over(&engine).await;
                source.write_all(b"3\r\nabc\r\n").await.unwrap();
                let mut got = [0; 8];
                target.read_exact(&mut got).await.unwrap();
                source.write_all(b"2\r\nxy\r\n-1\r\n").await.unwrap();
                (source, target)
            }
        });
        let mut framing = Framing::chunked();
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
        assert_eq!(outcome.end, HandoverEnd::TakenBack(TakeBack::Malformed));
        assert_eq!(outcome.bytes, 8);
        std::future::poll_fn(|cx| from.poll_fill(cx, 100)).await.unwrap();
        assert!(framing.advance(&from.input).is_err());
        drop(far.await.unwrap());
    });
}

#[test]
fn a_dropped_hand_over_gives_the_counter_back_to_its_holder() {
    with_engine(Settings::default(), |engine| async move {
        let object = Arc::clone(&engine.inner.object);
        let before = object.sources_in_use();
        for ended in [false, true] {
            let (mut from, mut source) = connection().await;
            let (mut to, mut target) = connection().await;
            let counter = object.counter(63);
            counter.fetch_add(1, SeqCst);
            let mut framing = Framing::length(4);
            {
                let mut handover = std::pin::pin!(engine.hand_over(Handover {
                    release: Some(63),
                    ..Handover::new(&mut from, &mut to, &mut framing, IDLE)
                }));
                // Begins, and is not polled again.
                let first =
                    std::future::poll_fn(|cx| Poll::Ready(handover.as_mut().poll(cx))).await;
                assert!(first.is_pending());
                if ended {
                    source.write_all(b"body").await.unwrap();
                    let mut got = [0; 4];
                    target.read_exact(&mut got).await.unwrap();
                    assert_eq!(counter.load(SeqCst), 0, "released by the program");
                }
            }
            assert_eq!(counter.load(SeqCst), 1, "the caller's again");
            counter.fetch_sub(1, SeqCst);
            drop((from, to));
        }
        assert!(engine.inner.events.is_idle());
        // Other tests run beside this one, on the same maps.
        let _ = before;
    });
}
