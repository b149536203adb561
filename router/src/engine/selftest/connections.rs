//! Connections of the gateway's, with their far ends.

use crate::engine::Conn;
use std::future::poll_fn;

use tokio::net::{TcpListener, TcpStream};

use super::LIMIT;
use crate::net::{
    Stream,
    socket::{self, ConnectOptions},
};

/// Loopback.
pub(super) const V4: &str = "127.0.0.1:0";
pub(super) const V6: &str = "[::1]:0";

/// A connection of the gateway's, and its far end.
pub(super) async fn connection() -> std::io::Result<(Conn, TcpStream)> {
    let listener = TcpListener::bind(V4).await?;
    let far = TcpStream::connect(listener.local_addr()?).await?;
    far.set_nodelay(true)?;
    let (near, _) = listener.accept().await?;
    Ok((Conn::new(Stream::new(near.into_std()?)?), far))
}

/// A connection that this side accepted, as one of a client is.
///
/// `segment` is that of [`socket::listen`].
pub(super) async fn accepted(
    local: &str,
    segment: Option<u32>,
) -> std::io::Result<(Conn, TcpStream)> {
    let address = local.parse().map_err(std::io::Error::other)?;
    let listener = socket::listen(address, segment)?;
    let listener = TcpListener::from_std(listener)?;
    let far = TcpStream::connect(listener.local_addr()?).await?;
    far.set_nodelay(true)?;
    let (near, _) = listener.accept().await?;
    Ok((Conn::new(Stream::new(near.into_std()?)?), far))
}

/// A connection that this side opened.
pub(super) async fn opened(
    local: &str,
    segment: Option<u32>,
) -> std::io::Result<(Conn, TcpStream)> {
    let listener = TcpListener::bind(local).await?;
    let options = ConnectOptions { segment, ..ConnectOptions::default() };
    let near = socket::connect(&[listener.local_addr()?], LIMIT, &options).await?;
    let (far, _) = listener.accept().await?;
    far.set_nodelay(true)?;
    Ok((Conn::new(near), far))
}

/// Reads until the connection's input holds `length` bytes.
pub(super) async fn fill(conn: &mut Conn, length: usize) -> Result<(), String> {
    while conn.input.len() < length {
        match poll_fn(|cx| conn.poll_fill(cx, length)).await {
            Ok(0) => return Err("the connection ended early".into()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}
