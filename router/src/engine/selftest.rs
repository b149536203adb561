//! Proves the engines with real bytes over loopback, before a request depends on them.
//!
//! Kernels have been known to lose, repeat or withhold bytes on this path. Each step below is
//! something that the engine relies on; all together take a few milliseconds.

use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use router_ebpf::{
    framing::Framing,
    splice::{
        timestamps::Timestamps,
        translate::{self, Action, Packet, flag},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::LocalSet,
};

use super::{
    Carrier, Copier, HandOver, Steering,
    sockmap::{HandBack, Settings, Sockmap, SteerEnd, Steered},
    splice::{self, Splice},
};
use crate::{
    http::{Limits, Method, parse_response},
    kernel::{Kernel, MAX_WORKERS, splice::Programs},
    net::{Conn, HangupWatch, Stream, socket},
};

/// All steps together may take this long. They take a fraction of a second; a machine that is
/// starting many things at once must not lose the engine for that.
const LIMIT: Duration = Duration::from_secs(10);
/// How long one steering may be idle: longer than the limit.
const IDLE: Duration = Duration::from_secs(60);
/// The backlog at which the kernel must hand back in the test.
const BACKLOG: u32 = 64 * 1024;

/// What is wrong with an engine on this host.
#[derive(Debug, thiserror::Error)]
#[error("self-test, {step}: {reason}")]
pub struct Failure {
    step: &'static str,
    reason: String,
}

/// Pushes bytes through the user-space engine and compares them. Returns how long it took.
///
/// Must not be called from asynchronous code.
///
/// # Errors
/// The first step that went wrong.
pub fn userspace() -> Result<Duration, Failure> {
    let steps = async {
        let name = |step| move |reason: String| Failure { step, reason };
        let mut pair = Pair::open().await.map_err(name("opening connections on loopback"))?;
        let payload = payload(40_000);
        let length = Framing::length(payload.len() as u64);
        pair.copy(length, &payload).await.map_err(name("a body of known length"))?;
        let chunks = chunked(&payload, 777);
        pair.copy(Framing::chunked(), &chunks).await.map_err(name("a chunked body"))
    };
    within_limit(steps)
}

/// Pushes bytes through the sockmap engine and compares them. Returns how long it took.
///
/// It uses a worker's number that no worker thread has, and must not be called from asynchronous
/// code.
///
/// # Errors
/// The first step that went wrong.
pub fn sockmap(kernel: &Arc<Kernel>) -> Result<Duration, Failure> {
    let steps = async {
        let watch = HangupWatch::new().map_err(failed("event loop"))?;
        let settings = Settings { backlog_bytes: BACKLOG, ..Settings::default() };
        let worker = MAX_WORKERS as u32 - 1;
        let engine = Sockmap::new(Arc::clone(kernel), watch.clone(), worker, settings)
            .map_err(failed("queue of events"))?;
        let engine = Carrier::Sockmap(engine);
        tokio::task::spawn_local(watch.drive());
        tokio::task::spawn_local(engine.clone().drive());
        all_steps(kernel, &engine).await
    };
    within_limit(steps)
}

/// As [`sockmap`], for the splice engine.
///
/// # Errors
/// The first step that went wrong.
pub fn splice(programs: &Arc<Programs>) -> Result<Duration, Failure> {
    let steps = async {
        let watch = HangupWatch::new().map_err(failed("event loop"))?;
        let worker = MAX_WORKERS as u32 - 1;
        let settings = splice::Settings::default();
        let engine = Splice::new(Arc::clone(programs), watch.clone(), worker, settings)
            .map_err(failed("queue of events"))?;
        let engine = Carrier::Splice(engine);
        tokio::task::spawn_local(watch.drive());
        tokio::task::spawn_local(engine.clone().drive());
        splice_steps(&engine).await
    };
    let result = within_limit(steps);
    // Both ends of the connections are gone.
    programs.forget_closed();
    result
}

/// Most bytes of a segment that every link takes, IPv6's smallest included.
const SEGMENT: u32 = 1220;

/// Has a request for an instance pass the sockets on its way, over the real interface, and reads the
/// answer. Says what the status was, and by which interface the instance was reached.
///
/// # Errors
/// The first step that went wrong.
pub fn splice_to(
    programs: &Arc<Programs>,
    instance: SocketAddr,
    request: &str,
) -> Result<(u16, String), Failure> {
    let mut reached = None;
    let steps = async {
        let watch = HangupWatch::new().map_err(failed("event loop"))?;
        let worker = MAX_WORKERS as u32 - 1;
        let settings = splice::Settings::default();
        let engine = Splice::new(Arc::clone(programs), watch.clone(), worker, settings)
            .map_err(failed("queue of events"))?;
        tokio::task::spawn_local(watch.drive());
        tokio::task::spawn_local(engine.clone().drive());
        reached = Some(instance_steps(programs, engine, instance, request).await?);
        Ok(())
    };
    within_limit(steps)?;
    programs.forget_closed();
    reached.ok_or(Failure { step: "all steps", reason: "did not end".to_owned() })
}

async fn instance_steps(
    programs: &Programs,
    engine: Splice,
    instance: SocketAddr,
    request: &str,
) -> Result<(u16, String), Failure> {
    let engine = Carrier::Splice(engine);
    let mut to = Conn::new(
        socket::connect(&[instance], LIMIT, engine.segment())
            .await
            .map_err(failed("connecting"))?,
    );
    engine.register(&mut to, true);
    let local = if instance.is_ipv6() { V6 } else { V4 };
    let (mut from, mut client) =
        accepted(local, Some(SEGMENT)).await.map_err(failed("opening a connection"))?;
    engine.register(&mut from, false);
    // The sockets first, so that the programs know where both stand.
    let first = async {
        from.stream.write_all(b"there").await?;
        client.read_exact(&mut [0; 5]).await?;
        client.write_all(b"back").await?;
        while from.input.len() < 4 && poll_fn(|cx| from.poll_fill(cx, 4)).await? > 0 {}
        from.input.clear();
        to.stream.write_all(request.as_bytes()).await
    };
    first.await.map_err(failed("sending a request"))?;
    answer(&mut to).await.map_err(|reason| Failure { step: "the first answer", reason })?;
    let mut framing = Framing::length(request.len() as u64);
    let steering = engine.steer(Steering::new(&mut from, &mut to, &mut framing, IDLE));
    let (steered, sent) = tokio::join!(steering, client.write_all(request.as_bytes()));
    sent.map_err(failed("sending a request"))?;
    expect(&steered, SteerEnd::Ended, request.len() as u64)
        .map_err(|reason| Failure { step: "a spliced request", reason })?;
    let status = answer(&mut to)
        .await
        .map_err(|reason| Failure { step: "the answer to a spliced request", reason })?;
    let interface = to.splice.as_ref().map(|member| member.interface());
    Ok((status, interface.and_then(|index| programs.name_of(index)).unwrap_or_default()))
}

/// Reads an answer, and says its status.
async fn answer(conn: &mut Conn) -> Result<u16, String> {
    let limits = Limits { head_bytes: 64 * 1024, headers: 256, body_bytes: 1 << 20 };
    let mut read = async || match poll_fn(|cx| conn.poll_fill(cx, 1 << 20)).await {
        Ok(0) => Err("the instance closed its connection".to_owned()),
        Ok(_) => Ok(conn.input.split()),
        Err(error) => Err(error.to_string()),
    };
    let mut bytes = bytes::BytesMut::new();
    let head = loop {
        bytes.unsplit(read().await?);
        match parse_response(&bytes, Method::Get, &limits) {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(error) => return Err(error.message.to_string()),
        }
    };
    let mut body = bytes.split_off(head.len);
    let mut framing = head.framing;
    loop {
        framing.advance(&body).map_err(|error| error.to_string())?;
        if framing.is_done() {
            return Ok(head.status);
        }
        body = read().await?;
    }
}

/// As [`splice`], for the program in drivers: it is given frames, as loopback has no driver. Nothing is sent
/// by it.
///
/// # Errors
/// The first step that went wrong.
pub fn splice_xdp(programs: &Arc<Programs>) -> Result<Duration, Failure> {
    programs.allow_loopback(true).map_err(failed("allowing loopback"))?;
    let steps = async {
        let watch = HangupWatch::new().map_err(failed("event loop"))?;
        let worker = MAX_WORKERS as u32 - 1;
        let settings = splice::Settings::default();
        let engine = Splice::new(Arc::clone(programs), watch.clone(), worker, settings)
            .map_err(failed("queue of events"))?;
        let engine = Carrier::Splice(engine);
        tokio::task::spawn_local(watch.drive());
        tokio::task::spawn_local(engine.clone().drive());
        for (local, step) in [(V4, "frames of IPv4"), (V6, "frames of IPv6")] {
            if local == V6 && TcpListener::bind(V6).await.is_err() {
                continue;
            }
            for length in [Some(1_000), None] {
                let name = |reason: String| Failure { step, reason };
                let mut pair = Pair::open_known(&engine, local).await.map_err(name)?;
                pair.forward_frames(&engine, programs, length).await.map_err(name)?;
            }
        }
        Ok(())
    };
    let result = within_limit(steps);
    let undone = programs.allow_loopback(false).map_err(failed("leaving loopback alone"));
    programs.forget_closed();
    result.and_then(|took| undone.map(|()| took))
}

async fn splice_steps(engine: &Carrier) -> Result<(), Failure> {
    let name = |step| move |reason: String| Failure { step, reason };
    let mut pair =
        Pair::open_known(engine, V4).await.map_err(name("opening connections on loopback"))?;
    let payload = payload(40_000);
    let chunks = chunked(&payload, 777);
    // Twice: the second time, the numbers have moved already.
    for _ in 0..2 {
        pair.carry(engine, Framing::length(payload.len() as u64), &payload)
            .await
            .map_err(name("a body of known length"))?;
        pair.carry(engine, Framing::chunked(), &chunks).await.map_err(name("a chunked body"))?;
    }
    // In user space, both ways.
    pair.echo().await.map_err(name("the sockets afterwards"))?;
    pair.cross(engine).await.map_err(name("the next message right behind a body"))?;
    pair.finish_under_way(engine).await.map_err(name("a source that closes"))
}

fn failed(step: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure { step, reason: error.to_string() }
}

/// Runs the steps of a self-test; says how long they took.
fn within_limit(steps: impl Future<Output = Result<(), Failure>>) -> Result<Duration, Failure> {
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("event loop"))?;
    let steps = async move {
        tokio::time::timeout(LIMIT, steps).await.unwrap_or_else(|_| {
            Err(Failure { step: "all steps", reason: format!("did not end within {LIMIT:?}") })
        })
    };
    LocalSet::new().block_on(&runtime, steps)?;
    Ok(start.elapsed())
}

