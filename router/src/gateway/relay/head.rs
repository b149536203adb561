//! From the request to the head of its response.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::sync::futures::Notified;

use super::{Relay, Sent, client_watch::PIPELINE_LIMIT};
use crate::engine::Conn;
use crate::fleet::Instance;
use crate::gateway::failure::Broken;
use crate::http::{
    Limits, Method, ResponseError, ResponseHead, parse_response, parse_upgrade_response,
};

enum HeadStep {
    Head(ResponseHead),
    HandOver,
}

impl Relay<'_> {
    /// Sends the request and waits for the head of the response, which stays at the front of the
    /// upstream's input.
    pub(in crate::gateway) async fn response_head(
        &mut self,
        client: &mut Conn,
        instance: &Instance,
        method: Method,
        limits: &Limits,
    ) -> Result<ResponseHead, Broken> {
        let mut next = pin!(instance.alarm().next());
        self.instance.restart();
        loop {
            let step = poll_fn(|cx| match self.poll_head(cx, client, method, limits) {
                Poll::Pending => self.poll_wait(cx, instance, &mut next).map(Err),
                ready => ready,
            })
            .await?;
            match step {
                HeadStep::Head(head) => return Ok(head),
                HeadStep::HandOver => self.hand_over_request(client).await?,
            }
        }
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Conn,
        method: Method,
        limits: &Limits,
    ) -> Poll<Result<HeadStep, Broken>> {
        loop {
            match self.poll_sending(cx, client) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(Sent::HandOver)) => return Poll::Ready(Ok(HeadStep::HandOver)),
                Poll::Ready(Ok(Sent::Finished)) => {
                    self.timer.restart(self.config.timeouts.first_byte);
                }
                Poll::Pending => {}
            }
            if self.sending.done.is_some()
                && self.watch.poll_gone(cx, client, self.worker, self.config).is_ready()
            {
                return Poll::Ready(Err(Broken::ClientGone));
            }
            if !self.upstream.input.is_empty() {
                let parsed = match self.upgrade {
                    true => parse_upgrade_response(&self.upstream.input, limits),
                    false => parse_response(&self.upstream.input, method, limits),
                };
                match parsed {
                    Ok(Some(head)) => return Poll::Ready(Ok(HeadStep::Head(head))),
                    Ok(None) => {}
                    Err(ResponseError { message, .. }) => {
                        return Poll::Ready(Err(Broken::BadResponse(message.to_string())));
                    }
                }
            }
            match self.upstream.poll_fill(cx, limits.head_bytes + PIPELINE_LIMIT) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(Broken::Upstream(io::ErrorKind::UnexpectedEof.into())));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::Upstream(error))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// What ends the wait for a response of which nothing has come.
    fn poll_wait<'i>(
        &mut self,
        cx: &mut Context<'_>,
        instance: &'i Instance,
        next: &mut Pin<&mut Notified<'i>>,
    ) -> Poll<Broken> {
        self.instance.poll(cx, instance, next);
        if self.instance.down() {
            return Poll::Ready(Broken::InstanceDown);
        }
        if self.sending.done.is_some() {
            ready!(self.timer.poll(cx, self.sending.copier.progress()));
            return Poll::Ready(Broken::FirstByteTimeout);
        }
        // The request is still being sent: it is the client, or the instance's reading, that idles.
        let limit = self.config.timeouts.body_idle;
        if self.timer.limit() != limit {
            self.timer.restart(limit);
        }
        ready!(self.timer.poll(cx, self.sending.copier.progress()));
        Poll::Ready(Broken::ClientStalled)
    }

    /// Takes the head of the response off the upstream's input.
    pub(in crate::gateway) fn take_head(&mut self, head: &ResponseHead) -> Bytes {
        self.upstream.input.split_to(head.len).freeze()
    }

    /// Writes to the client at once, ahead of the response (interim responses).
    pub(in crate::gateway) async fn write_client(
        &mut self,
        client: &mut Conn,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        let limit = self.config.timeouts.body_idle;
        match tokio::time::timeout(limit, client.stream.write_all(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Broken::ClientGone),
        }
    }
}
