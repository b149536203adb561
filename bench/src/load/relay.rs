//! The client of the relay measurements.

use std::{
    cell::{Cell, RefCell},
    io,
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    task::LocalSet,
    time::Instant,
};

use super::{
    event::{self, Plan, Reader},
    wire::{self, Body, Head},
};
use crate::report::Quantiles;

/// Streams that are open at the same time, and what each carries.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Streams.
    pub streams: usize,
    /// Bytes of an event.
    pub size: usize,
    /// Microseconds between the events of a stream; 0 for as fast as it goes.
    pub gap_us: u64,
    /// Chunked, or with a content length.
    pub chunked: bool,
    /// The endpoint that is asked for; the default one if none.
    pub endpoint: Option<&'static str>,
    /// How long to run before measuring.
    pub warm_up: Duration,
    /// How long to measure.
    pub measure: Duration,
}

/// What the client of open streams saw.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Streams {
    /// Events that arrived while measuring.
    pub events: u64,
    /// Payload bytes of them.
    pub bytes: u64,
    /// Seconds of measuring.
    pub seconds: f64,
    /// Microseconds from the sending of an event until it was read whole.
    pub transit_us: Quantiles,
    /// Microseconds from opening a stream to its first byte, connection included.
    pub open_us: Quantiles,
    /// Streams that broke.
    pub failures: u64,
    /// Why the first of them did.
    pub first_failure: Option<String>,
}

#[derive(Default)]
struct Recorder {
    on: Cell<bool>,
    stop: Cell<bool>,
    events: Cell<u64>,
    bytes: Cell<u64>,
    transit: RefCell<Vec<u64>>,
    open: RefCell<Vec<u64>>,
    /// Streams that are open or have failed.
    started: Cell<usize>,
    progress: Notify,
    failures: Cell<u64>,
    first_failure: RefCell<Option<String>>,
}

impl Recorder {
    fn started(&self) {
        self.started.set(self.started.get() + 1);
        self.progress.notify_one();
    }

    fn failed(&self, error: &io::Error) {
        self.failures.set(self.failures.get() + 1);
        self.first_failure.borrow_mut().get_or_insert_with(|| error.to_string());
    }
}

/// A request of about 2 KiB, as small chats are.
fn request(address: SocketAddr, endpoint: Option<&str>, plan: Option<Plan>) -> Vec<u8> {
    let prompt = "You are a helpful assistant. Answer in one sentence. ".repeat(36);
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{prompt}"}}],"stream":true}}"#
    );
    let plan = plan.map_or(String::new(), |plan| format!("{}: {plan}\r\n", Plan::HEADER));
    let base = endpoint.map_or(String::new(), |name| format!("/endpoints/{name}/openai"));
    format!(
        "POST {base}/v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: \
         application/json\r\n{plan}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended in the middle of a response")
}

/// Reads the head of a response; what came behind it stays in `buffer`.
async fn head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Head> {
    loop {
        if let Some(head) = wire::head(buffer)? {
            buffer.drain(..head.len);
            return match head.status {
                200 => Ok(head),
                status => Err(io::Error::other(format!("status {status}"))),
            };
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(ended());
        }
    }
}

/// Opens the streams, measures for a while, and leaves. `begin` and `end` are called at the edges
/// of the measured time.
pub fn streams(
    address: SocketAddr,
    load: Load,
    begin: impl FnOnce(),
    end: impl FnOnce(),
) -> io::Result<Streams> {
    run(async move {
        let recorder = Rc::new(Recorder::default());
        let mut tasks = Vec::with_capacity(load.streams);
        // In bursts that a listener's backlog holds, and no faster than anyone can open them.
        let burst = if load.streams > 5_000 { 10 } else { 100 };
        for number in 0..load.streams {
            let recorder = recorder.clone();
            tasks.push(tokio::task::spawn_local(async move {
                let mut opened = false;
                if let Err(error) = stream(address, load, number, &recorder, &mut opened).await {
                    recorder.failed(&error);
                }
                if !opened {
                    recorder.started();
                }
            }));
            if number % burst == burst - 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let opening = async {
            while recorder.started.get() < load.streams {
                recorder.progress.notified().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), opening).await.is_err() {
            let missing = load.streams - recorder.started.get();
            recorder.failed(&io::Error::other(format!("{missing} streams did not open in 20 s")));
        }
        tokio::time::sleep(load.warm_up).await;
        begin();
        let start = Instant::now();
        recorder.on.set(true);
        tokio::time::sleep(load.measure).await;
        recorder.on.set(false);
        let seconds = start.elapsed().as_secs_f64();
        end();
        recorder.stop.set(true);
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            let _ = task.await;
        }
        Ok(Streams {
            events: recorder.events.get(),
            bytes: recorder.bytes.get(),
            seconds,
            transit_us: Quantiles::of_ns(&mut recorder.transit.borrow_mut()),
            open_us: Quantiles::of_ns(&mut recorder.open.borrow_mut()),
            failures: recorder.failures.get(),
            first_failure: recorder.first_failure.take(),
        })
    })
}

