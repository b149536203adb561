//! Calls of the control API by nobody's SDK, which may break off at any byte.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};

use serde_json::Value;
use tests::DEADLINE;

/// What a call came to.
pub(crate) type Called = Result<Value, String>;

/// Calls an operation: its output, or the text of its error. The outer error is that of a connection on
/// which no whole answer came.
pub(crate) fn call(to: SocketAddr, operation: &str, input: &Value) -> io::Result<Called> {
    let target = format!("SageMaker.{operation}");
    let fields = [("X-Amz-Target", &*target), ("Content-Type", "application/x-amz-json-1.1")];
    let (status, body) = post(to, "/", &fields, &input.to_string())?;
    let body: Value = match &*body {
        "" => Value::Null,
        text => serde_json::from_str(text)?,
    };
    Ok(match status {
        200 => Ok(body),
        _ => Err(body["message"].as_str().unwrap_or_default().to_owned()),
    })
}

/// A request on a connection of its own: status and body of its answer.
pub(crate) fn post(
    to: SocketAddr,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&to, DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let fields: String =
        fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
    });
    if length.is_some_and(|length| length != body.len()) {
        return Err(broken());
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(broken)?, body.to_owned()))
}
