//! A server that writes timed events and costs as little as possible itself.
//!
//! Each event is one write of prepared bytes, so that what is measured is the gateway. A request
//! says what it wants in the header [`Plan::HEADER`]; without one it gets a small plain answer.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::event::{self, Plan};

/// Largest request head, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// Serves connections forever.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // Clients that leave are how most streams end.
            let _ = connection(stream).await;
        });
    }
}

async fn connection(mut stream: TcpStream) -> io::Result<()> {
    let mut input = Vec::with_capacity(4 << 10);
    loop {
        let Some(plan) = request(&mut stream, &mut input).await? else { return Ok(()) };
        match plan {
            Some(plan) => events(&mut stream, plan).await?,
            None => stream.write_all(PLAIN).await?,
        }
    }
}

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
    content-length: 62\r\n\r\n\
    {\"object\":\"text_completion\",\"choices\":[{\"text\":\"hello you!\"}]}";

/// Reads one request and drops its body; `None` at the end of the connection.
async fn request(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<Option<Option<Plan>>> {
    loop {
        if let Some((head, length, plan)) = parse(input)? {
            let total = head + length;
            while input.len() < total {
                if stream.read_buf(input).await? == 0 {
                    return Ok(None);
                }
            }
            input.drain(..total);
            return Ok(Some(plan));
        }
        if stream.read_buf(input).await? == 0 {
            return Ok(None);
        }
    }
}

/// Length of the head, length of the body, and the plan, once the head is complete.
fn parse(input: &[u8]) -> io::Result<Option<(usize, usize, Option<Plan>)>> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(input).map_err(|error| invalid(error.to_string()))? {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial if input.len() > MAX_HEAD => {
            return Err(invalid("the head is too long".into()));
        }
        httparse::Status::Partial => return Ok(None),
    };
    let (mut length, mut plan) = (0, None);
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            length = value.parse().map_err(|_| invalid(format!("content-length: {value}")))?;
        } else if header.name.eq_ignore_ascii_case(Plan::HEADER) {
            plan = Some(value.parse().map_err(|error: &str| invalid(error.to_owned()))?);
        }
    }
    Ok(Some((len, length, plan)))
}

async fn events(stream: &mut TcpStream, plan: Plan) -> io::Result<()> {
    let framing = if plan.chunked {
        "transfer-encoding: chunked".to_owned()
    } else {
        format!("content-length: {}", u64::from(plan.events) * plan.size as u64)
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;

    // The event within its chunk, ready to be written at once.
    let prefix = if plan.chunked { format!("{:x}\r\n", plan.size) } else { String::new() };
    let mut wire = prefix.clone().into_bytes();
    wire.extend(event::blank(plan.size));
    if plan.chunked {
        wire.extend_from_slice(b"\r\n");
    }
    let start = Instant::now() + Duration::from_micros(plan.phase_us);
    let mut ticks = (plan.gap_us > 0).then(|| {
        let mut ticks = interval_at(start, Duration::from_micros(plan.gap_us));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    });
    for number in 0..plan.events {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let event = &mut wire[prefix.len()..][..plan.size];
        event::stamp(event, number, event::now());
        stream.write_all(&wire).await?;
    }
    if plan.hold {
        // Whatever comes ends the stream: the client leaves.
        stream.read_u8().await?;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if plan.chunked {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}
