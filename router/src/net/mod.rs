//! Sockets: non-blocking streams of one worker thread, listeners, and the watch for hang-ups.

mod hangup;
mod info;
pub mod proxy_protocol;
pub mod socket;
mod stream;

pub use hangup::{HangupWatch, Side, Watched};
pub use info::{TcpInfo, unacknowledged};
pub use stream::{READ_BUFFER_BYTES, Stream, with_read_buffer};
