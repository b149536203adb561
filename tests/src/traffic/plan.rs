//! What happens in an exchange, derived from a number: both sides derive the same from the same.

use std::sync::LazyLock;

use crate::{payload, peer::Pace};

/// Largest body.
const MAX: usize = 16 << 20;

/// Random bytes that bodies are cut from: making fresh ones would cost more than relaying them.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| payload::bytes(1, MAX + (1 << 20)));
/// Text that bodies are cut from.
static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| payload::text(2, MAX + (1 << 20)).into_bytes());

/// What exchanges are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of every kind.
    Everything,
    /// Nobody leaves, and bodies are of at most 128 KiB: over bad wires, a reset may be lost, and
    /// bytes take long.
    Patient,
}

/// What both sides derive an exchange, or a connection, from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) seed: u64,
}

impl Plan {
    /// Reads what was made with `to_string`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, seed) = text.split_at_checked(1)?;
        let kind = match kind {
            "e" => Kind::Everything,
            "p" => Kind::Patient,
            _ => return None,
        };
        Some(Self { kind, seed: seed.parse().ok()? })
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Everything => 'e',
            Kind::Patient => 'p',
        };
        write!(f, "{kind}{}", self.seed)
    }
}

/// How someone leaves in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Close.
    Close,
    /// Reset.
    Reset,
    /// FIN, and waits for the other side to close.
    Finish,
}

/// Who leaves in the middle, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abort {
    /// Nobody.
    Nobody,
    /// The client, after so many bytes of its request.
    ClientSending(usize, How),
    /// The client, after so many bytes of the response body.
    ClientReceiving(usize, How),
    /// The instance, after so many bytes of the request body.
    InstanceReceiving(usize, How),
    /// The instance, after so many bytes of its response, the head included.
    InstanceSending(usize, How),
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Sized,
    Chunked,
    UntilClose,
    /// None, though the head may speak of one.
    Empty,
}

/// A body on the wire.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) framing: Framing,
    /// With its framing.
    pub(super) raw: Vec<u8>,
    /// Without.
    pub(super) payload: Vec<u8>,
}

/// One request and its response.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) plan: Plan,
    pub(super) abort: Abort,
    pub(super) method: &'static str,
    pub(super) target: &'static str,
    /// Speaks HTTP/1.0.
    pub(super) old: bool,
    /// Asks for the connection to be kept or closed in the way that its version does not by itself.
    pub(super) toggles: bool,
    pub(super) expects_continue: bool,
    pub(super) request: Body,
    pub(super) status: u16,
    pub(super) interim: usize,
    pub(super) instance_closes: bool,
    pub(super) response: Body,
    pub(super) client_pace: Pace,
    pub(super) instance_pace: Pace,
    pub(super) client_cuts: Cuts,
    pub(super) instance_cuts: Cuts,
}

/// In what pieces bytes are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cuts {
    Whole,
    /// The first two thousand bytes in small pieces, the rest in large ones.
    Small(u64),
    Large(u64),
}

impl Cuts {
    fn of(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(..10) {
            0..5 => Self::Whole,
            5..7 => Self::Small(rng.u64(..)),
            _ => Self::Large(rng.u64(..)),
        }
    }

    /// Cuts bytes up.
    pub(super) fn cut(self, bytes: &[u8]) -> Vec<&[u8]> {
        let (seed, small) = match self {
            Self::Whole => return vec![bytes],
            Self::Small(seed) => (seed, 2_000),
            Self::Large(seed) => (seed, 0),
        };
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let size = if at < small { rng.usize(1..60) } else { rng.usize(1..200_000) };
            let end = bytes.len().min(at + size);
            pieces.push(&bytes[at..end]);
            at = end;
        }
        pieces
    }
}

fn pace(rng: &mut fastrand::Rng) -> Pace {
    if rng.u8(..8) == 0 {
        Pace { size: rng.usize(1..6000), pauses: rng.usize(1..25) }
    } else {
        Pace::FAST
    }
}

fn how(rng: &mut fastrand::Rng) -> How {
    [How::Close, How::Reset, How::Finish][rng.usize(..3)]
}

/// From nothing to 16 MiB (or 128 KiB); half of them below a few kilobytes (or a few hundred bytes).
fn size(rng: &mut fastrand::Rng, kind: Kind) -> usize {
    let largest = if kind == Kind::Patient { 17.0 } else { 24.0 };
    let exponent = largest * rng.f64().powi(2);
    (2f64.powf(exponent) as usize - 1).min(MAX)
}