async fn stream(
    address: SocketAddr,
    load: Load,
    number: usize,
    recorder: &Recorder,
    opened: &mut bool,
) -> io::Result<()> {
    let plan = Plan {
        events: u32::MAX,
        size: load.size,
        gap_us: load.gap_us,
        phase_us: load.gap_us * number as u64 / load.streams as u64,
        chunked: load.chunked,
        hold: false,
    };
    let start = event::now();
    let mut stream = connect(address).await?;
    stream.write_all(&request(address, load.endpoint, Some(plan))).await?;
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut body = head(&mut stream, &mut buffer).await?.body;
    // Whether the system acknowledges each small segment or every second one is decided by a timer that
    // may have run out while the stream opened. Half the packets of one target and all of another's would
    // not compare.
    socket2::SockRef::from(&stream).set_tcp_quickack(true)?;
    recorder.open.borrow_mut().push(event::now() - start);
    recorder.started();
    *opened = true;
    let mut reader = Reader::new(load.size);
    loop {
        if !buffer.is_empty() {
            let now = event::now();
            body.feed(&buffer, |payload| {
                if recorder.on.get() {
                    recorder.bytes.set(recorder.bytes.get() + payload.len() as u64);
                }
                let record = |sent: u64| {
                    if recorder.on.get() {
                        recorder.events.set(recorder.events.get() + 1);
                        recorder.transit.borrow_mut().push(now.saturating_sub(sent));
                    }
                };
                reader.feed(payload, record).map_err(io::Error::other)
            })?;
            buffer.clear();
        }
        if body == Body::Done || stream.read_buf(&mut buffer).await? == 0 {
            return Err(ended());
        }
    }
}

/// Requests on connections that stay open.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    /// Connections, each with one request at a time.
    pub connections: usize,
    /// Microseconds between the starts of a connection's requests; 0 for back to back.
    pub gap_us: u64,
    /// Events of each answer, one every [`Requests::EVENT_GAP_US`] in a chunk of its own; 0 for a small
    /// answer in one piece.
    pub events: u32,
    /// How long to run before measuring.
    pub warm_up: Duration,
    /// How long to measure.
    pub measure: Duration,
}

impl Requests {
    /// Microseconds between the events of an answer.
    pub const EVENT_GAP_US: u64 = 2_000;

    fn plan(&self) -> Option<Plan> {
        (self.events > 0).then_some(Plan {
            events: self.events,
            size: 200,
            gap_us: Self::EVENT_GAP_US,
            phase_us: 0,
            chunked: true,
            hold: false,
        })
    }
}

/// What the client of short requests saw.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answers {
    /// Answers that arrived while measuring.
    pub answers: u64,
    /// Seconds of measuring.
    pub seconds: f64,
    /// Microseconds from sending a request to the first byte of its answer.
    pub first_byte_us: Quantiles,
    /// Connections that broke.
    pub failures: u64,
    /// Why the first of them did.
    pub first_failure: Option<String>,
}