async fn all_steps(kernel: &Arc<Kernel>, engine: &Carrier) -> Result<(), Failure> {
    let name = |step| move |reason: String| Failure { step, reason };
    let mut pair = Pair::open().await.map_err(name("opening connections on loopback"))?;
    let payload = payload(40_000);
    let chunks = chunked(&payload, 777);
    // Twice, because the first time joins the maps, and the second finds the sockets there.
    for _ in 0..2 {
        pair.carry(engine, Framing::length(payload.len() as u64), &payload)
            .await
            .map_err(name("a body of known length"))?;
        pair.carry(engine, Framing::chunked(), &chunks).await.map_err(name("a chunked body"))?;
    }
    pair.cross(engine).await.map_err(name("the next message right behind a body"))?;
    pair.stall(engine).await.map_err(name("a target that does not read"))?;
    pair.finish(engine).await.map_err(name("a source that closes"))?;
    drop(pair);
    let left = kernel.sources_in_use();
    if left > 0 {
        return Err(name("leaving the maps")(format!("{left} directions are still in use")));
    }
    Ok(())
}

/// Two of the gateway's connections, with their far ends.
struct Pair {
    from: Conn,
    to: Conn,
    source: TcpStream,
    target: TcpStream,
}

impl Pair {
    async fn open() -> Result<Self, String> {
        let (from, source) = connection(V4).await.map_err(|error| error.to_string())?;
        let (to, target) = connection(V4).await.map_err(|error| error.to_string())?;
        Ok(Self { from, to, source, target })
    }

