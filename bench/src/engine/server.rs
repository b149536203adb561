//! The HTTP side of the simulated engine.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response,
    body::{Frame, Incoming},
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::{
    answer::{Cut, Events, Sending, Source, strike, whole},
    fault::{Fault, FaultKind, Faults, Limit},
    params::Params,
    prompt::{self, Api, Prompt},
    reply::{self, Reply},
    runner::Runner,
    scheduler::Job,
    tokens,
};

/// Largest request body that is read, in bytes.
const MAX_BODY: usize = 256 << 20;

type Body = UnsyncBoxBody<Bytes, Cut>;

/// How the server presents itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// Models that `/v1/models` lists; the first is used when a request names none.
    pub models: Vec<String>,
    /// Goes into the header `x-sim-name` of every answer.
    pub name: String,
    /// Seconds after which an idle connection is closed.
    pub keep_alive: Duration,
}

/// A host with its HTTP server.
pub struct Server {
    runner: Arc<Runner>,
    faults: Faults,
    options: Options,
    params: Params,
    requests: AtomicU64,
}

impl Server {
    /// A host; it works once [`Self::serve`] is polled.
    pub fn new(params: Params, options: Options, fault: Fault) -> Arc<Self> {
        let model = options.models.first().map_or("", String::as_str);
        Arc::new(Self {
            runner: Runner::new(params.clone(), model),
            faults: Faults::new(fault),
            options,
            params,
            requests: AtomicU64::new(0),
        })
    }

