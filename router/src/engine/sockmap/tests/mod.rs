//! Real bytes through real sockets and the real program.

mod endings;
mod memory;
mod overlap;
mod relay;

use crate::engine::Conn;
use std::{
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use router_ebpf::framing::Framing;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::LocalSet,
};

use super::*;
use crate::{kernel::sockmap::Options, net::Stream};

/// Longer than any test.
const IDLE: Duration = Duration::from_secs(300);

/// The programs, loaded once for all tests; or why the tests are skipped.
fn object() -> Option<Arc<SockmapObject>> {
    static OBJECT: OnceLock<Result<Arc<SockmapObject>, String>> = OnceLock::new();
    let loaded = OBJECT.get_or_init(|| {
        SockmapObject::load(&Options { directions: 4096, counters: 64 }).map_err(|e| e.to_string())
    });
    match loaded {
        Ok(object) => Some(Arc::clone(object)),
        Err(error) => {
            crate::testing::skip(error);
            None
        }
    }
}

/// Runs a test with an engine of its own.
fn with_engine<F: Future<Output = ()>>(settings: Settings, test: impl FnOnce(Sockmap) -> F) {
    static WORKER: AtomicU32 = AtomicU32::new(0);
    let Some(object) = object() else { return };
    let worker = WORKER.fetch_add(1, SeqCst);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async move {
        let watch = HangupWatch::new().unwrap();
        let engine = Sockmap::new(object, watch.clone(), worker, settings).unwrap();
        tokio::task::spawn_local(watch.drive());
        tokio::task::spawn_local(engine.clone().drive());
        tokio::time::timeout(Duration::from_secs(120), test(engine)).await.expect("a test hangs");
    });
}

/// A connection of the gateway's, and its far end.
async fn connection() -> (Conn, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    far.set_nodelay(true).unwrap();
    let (near, _) = listener.accept().await.unwrap();
    (Conn::new(Stream::new(near.into_std().unwrap()).unwrap()), far)
}

/// Bytes that are all different enough to show any shift.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// A chunked body with the given payload, in chunks of random sizes up to `most`.
fn chunked(rng: &mut fastrand::Rng, payload: &[u8], most: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let mut rest = payload;
    while !rest.is_empty() {
        let n = rng.usize(1..=most).min(rest.len());
        let extension = if rng.u8(..) < 30 { ";name=\"value\"" } else { "" };
        let size = if rng.bool() { format!("{n:x}") } else { format!("{n:X}") };
        let zeros = if rng.u8(..) < 20 { "000" } else { "" };
        body.extend_from_slice(format!("{zeros}{size}{extension}\r\n").as_bytes());
        body.extend_from_slice(&rest[..n]);
        body.extend_from_slice(b"\r\n");
        rest = &rest[n..];
    }
    body.extend_from_slice(b"0\r\n");
    if rng.u8(..) < 50 {
        body.extend_from_slice(b"Trailer: yes\r\n");
    }
    body.extend_from_slice(b"\r\n");
    body
}

/// What a relay does with a body: hands it over, and goes on in user space when handed back, until the
/// body has ended. Returns what the last hand-over said, and why each came back.
async fn relay(
    engine: &Sockmap,
    from: &mut Conn,
    to: &mut Conn,
    framing: &mut Framing,
    release: Option<u32>,
) -> (bool, Vec<HandoverEnd>) {
    let mut ends = Vec::new();
    let mut released = false;
    while !framing.is_done() {
        if from.input.is_empty() {
            let outcome = engine
                .hand_over(Handover {
                    release: release.filter(|_| !released),
                    ..Handover::new(from, to, framing, IDLE)
                })
                .await;
            released |= outcome.released;
            ends.push(outcome.end);
            match outcome.end {
                HandoverEnd::Ended => break,
                HandoverEnd::TakenBack(_) | HandoverEnd::Declined(_) => {}
                _ => break,
            }
        }
        if from.input.is_empty()
            && std::future::poll_fn(|cx| from.poll_fill(cx, 64 * 1024)).await.unwrap() == 0
        {
            ends.push(HandoverEnd::SourceClosed);
            break;
        }
        let n = framing.advance(&from.input).unwrap();
        let bytes = from.input.split_to(n);
        to.stream.write_all(&bytes).await.unwrap();
    }
    (released, ends)
}
