//! A client of the control API that has something to change all the time.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::wire;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the control API.
#[derive(Debug)]
pub struct Control {
    address: SocketAddr,
    stream: TcpStream,
}

impl Control {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { address, stream })
    }

    /// Calls an operation.
    ///
    /// # Errors
    /// When it answers with anything but 200, or does not.
    pub fn call(&mut self, operation: &str, input: &Value) -> anyhow::Result<Value> {
        let body = input.to_string();
        let request = format!(
            "POST / HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-amz-json-1.1\r\nx-amz-target: \
             SageMaker.{operation}\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let (status, answer) = self.exchange(&request).with_context(|| operation.to_owned())?;
        if status != 200 {
            bail!("{operation}: {status}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(match answer.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&answer).with_context(|| operation.to_owned())?,
        })
    }

    fn exchange(&mut self, request: &str) -> io::Result<(u16, Vec<u8>)> {
        self.stream.write_all(request.as_bytes())?;
        let (mut buffer, mut answer) = (Vec::new(), Vec::new());
        let mut head: Option<wire::Head> = None;
        let mut piece = [0; 16 << 10];
        loop {
            if head.is_none()
                && let Some(read) = wire::head(&buffer)?
            {
                buffer.drain(..read.len);
                head = Some(read);
            }
            if let Some(head) = &mut head {
                head.body.feed(&buffer, |part| {
                    answer.extend_from_slice(part);
                    Ok(())
                })?;
                buffer.clear();
                if head.body == wire::Body::Done {
                    return Ok((head.status, answer));
                }
            }
            match self.stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => buffer.extend_from_slice(&piece[..length]),
            }
        }
    }

    /// Makes a model, a configuration and an endpoint of these names, and waits until it serves.
    ///
    /// # Errors
    /// When one of the calls fails, or it does not serve in time.
    pub fn make(&mut self, name: &str, instance_type: &str, count: u32) -> anyhow::Result<()> {
        self.create(name, instance_type, count)?;
        let begin = Instant::now();
        while self.status(name)? != "InService" {
            if begin.elapsed() > PATIENCE {
                bail!("{name} is not in service after {PATIENCE:?}");
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn create(&mut self, name: &str, instance_type: &str, count: u32) -> anyhow::Result<()> {
        self.call(
            "CreateModel",
            &json!({"ModelName": name, "PrimaryContainer": {"Image": "image"}}),
        )?;
        let variant = json!({
            "VariantName": "AllTraffic", "ModelName": name, "InstanceType": instance_type,
            "InitialInstanceCount": count, "InitialVariantWeight": 1,
        });
        let config = json!({"EndpointConfigName": name, "ProductionVariants": [variant]});
        self.call("CreateEndpointConfig", &config)?;
        let endpoint = json!({"EndpointName": name, "EndpointConfigName": name});
        self.call("CreateEndpoint", &endpoint)?;
        Ok(())
    }

    fn status(&mut self, name: &str) -> anyhow::Result<String> {
        let endpoint = self.call("DescribeEndpoint", &json!({"EndpointName": name}))?;
        Ok(endpoint["EndpointStatus"].as_str().unwrap_or_default().to_owned())
    }
}

/// What is changed.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// An endpoint that gets new weights; it has a variant `AllTraffic`.
    pub weighed: &'a str,
    /// The type of the instances for endpoints that are made and deleted.
    pub instance_type: &'a str,
    /// Operations that are begun each second.
    pub per_second: f64,
}

/// Makes, weighs, describes and deletes until told to stop; returns how many operations were done.
///
/// # Errors
/// When one of them fails.
pub fn change(address: SocketAddr, changes: Changes<'_>, stop: &AtomicBool) -> anyhow::Result<u64> {
    let mut control = Control::connect(address)?;
    let period = Duration::from_secs_f64(1.0 / changes.per_second);
    let (mut done, mut next) = (0, Instant::now());
    let mut pace = || {
        next = (next + period).max(Instant::now() - period);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        !stop.load(Ordering::Relaxed)
    };
    let mut round = 0_u32;
    while pace() {
        round += 1;
        let name = format!("made-{round}");
        control.create(&name, changes.instance_type, 1)?;
        done += 3;
        // Its weights change until it serves, and once more.
        loop {
            pace();
            let weights = json!({
                "EndpointName": changes.weighed,
                "DesiredWeightsAndCapacities":
                    [{"VariantName": "AllTraffic", "DesiredWeight": 1 + done % 5}],
            });
            control.call("UpdateEndpointWeightsAndCapacities", &weights)?;
            pace();
            done += 2;
            if control.status(&name)? == "InService" {
                break;
            }
        }
        for (operation, key) in [
            ("DeleteEndpoint", "EndpointName"),
            ("DeleteEndpointConfig", "EndpointConfigName"),
            ("DeleteModel", "ModelName"),
        ] {
            pace();
            control.call(operation, &json!({ key: name }))?;
            done += 1;
        }
    }
    Ok(done)
}