/// Sends short requests for a while.
pub fn requests(
    address: SocketAddr,
    load: Requests,
    begin: impl FnOnce(),
    end: impl FnOnce(),
) -> io::Result<Answers> {
    run(async move {
        let recorder = Rc::new(Recorder::default());
        let tasks: Vec<_> = (0..load.connections)
            .map(|number| {
                let recorder = recorder.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = exchange(address, load, number, &recorder).await {
                        recorder.failed(&error);
                    }
                })
            })
            .collect();
        tokio::time::sleep(load.warm_up).await;
        begin();
        let start = Instant::now();
        recorder.on.set(true);
        tokio::time::sleep(load.measure).await;
        recorder.on.set(false);
        let seconds = start.elapsed().as_secs_f64();
        end();
        recorder.stop.set(true);
        for task in tasks {
            if tokio::time::timeout(Duration::from_secs(5), task).await.is_err() {
                recorder.failed(&io::Error::other("an answer did not come within 5 s"));
            }
        }
        Ok(Answers {
            answers: recorder.events.get(),
            seconds,
            first_byte_us: Quantiles::of_ns(&mut recorder.transit.borrow_mut()),
            failures: recorder.failures.get(),
            first_failure: recorder.first_failure.take(),
        })
    })
}

async fn exchange(
    address: SocketAddr,
    load: Requests,
    number: usize,
    recorder: &Recorder,
) -> io::Result<()> {
    let request = request(address, None, load.plan());
    let mut stream = connect(address).await?;
    let mut buffer = Vec::with_capacity(4 << 10);
    let phase = load.gap_us * number as u64 / load.connections as u64;
    tokio::time::sleep(Duration::from_micros(phase)).await;
    let mut ticks = tokio::time::interval(Duration::from_micros(load.gap_us.max(1)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    while !recorder.stop.get() {
        if load.gap_us > 0 {
            ticks.tick().await;
        }
        let start = event::now();
        stream.write_all(&request).await?;
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(ended());
        }
        if recorder.on.get() {
            recorder.transit.borrow_mut().push(event::now() - start);
            recorder.events.set(recorder.events.get() + 1);
        }
        let mut body = head(&mut stream, &mut buffer).await?.body;
        loop {
            let used = body.feed(&buffer, |_| Ok(()))?;
            buffer.drain(..used);
            if body == Body::Done {
                break;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(ended());
            }
        }
    }
    Ok(())
}

/// What opening many streams came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Held {
    /// Streams that were open at the same time.
    pub open: usize,
    /// Why the first that could not be opened was not.
    pub first_failure: Option<String>,
}

/// Opens `count` streams that send one event and then stay silent, calls `look` while all are open,
/// and leaves.
pub fn hold(address: SocketAddr, count: usize, look: impl FnOnce()) -> io::Result<Held> {
    run(async move {
        let plan = Plan { events: 1, size: 200, gap_us: 0, phase_us: 0, chunked: true, hold: true };
        let request = request(address, None, Some(plan));
        let (mut open, mut first_failure) = (Vec::with_capacity(count), None);
        let mut buffer = Vec::with_capacity(4 << 10);
        for _ in 0..count {
            let one = async {
                let mut stream = connect(address).await?;
                stream.write_all(&request).await?;
                buffer.clear();
                let mut body = head(&mut stream, &mut buffer).await?.body;
                let (mut reader, mut complete) = (Reader::new(plan.size), false);
                while !complete {
                    body.feed(&buffer, |payload| {
                        reader.feed(payload, |_| complete = true).map_err(io::Error::other)
                    })?;
                    buffer.clear();
                    if !complete && stream.read_buf(&mut buffer).await? == 0 {
                        return Err(ended());
                    }
                }
                Ok(stream)
            };
            match tokio::time::timeout(Duration::from_secs(5), one).await {
                Ok(Ok(stream)) => open.push(stream),
                Ok(Err(error)) => {
                    first_failure.get_or_insert(error.to_string());
                    break;
                }
                Err(_) => {
                    first_failure.get_or_insert("a stream did not open in 5 s".into());
                    break;
                }
            }
        }
        // What is freed late, such as buffers of the openings, settles.
        tokio::time::sleep(Duration::from_millis(500)).await;
        look();
        Ok(Held { open: open.len(), first_failure })
    })
}

fn run<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, work)
}