    /// Connections that an engine knows from their first packet on.
    async fn open_known(engine: &Carrier, local: &str) -> Result<Self, String> {
        let opened = async {
            let (mut from, source) = opened_connection(local, engine.segment()).await?;
            let (mut to, target) = accepted(local, engine.segment()).await?;
            engine.register(&mut from, true);
            engine.register(&mut to, false);
            Ok::<_, std::io::Error>(Self { from, to, source, target })
        };
        let mut pair = opened.await.map_err(|error| error.to_string())?;
        pair.echo().await?;
        Ok(pair)
    }

    /// Bytes in all four directions, carried by the sockets.
    async fn echo(&mut self) -> Result<(), String> {
        for (near, far) in [(&mut self.from, &mut self.source), (&mut self.to, &mut self.target)] {
            near.stream.write_all(b"there").await.map_err(|error| error.to_string())?;
            let mut got = [0; 5];
            far.read_exact(&mut got).await.map_err(|error| error.to_string())?;
            compare(&got, b"there")?;
            far.write_all(b"back").await.map_err(|error| error.to_string())?;
            fill(near, 4).await?;
            compare(&near.input, b"back")?;
            near.input.clear();
        }
        Ok(())
    }

    async fn steer(&mut self, engine: &Carrier, framing: &mut Framing) -> Steered {
        engine.steer(Steering::new(&mut self.from, &mut self.to, framing, IDLE)).await
    }

