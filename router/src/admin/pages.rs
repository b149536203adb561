//! Which page answers what.

use std::io::Write;

use super::{ready::ready, status::Status};
use crate::{http::Method, metrics, shared::Shared};

const TEXT: &str = "text/plain; charset=utf-8";

/// What the root answers, and what an unknown path is told.
const INDEX: &str = "/metrics  Prometheus metrics\n\
                     /healthz  200 while the process is alive\n\
                     /readyz   200 while an instance can be reached, 503 before, after and while \
                     draining\n\
                     /status   the fleet, its health and its load, as JSON\n";

/// An answer.
pub(super) struct Page {
    status: u16,
    media_type: &'static str,
    body: Vec<u8>,
}

/// The answer to a request.
pub(super) fn page(method: Method, path: &str, shared: &Shared) -> Page {
    if !matches!(method, Method::Get | Method::Head) {
        return Page::text(405, "These pages can only be read: use GET.\n");
    }
    match path {
        "/" => Page::text(200, INDEX),
        "/metrics" => {
            Page { status: 200, media_type: metrics::CONTENT_TYPE, body: shared.metrics.render() }
        }
        "/healthz" => Page::text(200, "alive\n"),
        "/readyz" => match ready(shared) {
            Ok(()) => Page::text(200, "ready\n"),
            Err(why) => Page::text(503, &format!("{why}\n")),
        },
        "/status" => {
            let mut body = serde_json::to_vec_pretty(&Status::of(shared)).unwrap_or_default();
            body.push(b'\n');
            Page { status: 200, media_type: "application/json", body }
        }
        _ => Page::not_found(),
    }
}

impl Page {
    pub(super) fn text(status: u16, text: &str) -> Page {
        Page { status, media_type: TEXT, body: text.as_bytes().to_vec() }
    }

    pub(super) fn not_found() -> Page {
        Page::text(404, &format!("There is no such page. There are:\n{INDEX}"))
    }

    /// The whole answer as HTTP/1.1. `head_only` leaves the body out (answers to HEAD).
    pub(super) fn answer(self, head_only: bool) -> Vec<u8> {
        let phrase = match self.status {
            200 => "OK",
            404 => "Not Found",
            405 => "Method Not Allowed",
            503 => "Service Unavailable",
            431 => "Request Header Fields Too Large",
            _ => "Bad Request",
        };
        let mut out = Vec::with_capacity(256 + self.body.len());
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            "HTTP/1.1 {} {phrase}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\n{allow}Connection: close\r\n\r\n",
            self.status,
            self.media_type,
            self.body.len(),
        );
        if !head_only {
            out.extend_from_slice(&self.body);
        }
        out
    }
}