    /// Accepts connections forever.
    ///
    /// # Errors
    /// When the listener fails for good.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> std::io::Result<()> {
        tokio::spawn(self.runner.clone().run());
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(self.clone().connection(stream))),
                // Out of descriptors: the connections that end make room.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) =>
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let connections = self.runner.metrics().connections.clone();
        connections.inc();
        let reset = Arc::new(AtomicBool::new(false));
        let service = service_fn({
            let (server, reset) = (self.clone(), reset.clone());
            move |request| {
                let (server, reset) = (server.clone(), reset.clone());
                let answer: Pin<Box<dyn Future<Output = _> + Send>> =
                    Box::pin(async move { server.answer(request, reset).await });
                answer
            }
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.options.keep_alive)
            .serve_connection(TokioIo::new(stream), service);
        // A client that leaves ends this; the answer under way is dropped, which cancels its work.
        let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
        let stream = connection.into_parts().io.into_inner();
        if ended.is_err() && reset.load(Ordering::Relaxed) {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
        drop(stream);
        connections.dec();
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        reset: Arc<AtomicBool>,
    ) -> Result<Response<Body>, Cut> {
        let path = request.uri().path();
        let mut response = match (request.method(), path, Api::of(path)) {
            (&Method::POST, _, Some(api)) => self.inference(api, request, reset).await?,
            (&Method::GET | &Method::HEAD, "/health" | "/ping", _) => self.health(),
            (&Method::GET | &Method::HEAD, "/metrics", _) => {
                plain(200, "text/plain; version=0.0.4; charset=utf-8", self.runner.metrics().text())
            }
            (&Method::GET | &Method::HEAD, "/v1/models", _) => self.models(),
            (_, path, _) if path.starts_with("/sim/") => self.sim(request).await,
            (_, path, api) => {
                let status = if api.is_some() { 405 } else { 404 };
                failure(api, status, &format!("{} {path} is not served here", request.method()))
            }
        };
        if let Ok(name) = HeaderValue::from_str(&self.options.name) {
            response.headers_mut().insert("x-sim-name", name);
        }
        Ok(response)
    }

    async fn inference(
        &self,
        api: Api,
        request: Request<Incoming>,
        reset: Arc<AtomicBool>,
    ) -> Result<Response<Body>, Cut> {
        let Some(body) = read(request).await else {
            return Ok(failure(Some(api), 413, "the body is too large"));
        };
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        self.runner.metrics().accepted(api.name());
        let fault = self.faults.take();
        if fault.kind == FaultKind::Error500 {
            return Ok(failure(Some(api), fault.status.unwrap_or(500), "a fault was asked for"));
        }
        let prompt = match prompt::parse(api, &body) {
            Ok(prompt) => prompt,
            Err(error) => return Ok(failure(Some(api), 400, &error.to_string())),
        };
        drop(body);
        let fingerprint = tokens::fingerprint(&prompt.tokens);
        let job = self.job(&prompt, fingerprint);
        let prompt_tokens = job.prompt.len() as u32;
        let generation = match self.runner.submit(&job) {
            Ok(generation) => generation,
            Err(error) => return Ok(failure(Some(api), 400, &error.to_string())),
        };
        if fault.kind != FaultKind::None
            && fault.kind != FaultKind::Slow
            && fault.limit() == Limit::Head
        {
            let cut = strike(fault.kind, &reset).await;
            drop(generation);
            return Err(cut);
        }
        let reply = Reply {
            api: prompt.api,
            id: format!("{:016x}-{number}", fingerprint),
            model: job.model.clone(),
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            include_usage: prompt.include_usage,
            limited: prompt.max_tokens.is_some(),
        };
        if prompt.stream && !matches!(prompt.api, Api::Embeddings | Api::Invocations) {
            let events = Events::start(reply, generation, prompt_tokens, fingerprint).await;
            let source = Source::Events(Box::new(events));
            let mut response = Response::new(body_of(Sending::new(source, fault, reset)));
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
            return Ok(response);
        }
        let (text, usage) = whole(generation, prompt_tokens, fingerprint).await;
        let answer = reply.whole(&text, usage).to_string();
        let length = answer.len();
        let source = Source::Plain(Some(answer.into()));
        let mut response = Response::new(body_of(Sending::new(source, fault, reset)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, length.into());
        Ok(response)
    }

    fn job(&self, prompt: &Prompt, fingerprint: u64) -> Job {
        let output = match prompt.api {
            Api::Embeddings => 0,
            _ => prompt.max_tokens.unwrap_or(self.params.default_output_tokens),
        };
        // Longer than the model allows is refused later; do not generate it first.
        let output = output.min(self.params.max_model_len.saturating_add(1));
        let mut words = Vec::with_capacity(output as usize);
        for index in 0..output {
            tokens::tokenize(tokens::word(fingerprint, index), &mut words);
        }
        let model = match prompt.model.as_str() {
            "" => self.options.models.first().cloned().unwrap_or_default(),
            model => model.to_owned(),
        };
        Job { model, salt: prompt.salt.clone(), prompt: prompt.tokens.clone(), output: words }
    }

    fn health(&self) -> Response<Body> {
        match self.faults.current().kind {
            FaultKind::Unhealthy => failure(None, 503, "a fault was asked for"),
            _ => json_answer(200, &json!({"status": "ok"})),
        }
    }

    fn models(&self) -> Response<Body> {
        let models: Vec<Value> = self
            .options
            .models
            .iter()
            .map(|id| {
                json!({
                    "id": id, "object": "model", "created": 0, "owned_by": "atalho-sim",
                    "max_model_len": self.params.max_model_len,
                })
            })
            .collect();
        json_answer(200, &json!({"object": "list", "data": models}))
    }

    /// What tests use to steer the host and to look into it.
    async fn sim(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        match (request.method(), path.as_str()) {
            (_, "/sim/echo") => echo(request).await,
            (&Method::GET, "/sim/state") => self.state(),
            (&Method::GET, "/sim/fault") => json_answer(200, &json!(self.faults.current())),
            (&Method::POST, "/sim/fault") => {
                let body = read(request).await.unwrap_or_default();
                match serde_json::from_slice::<Fault>(&body) {
                    Ok(fault) => {
                        self.faults.set(fault);
                        json_answer(200, &json!(fault))
                    }
                    Err(error) => failure(None, 400, &format!("not a fault: {error}")),
                }
            }
            (&Method::POST, "/sim/reset") => {
                self.runner.clear_cache();
                self.faults.set(Fault::default());
                self.state()
            }
            (method, path) => failure(None, 404, &format!("{method} {path} is not served here")),
        }
    }

    fn state(&self) -> Response<Body> {
        let (running, waiting) = self.runner.load();
        let metrics = self.runner.metrics();
        json_answer(
            200,
            &json!({
                "name": self.options.name,
                "requests": self.requests.load(Ordering::Relaxed),
                "running": running,
                "waiting": waiting,
                "finished": metrics.finished.get(),
                "cancelled": metrics.cancelled_total(),
                "connections": metrics.connections.get(),
            }),
        )
    }
}

/// What arrived, so that a test can see what a gateway made of a request.
async fn echo(request: Request<Incoming>) -> Response<Body> {
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let (method, target) = (request.method().to_string(), request.uri().to_string());
    let version = format!("{:?}", request.version());
    let Some(body) = read(request).await else {
        return failure(None, 413, "the body is too large");
    };
    json_answer(
        200,
        &json!({
            "method": method,
            "target": target,
            "version": version,
            "headers": headers,
            "body_bytes": body.len(),
            "body_xxh3": format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&body)),
        }),
    )
}

async fn read(request: Request<Incoming>) -> Option<Bytes> {
    Limited::new(request.into_body(), MAX_BODY).collect().await.ok().map(|body| body.to_bytes())
}

fn body_of(sending: Sending) -> Body {
    StreamBody::new(stream::unfold(sending, |mut sending| async {
        let piece = sending.next().await?;
        Some((piece.map(Frame::data), sending))
    }))
    .boxed_unsync()
}

fn plain(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|error: Infallible| match error {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn json_answer(status: u16, value: &Value) -> Response<Body> {
    plain(status, "application/json", value.to_string())
}

fn failure(api: Option<Api>, status: u16, message: &str) -> Response<Body> {
    json_answer(status, &reply::error(api, status, message))
}