    /// A body that user space carries.
    async fn copy(&mut self, framing: Framing, body: &[u8]) -> Result<(), String> {
        let Self { from, to, source, target } = self;
        let mut copier = Copier::new(framing, false);
        let copying = poll_fn(|cx| copier.poll(cx, from, &mut to.stream, HandOver::Never));
        let mut got = vec![0; body.len()];
        let (sent, received, copied) =
            tokio::join!(source.write_all(body), target.read_exact(&mut got), copying);
        sent.and(received).map_err(|error| error.to_string())?;
        copied.map_err(|error| error.to_string())?;
        compare(&got, body)
    }

    /// A body that the kernel carries alone.
    async fn carry(
        &mut self,
        engine: &Carrier,
        mut framing: Framing,
        body: &[u8],
    ) -> Result<(), String> {
        let Self { from, to, source, target } = self;
        let far = async {
            let mut got = vec![0; body.len()];
            for (sent, got) in body.chunks(9_000).zip(got.chunks_mut(9_000)) {
                source.write_all(sent).await?;
                target.read_exact(got).await?;
            }
            Ok::<_, std::io::Error>(got)
        };
        let steering = engine.steer(Steering::new(from, to, &mut framing, IDLE));
        let (steered, got) = tokio::join!(steering, far);
        expect(&steered, SteerEnd::Ended, body.len() as u64)?;
        compare(&got.map_err(|error| error.to_string())?, body)
    }

    /// Frames as of the source and of the target are forwarded as the core says, and what is for the other
    /// programs is left alone. The connections are of no use afterwards: nothing was sent.
    async fn forward_frames(
        &mut self,
        engine: &Carrier,
        programs: &Programs,
        length: Option<u64>,
    ) -> Result<(), String> {
        let index = self.from.splice.as_ref().ok_or("no entry")?.index();
        let from = ends(&self.source, &self.from)?;
        let to = ends(&self.target, &self.to)?;
        let Self { from: near_source, to: near_target, source, target } = self;
        let mut framing = length.map_or_else(Framing::chunked, Framing::length);
        let mut steering = std::pin::pin!(engine.steer(Steering::new(
            near_source,
            near_target,
            &mut framing,
            IDLE
        )));
        if let Poll::Ready(steered) = poll_fn(|cx| Poll::Ready(steering.as_mut().poll(cx))).await {
            return Err(format!("not handed over: {:?}", steered.end));
        }
        // The first bytes go the other programs' way, and tell both ends' Ethernet addresses.
        let first: &[u8] = if length.is_some() { &[b'x'; 100] } else { b"64\r\n" };
        source.write_all(first).await.map_err(|error| error.to_string())?;
        target.read_exact(&mut vec![0; first.len()]).await.map_err(|error| error.to_string())?;
        let pair = || programs.entry(index).pair();
        while pair().splice.acked != first.len() as u64 || pair().receiver.asks != 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        let payload = payload(100);
        let before = pair();
        let stamps = |value: u32, echo: u32| Some(Timestamps { value, echo });
        let data = Packet {
            seq: before.splice.h.wrapping_add(first.len() as u32),
            ack: before.source.next,
            len: payload.len() as u32,
            window: 1_000,
            flags: flag::ACK | flag::PSH,
            timestamps: stamps(before.source.ts_peer.wrapping_add(7), before.source.ts_last),
            ..Packet::default()
        };
        let mut expected = before;
        // A chunk of 100 bytes has begun.
        expected.splice.parsed += u64::from(data.len);
        let Action::Forward(out) = translate::ingress_from_source(&mut expected, &data).action
        else {
            return Err("the core does not forward it".to_owned());
        };
        let (redirected, got) =
            programs.run_xdp(&frame(from, &data, &payload)).map_err(|error| error.to_string())?;
        if !redirected {
            return Err("data is not forwarded".to_owned());
        }
        compare(&got, &frame(swapped(to), &out, &payload))?;

        let before = pair();
        let answer = Packet {
            seq: before.receiver.own_ack,
            ack: out.seq.wrapping_add(out.len),
            window: 1_000,
            flags: flag::ACK,
            timestamps: stamps(before.receiver.ts_peer.wrapping_add(7), before.receiver.ts_last),
            ..Packet::default()
        };
        let mut expected = before;
        let Action::Forward(out) = translate::ingress_from_receiver(&mut expected, &answer).action
        else {
            return Err("the core does not forward the acknowledgement".to_owned());
        };
        let (redirected, got) =
            programs.run_xdp(&frame(to, &answer, &[])).map_err(|error| error.to_string())?;
        if !redirected {
            return Err("an acknowledgement is not forwarded".to_owned());
        }
        compare(&got, &frame(swapped(from), &out, &[]))?;

        // Behind the end there is no body, and a FIN is for the socket.
        let last =
            Packet { seq: data.seq.wrapping_add(data.len), flags: flag::ACK | flag::FIN, ..data };
        let sent = frame(from, &last, &payload);
        let (redirected, got) = programs.run_xdp(&sent).map_err(|error| error.to_string())?;
        if redirected {
            return Err("a FIN is forwarded".to_owned());
        }
        compare(&got, &sent)
    }

