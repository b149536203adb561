//! Calls of the control API.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time};

use crate::aws::{json, service};

/// For connecting, and for one call.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// One connection to a gateway.
pub(super) struct Client {
    address: SocketAddr,
    connection: SendRequest<Full<Bytes>>,
}

/// The gateway's answer to a call that it did not do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refused {
    /// Such as `ValidationException`.
    pub(super) name: String,
    pub(super) message: String,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let cannot = || {
            format!(
                "cannot reach {address}: is the gateway running, and is this its `control.listen` \
                 address?"
            )
        };
        let stream = time::timeout(TIME_LIMIT, TcpStream::connect(address)).await;
        let stream = stream.with_context(cannot)?.with_context(cannot)?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await.with_context(cannot)?;
        // It ends with the connection; what broke it is told to whoever waits for an answer.
        tokio::spawn(driver);
        Ok(Self { address, connection })
    }

    /// One operation. [`Refused`] is in the error when the gateway answered with one.
    pub(super) async fn call(&mut self, operation: &str, input: &Value) -> anyhow::Result<Value> {
        let request = Request::post("/")
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, json::CONTENT_TYPE)
            .header("x-amz-target", format!("{}.{operation}", service::target_prefix()))
            .body(Full::new(Bytes::from(input.to_string())))?;
        let address = self.address;
        let exchange = async {
            self.connection.ready().await?;
            let response = self.connection.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        let answered = time::timeout(TIME_LIMIT, exchange).await;
        let (status, body) = answered
            .with_context(|| format!("{address} does not answer {operation}"))?
            .with_context(|| format!("{address} broke off at {operation}"))?;
        let output: Value = match &body[..] {
            [] => Value::Null,
            body => serde_json::from_slice(body).with_context(|| {
                format!("{address} does not answer as a control API: is it another listener?")
            })?,
        };
        if status.is_success() {
            return Ok(output);
        }
        let member = |name: &str| output[name].as_str().map(str::to_owned);
        match member("__type").zip(member("message")) {
            Some((name, message)) => Err(Refused { name, message }.into()),
            None => bail!("{address} answers {operation} with {status}: it is no control API"),
        }
    }

    /// One operation on something that may not be there: then nothing.
    pub(super) async fn find(
        &mut self,
        operation: &str,
        input: &Value,
    ) -> anyhow::Result<Option<Value>> {
        match self.call(operation, input).await {
            Ok(output) => Ok(Some(output)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether it says that something does not exist. The API has no code of its own for that.
fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| {
        refused.name == "ValidationException"
            && (refused.message.starts_with("Could not find")
                || refused.message == "Resource does not exist.")
    })
}