fn body(rng: &mut fastrand::Rng, kind: Kind, framing: Framing, json: bool) -> Body {
    let size = if framing == Framing::Empty { 0 } else { size(rng, kind) };
    let pool: &[u8] = if json { &TEXT } else { &BYTES };
    let at = rng.usize(..(1 << 20));
    let mut payload = Vec::with_capacity(size + 100);
    if json && size > 60 {
        payload.extend_from_slice(br#"{"messages":[{"role":"user","content":""#);
        payload.extend_from_slice(&pool[at..at + size - 60]);
        payload.extend_from_slice(br#""}],"model":"m"}"#);
    } else {
        payload.extend_from_slice(&pool[at..at + size]);
    }
    let raw = match framing {
        Framing::Chunked => encode(rng, &payload),
        _ => payload.clone(),
    };
    Body { framing, raw, payload }
}

/// The chunked coding in all the forms that RFC 9112 allows.
fn encode(rng: &mut fastrand::Rng, payload: &[u8]) -> Vec<u8> {
    let most = match rng.u8(..4) {
        0 if payload.len() < 20_000 => 20,
        1 => 300,
        2 => 10_000,
        _ => 400_000,
    };
    let mut out = Vec::with_capacity(payload.len() + payload.len() / 8 + 100);
    let extended = rng.bool();
    let mut rest = payload;
    while !rest.is_empty() {
        let size = rng.usize(1..=most).min(rest.len());
        let zeros = if rng.u8(..10) == 0 { "000" } else { "" };
        let line = if rng.bool() { format!("{zeros}{size:x}") } else { format!("{zeros}{size:X}") };
        out.extend_from_slice(line.as_bytes());
        if extended && rng.u8(..3) == 0 {
            let extension: [&[u8]; 4] = [b";a", b";name=value", b"; q=\"x; y\"", b";;="];
            out.extend_from_slice(extension[rng.usize(..4)]);
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&rest[..size]);
        out.extend_from_slice(b"\r\n");
        rest = &rest[size..];
    }
    out.extend_from_slice([&b"0"[..], b"000", b"0;last"][rng.usize(..3)]);
    out.extend_from_slice(b"\r\n");
    for number in 0..rng.usize(..6).saturating_sub(3) {
        out.extend_from_slice(
            format!("X-Trailer-{number}: value {size}\r\n", size = payload.len()).as_bytes(),
        );
    }
    out.extend_from_slice(b"\r\n");
    out
}

impl Exchange {
    pub(super) fn new(plan: Plan) -> Self {
        let mut rng = fastrand::Rng::with_seed(plan.seed);
        let rng = &mut rng;
        let method = ["POST", "POST", "POST", "POST", "POST", "GET", "HEAD", "PUT"][rng.usize(..8)];
        let target = ["/v1/chat/completions", "/invocations", "/any", "/generate"][rng.usize(..4)];
        let old = rng.u8(..12) == 0;
        let framing = match (method, rng.u8(..10)) {
            ("GET" | "HEAD", _) => Framing::Empty,
            (_, 0..5) => Framing::Sized,
            _ if old => Framing::Sized,
            _ => Framing::Chunked,
        };
        let json = target.starts_with("/v1") || target == "/generate";
        let json = json && rng.u8(..4) > 0;
        let request = body(rng, plan.kind, framing, json);
        let status = match rng.u8(..20) {
            0 => 204,
            1 => 304,
            2 => 500,
            _ => 200,
        };
        let framing = match rng.u8(..12) {
            _ if method == "HEAD" || matches!(status, 204 | 304) => Framing::Empty,
            0 => Framing::UntilClose,
            1..6 => Framing::Sized,
            _ => Framing::Chunked,
        };
        let json = rng.bool();
        let response = body(rng, plan.kind, framing, json);
        let mut exchange = Self {
            plan,
            abort: Abort::Nobody,
            method,
            target,
            old,
            toggles: rng.u8(..10) == 0,
            expects_continue: !old && !request.raw.is_empty() && rng.u8(..12) == 0,
            request,
            status,
            interim: if old || rng.u8(..10) > 0 { 0 } else { rng.usize(1..4) },
            instance_closes: framing == Framing::UntilClose || rng.u8(..15) == 0,
            response,
            client_pace: pace(rng),
            instance_pace: pace(rng),
            client_cuts: Cuts::of(rng),
            instance_cuts: Cuts::of(rng),
        };
        let sent = exchange.request_bytes().len();
        let answered = exchange.response_bytes().len();
        let (received, got) = (exchange.request.raw.len(), exchange.response.raw.len());
        let by_instance = if rng.u8(..2) == 0 { How::Close } else { How::Reset };
        exchange.abort = match rng.u8(..40) {
            _ if plan.kind == Kind::Patient => Abort::Nobody,
            0 => Abort::ClientSending(rng.usize(..sent), how(rng)),
            1 | 2 => Abort::ClientReceiving(rng.usize(..=got), how(rng)),
            3 => Abort::InstanceReceiving(rng.usize(..=received), by_instance),
            4 | 5 => Abort::InstanceSending(rng.usize(..answered), by_instance),
            _ => Abort::Nobody,
        };
        exchange
    }

    /// Whether the connection ends behind the response.
    pub(super) fn closes(&self) -> bool {
        self.old != self.toggles
            || self.response.framing == Framing::UntilClose
            || (self.old && self.response.framing == Framing::Chunked)
    }

    pub(super) fn request_head(&self) -> Vec<u8> {
        let version = if self.old { "1.0" } else { "1.1" };
        let mut head = format!(
            "{} {} HTTP/{version}\r\nHost: gateway.test\r\nX-Plan: {}\r\n",
            self.method, self.target, self.plan
        );
        if self.toggles {
            head += if self.old { "Connection: keep-alive\r\n" } else { "Connection: close\r\n" };
        }
        match self.request.framing {
            Framing::Sized => head += &format!("Content-Length: {}\r\n", self.request.raw.len()),
            Framing::Chunked => head += "Transfer-Encoding: chunked\r\n",
            _ => {}
        }
        if self.expects_continue {
            head += "Expect: 100-continue\r\n";
        }
        (head + "\r\n").into_bytes()
    }

    pub(super) fn request_bytes(&self) -> Vec<u8> {
        let mut bytes = self.request_head();
        bytes.extend_from_slice(&self.request.raw);
        bytes
    }

    /// Interim responses, the head and the body.
    pub(super) fn response_bytes(&self) -> Vec<u8> {
        let mut head = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(self.interim);
        head += &format!("HTTP/1.1 {} Status\r\nX-Plan: {}\r\n", self.status, self.plan);
        match self.response.framing {
            Framing::Sized => head += &format!("Content-Length: {}\r\n", self.response.raw.len()),
            Framing::Chunked => head += "Transfer-Encoding: chunked\r\n",
            Framing::Empty if self.method == "HEAD" && self.plan.seed.is_multiple_of(2) => {
                head += "Content-Length: 12345\r\n";
            }
            Framing::Empty if self.method != "HEAD" && self.status == 200 => {
                head += "Content-Length: 0\r\n";
            }
            _ => {}
        }
        if self.instance_closes {
            head += "Connection: close\r\n";
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(&self.response.raw);
        bytes
    }

    /// The response's body as the client shall see it.
    pub(super) fn expected(&self) -> &[u8] {
        if self.old { &self.response.payload } else { &self.response.raw }
    }

    /// Where in [`Exchange::response_bytes`] the body begins.
    pub(super) fn body_at(&self) -> usize {
        self.response_bytes().len() - self.response.raw.len()
    }

    /// In a line.
    pub(super) fn describe(&self) -> String {
        format!(
            "{}: {} {} HTTP/1.{} {:?} {} bytes -> {} {:?} {} bytes; {:?}",
            self.plan,
            self.method,
            self.target,
            u8::from(!self.old),
            self.request.framing,
            self.request.raw.len(),
            self.status,
            self.response.framing,
            self.response.raw.len(),
            self.abort,
        )
    }
}

/// Some exchanges on one client connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) plan: Plan,
    pub(super) exchanges: Vec<Plan>,
    pub(super) pipelined: bool,
    /// Size of the client's receive buffer, when it is small.
    pub(super) narrow: Option<usize>,
}

impl Connection {
    pub(super) fn new(plan: Plan) -> Self {
        let mut rng = fastrand::Rng::with_seed(plan.seed);
        let count = rng.usize(1..8);
        Self {
            plan,
            exchanges: (0..count).map(|_| Plan { kind: plan.kind, seed: rng.u64(..) }).collect(),
            pipelined: rng.u8(..4) == 0,
            narrow: (rng.u8(..6) == 0).then(|| rng.usize(4096..40_000)),
        }
    }
}