    /// The last packet of a body holds the start of the next message: user space gets all of it.
    async fn cross(&mut self, engine: &Carrier) -> Result<(), String> {
        let mut framing = Framing::length(4);
        let Self { from, to, source, target } = self;
        let steering = engine.steer(Steering::new(from, to, &mut framing, IDLE));
        let (steered, written) = tokio::join!(steering, source.write_all(b"bodynext"));
        written.map_err(|error| error.to_string())?;
        expect(&steered, SteerEnd::HandedBack(HandBack::Crossed), 0)?;
        fill(from, 8).await?;
        compare(&from.input, b"bodynext")?;
        from.input.clear();
        // The target takes user space's bytes again.
        to.stream.write_all(b"body").await.map_err(|error| error.to_string())?;
        let mut got = [0; 4];
        target.read_exact(&mut got).await.map_err(|error| error.to_string())?;
        compare(&got, b"body")
    }

    /// The kernel stops at the limit of the backlog, and what it holds then arrives.
    async fn stall(&mut self, engine: &Carrier) -> Result<(), String> {
        // More than both socket buffers and the limit hold.
        let body = payload(16 * 1024 * 1024);
        let mut framing = Framing::length(body.len() as u64);
        let Self { from, to, source, target } = self;
        // Small buffers keep the step short.
        let _ = socket2::SockRef::from(&to.stream).set_send_buffer_size(64 * 1024);
        let _ = socket2::SockRef::from(&from.stream).set_recv_buffer_size(64 * 1024);
        let _ = socket2::SockRef::from(&*target).set_recv_buffer_size(64 * 1024);
        let mut sent = 0;
        // Until the source has no more room: the kernel has stopped taking.
        let fill_up = async {
            let mut quiet = 0;
            while quiet < 4 && sent < body.len() {
                match source.try_write(&body[sent..]) {
                    Ok(n) => (sent, quiet) = (sent + n, 0),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        quiet += 1;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(error) => return Err(error.to_string()),
                }
            }
            if sent == body.len() {
                return Err("the kernel took 16 MiB for a target that reads nothing".to_owned());
            }
            Ok(())
        };
        let mut steering = Box::pin(engine.steer(Steering::new(from, to, &mut framing, IDLE)));
        let mut fill_up = Box::pin(fill_up);
        // It may end early, if what was redirected fits into the target's send queue.
        let mut steered = None;
        let filled = loop {
            tokio::select! {
                // The steering begins first.
                biased;
                end = &mut steering, if steered.is_none() => steered = Some(end),
                filled = &mut fill_up => break filled,
            }
        };
        drop(fill_up);
        filled?;
        // What the kernel holds arrives once the target reads.
        let mut got = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        while steered.is_none_or(|steered| (got.len() as u64) < steered.bytes) {
            tokio::select! {
                end = &mut steering, if steered.is_none() => steered = Some(end),
                n = target.read(&mut buffer) => {
                    got.extend_from_slice(&buffer[..n.map_err(|error| error.to_string())?]);
                }
            }
        }
        let steered = steered.expect("the loop's condition");
        drop(steering);
        expect(&steered, SteerEnd::HandedBack(HandBack::Backlog), steered.bytes)?;
        compare(&got, &body[..steered.bytes as usize])?;
        // The rest waits for user space.
        let rest = &body[got.len()..sent];
        fill(from, rest.len()).await?;
        compare(&from.input, rest)?;
        from.input.clear();
        Ok(())
    }

