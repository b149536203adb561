//! The control API's listener: AWS JSON 1.1 over HTTP.
//!
//! Every operation is a `POST /` that names itself in `X-Amz-Target`. Signatures are taken as they come:
//! nobody is asked who they are.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::{net::TcpStream, sync::Semaphore, time};

use super::Control;
use crate::aws::{AwsError, json};

/// Connections served at the same time; more wait.
const CONNECTIONS: usize = 64;

/// For a head to come, and for a body.
const PATIENCE: Duration = Duration::from_secs(30);

/// Longest input, in bytes. The largest that the API's own limits allow is far below.
pub const MAX_INPUT: usize = 4 << 20;

/// Wait after a failed accept (out of descriptors): the next may succeed once some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The field that names an operation.
const TARGET: &str = "x-amz-target";

const INDEX: &str = "This is the control API of Atalho, for clients of Amazon SageMaker's:\n\
                     aws sagemaker list-endpoints --endpoint-url http://THIS-ADDRESS\n";

/// Serves the API for ever. Must run inside a tokio runtime.
///
/// # Errors
///
/// When the listener cannot be polled.
pub async fn serve(listener: TcpListener, control: Arc<Control>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    warn_if_exposed(listener.local_addr()?);
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let control = Arc::clone(&control);
                tokio::spawn(async move {
                    connection(stream, peer, control).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "control: cannot accept a connection");
                time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn warn_if_exposed(address: SocketAddr) {
    if address.ip().is_loopback() {
        tracing::info!(%address, "control API for AWS's clients");
    } else {
        tracing::warn!(
            %address,
            "the control API does not check who asks, and is open beyond this host: everybody who \
             reaches this address can make and delete endpoints; set `control.listen = \
             \"127.0.0.1:9902\"` to close it"
        );
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, control: Arc<Control>) {
    // Answers are short, and whoever asks waits for them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let control = Arc::clone(&control);
        async move { Ok::<_, Infallible>(exchange(request, control).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "control: a connection broke");
    }
}

async fn exchange(request: Request<Incoming>, control: Arc<Control>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    if head.method == Method::GET && !head.headers.contains_key(TARGET) {
        return Response::new(Full::from(INDEX));
    }
    if head.method != Method::POST || head.uri.path() != "/" {
        let error = AwsError::unknown_operation(
            "Operations are POST / with the field X-Amz-Target, such as SageMaker.CreateEndpoint. \
             Endpoints are called at the gateway's other address.",
        );
        return response(Answer::of(Err(error)));
    }
    let body = match time::timeout(PATIENCE, Limited::new(body, MAX_INPUT).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => {
            Err(AwsError::serialization(format!("The request's body cannot be read: {error}.")))
        }
        Err(_) => Err(AwsError::serialization("The request's body did not come in time.")),
    };
    match body {
        Ok(body) => response(answer(control, target(&head.headers), &body).await),
        Err(error) => response(Answer::of(Err(error))),
    }
}

/// What a call is answered with.
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
    /// The error's name, if it is one: for the field `x-amzn-errortype`.
    pub error: Option<&'static str>,
    /// For the field `x-amzn-requestid`.
    pub id: String,
}

impl Answer {
    fn of(outcome: Result<Value, AwsError>) -> Self {
        let (status, body, error) = match &outcome {
            Ok(output) => (200, json::output_body(output), None),
            Err(error) => (error.status, json::error_body(error), Some(error.name)),
        };
        Self { status, body, error, id: request_id() }
    }
}

/// Makes a call: `target` is the value of `X-Amz-Target`, `body` its input. Waiting for a disk holds up nobody on the
/// calling thread, which must run tokio.
pub async fn answer(control: Arc<Control>, target: Option<&[u8]>, body: &[u8]) -> Answer {
    let outcome = async {
        let operation = json::operation(target)?.name();
        let input = json::input(body)?;
        let called = tokio::task::spawn_blocking(move || control.call(operation, &input)).await;
        called.unwrap_or_else(|error| Err(AwsError::internal(error.to_string())))
    };
    let outcome = outcome.await;
    let refused = outcome.as_ref().err().map(|error| (error.name, error.message.clone()));
    let answer = Answer::of(outcome);
    if let Some((error, message)) = refused {
        tracing::info!(
            operation = %String::from_utf8_lossy(target.unwrap_or_default()),
            error, message, request = answer.id, "control: refused"
        );
    }
    answer
}

fn target(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(TARGET).map(HeaderValue::as_bytes)
}

fn response(Answer { status, body, error, id }: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(json::CONTENT_TYPE));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-amzn-requestid", id);
    }
    if let Some(name) = error {
        headers.insert("x-amzn-errortype", HeaderValue::from_static(name));
    }
    response
}

/// In the form of a UUID, as the service's are.
fn request_id() -> String {
    let n = fastrand::u128(..);
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        n as u32,
        (n >> 32) as u16,
        (n >> 48) as u16 & 0xfff,
        (n >> 64) as u16 & 0xfff,
        (n >> 80) as u64 & 0xffff_ffff_ffff,
    )
}