    /// As [`Pair::finish`], with a FIN that comes while the kernel carries.
    async fn finish_under_way(&mut self, engine: &Carrier) -> Result<(), String> {
        let mut framing = Framing::until_close();
        let Self { from, to, source, target } = self;
        let far = async {
            source.write_all(b"last").await?;
            source.shutdown().await?;
            let mut got = [0; 4];
            target.read_exact(&mut got).await?;
            Ok::<_, std::io::Error>(got)
        };
        let steering = engine.steer(Steering::new(from, to, &mut framing, IDLE));
        let (steered, got) = tokio::join!(steering, far);
        compare(&got.map_err(|error| error.to_string())?, b"last")?;
        expect(&steered, SteerEnd::SourceClosed, 4)?;
        to.stream.write_all(b"after").await.map_err(|error| error.to_string())?;
        let mut got = [0; 5];
        target.read_exact(&mut got).await.map_err(|error| error.to_string())?;
        compare(&got, b"after")
    }

    /// A FIN ends a body of unknown length, and leaves the target usable.
    async fn finish(&mut self, engine: &Carrier) -> Result<(), String> {
        let mut framing = Framing::until_close();
        self.source.write_all(b"last").await.map_err(|error| error.to_string())?;
        fill(&mut self.from, 4).await?;
        self.from.input.clear();
        self.source.shutdown().await.map_err(|error| error.to_string())?;
        let steered = self.steer(engine, &mut framing).await;
        expect(&steered, SteerEnd::SourceClosed, 0)?;
        self.to.stream.write_all(b"after").await.map_err(|error| error.to_string())?;
        let mut got = [0; 5];
        self.target.read_exact(&mut got).await.map_err(|error| error.to_string())?;
        compare(&got, b"after")
    }
}

/// Loopback.
const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

async fn connection(local: &str) -> std::io::Result<(Conn, TcpStream)> {
    let listener = TcpListener::bind(local).await?;
    let far = TcpStream::connect(listener.local_addr()?).await?;
    far.set_nodelay(true)?;
    let (near, _) = listener.accept().await?;
    Ok((Conn::new(Stream::new(near.into_std()?)?), far))
}

/// A connection that this side accepted, as one of a client is.
///
/// `segment` is the most bytes of a segment; loopback's own are longer than a link's.
async fn accepted(local: &str, segment: Option<u32>) -> std::io::Result<(Conn, TcpStream)> {
    let address = local.parse().map_err(std::io::Error::other)?;
    let listener = socket::listen(address, segment)?;
    let listener = TcpListener::from_std(listener)?;
    let far = TcpStream::connect(listener.local_addr()?).await?;
    far.set_nodelay(true)?;
    let (near, _) = listener.accept().await?;
    Ok((Conn::new(Stream::new(near.into_std()?)?), far))
}

/// A connection that this side opened.
async fn opened_connection(
    local: &str,
    segment: Option<u32>,
) -> std::io::Result<(Conn, TcpStream)> {
    let listener = TcpListener::bind(local).await?;
    let near = socket::connect(&[listener.local_addr()?], LIMIT, segment).await?;
    let (far, _) = listener.accept().await?;
    far.set_nodelay(true)?;
    Ok((Conn::new(near), far))
}

/// Where packets come from that a far end sends, and where they go to.
type Ends = (SocketAddr, SocketAddr);

fn ends(far: &TcpStream, near: &Conn) -> Result<Ends, String> {
    let ends = far.local_addr().and_then(|far| Ok((far, near.stream.local_addr()?)));
    ends.map_err(|error| error.to_string())
}

const fn swapped((from, to): Ends) -> Ends {
    (to, from)
}

/// A segment on loopback, where there are no Ethernet addresses.
fn frame((from, to): Ends, packet: &Packet, payload: &[u8]) -> Vec<u8> {
    const HEADER: usize = 32;
    let mut tcp = Vec::with_capacity(HEADER + payload.len());
    tcp.extend(from.port().to_be_bytes());
    tcp.extend(to.port().to_be_bytes());
    tcp.extend(packet.seq.to_be_bytes());
    tcp.extend(packet.ack.to_be_bytes());
    tcp.extend([(HEADER as u8 / 4) << 4, packet.flags]);
    tcp.extend(packet.window.to_be_bytes());
    tcp.extend([0; 4]);
    let stamps = packet.timestamps.unwrap_or(Timestamps { value: 0, echo: 0 });
    tcp.extend([1, 1, 8, 10]);
    tcp.extend(stamps.value.to_be_bytes());
    tcp.extend(stamps.echo.to_be_bytes());
    tcp.extend(payload);
    let length = tcp.len() as u16;
    let (kind, mut ip, addresses) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start =
                [[0x45, 0].as_slice(), &(length + 20).to_be_bytes(), &[0, 0, 0x40, 0, 64, 6, 0, 0]];
            (0x0800_u16, start.concat(), [from.octets(), to.octets()].concat())
        }
        (from, to) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let start = [[0x60, 0, 0, 0].as_slice(), &length.to_be_bytes(), &[6, 64]];
            (0x86dd, start.concat(), [octets(from), octets(to)].concat())
        }
    };
    ip.extend(&addresses);
    if kind == 0x0800 {
        let checksum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let checksum = checksum(&[&addresses, &[0, 6], &length.to_be_bytes(), &tcp]);
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    [[0; 12].as_slice(), &kind.to_be_bytes(), &ip, &tcp].concat()
}

/// The checksum of the Internet (RFC 1071); all parts but the last must have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low)))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Reads until the connection's input holds `length` bytes.
async fn fill(conn: &mut Conn, length: usize) -> Result<(), String> {
    while conn.input.len() < length {
        match poll_fn(|cx| conn.poll_fill(cx, length)).await {
            Ok(0) => return Err("the connection ended early".into()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

fn expect(steered: &Steered, end: SteerEnd, bytes: u64) -> Result<(), String> {
    if steered.end == end && steered.bytes == bytes {
        return Ok(());
    }
    Err(format!("expected {end:?} after {bytes} bytes, got {steered:?}"))
}

fn compare(got: &[u8], sent: &[u8]) -> Result<(), String> {
    if got == sent {
        return Ok(());
    }
    let at = got.iter().zip(sent).take_while(|(got, sent)| got == sent).count();
    Err(format!("of {} bytes {} came, and they differ from byte {at} on", sent.len(), got.len()))
}

/// Bytes of which no two stretches are alike.
fn payload(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}

fn chunked(payload: &[u8], size: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(payload.len() * 11 / 10);
    for chunk in payload.chunks(size) {
        body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Options;

    #[test]
    fn user_space_works_everywhere() {
        userspace().expect("the engine works");
    }

    #[test]
    fn splice_passes_where_the_programs_load() {
        use crate::kernel::splice::Options;
        match Programs::load(&Options { connections: 64, counters: 16, ..Options::default() }) {
            Ok(programs) => {
                for _ in 0..5 {
                    let took = splice(&programs).expect("the engine works");
                    println!("took {took:?}");
                    assert_eq!(programs.in_use(), 0);
                }
            }
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                println!("skipped: {error}");
            }
        }
    }

    #[test]
    fn splice_passes_in_drivers_where_the_programs_load() {
        use crate::kernel::splice::{Drivers, Options};
        let options =
            Options { connections: 64, counters: 16, xdp: Drivers::All, ..Options::default() };
        match Programs::load(&options)
            .map(|programs| (programs.has_xdp() == Ok(true)).then_some(programs))
        {
            Ok(Some(programs)) => {
                for _ in 0..5 {
                    let took = splice_xdp(&programs).expect("it works");
                    println!("took {took:?}");
                    assert_eq!(programs.in_use(), 0);
                }
            }
            other => {
                assert!(std::env::var_os("CI").is_none(), "{other:?}");
                println!("skipped: {other:?}");
            }
        }
    }

    #[test]
    fn passes_where_the_programs_load() {
        match Kernel::load(&Options { directions: 16, counters: 16 }) {
            Ok(kernel) => {
                for _ in 0..5 {
                    let took = sockmap(&kernel).expect("the engine works");
                    println!("took {took:?}");
                }
            }
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                println!("skipped: {error}");
            }
        }
    }
}
