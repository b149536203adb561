//! A client of the control API that has something to change all the time.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use router::{config::Config, control::Identity};
use serde_json::{Value, json};

use super::wire;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long what was made may take until it serves: the start of a gateway with thousands takes minutes.
const SETTLING: Duration = Duration::from_secs(600);

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
        self.call("CreateModel", &model(name))?;
        self.call("CreateEndpointConfig", &config(name, Some(name), instance_type, count))?;
        self.call("CreateEndpoint", &json!({"EndpointName": name, "EndpointConfigName": name}))?;
        self.wait_for("Endpoint")
    }

    /// Waits until everything that was [stored](store_hosts) serves.
    ///
    /// # Errors
    /// When something does not serve in time.
    pub fn wait_for_all(&mut self) -> anyhow::Result<()> {
        self.wait_for("Endpoint")?;
        self.wait_for("InferenceComponent")
    }

    /// Until none of a kind is being made or changed any more.
    fn wait_for(&mut self, kind: &str) -> anyhow::Result<()> {
        let begin = Instant::now();
        for status in ["Creating", "Updating", "Failed"] {
            let input = json!({"StatusEquals": status, "MaxResults": 1});
            loop {
                let listed = self.call(&format!("List{kind}s"), &input)?;
                if listed[format!("{kind}s")].as_array().is_none_or(Vec::is_empty) {
                    break;
                }
                if status == "Failed" || begin.elapsed() > SETTLING {
                    bail!("not in service after {:?}: {listed}", begin.elapsed());
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

/// Makes a gateway's store with endpoints of one host each for inference components, and `each` of these on every one,
/// by the operations of the control API. That is done before the gateway starts, which does not make all that serves
/// anew for each of them then. Their names are those of [`endpoint`] and [`component`].
///
/// # Errors
/// When the file cannot be made, or one of the operations fails.
pub fn store_hosts(
    store: &Path,
    instance_type: &str,
    endpoints: usize,
    each: usize,
) -> anyhow::Result<()> {
    let Config { control, .. } = Config::default();
    let identity = Identity { region: control.region, account: control.account };
    let plane = router::control::Control::open(store, identity)?;
    let call = |operation: &str, input: Value| {
        let done = plane.call(operation, &input).map(drop);
        done.map_err(|error| anyhow!("{operation}: {}: {}", error.name, error.message))
    };
    call("CreateModel", model(SHARED))?;
    call("CreateEndpointConfig", config(SHARED, None, instance_type, 1))?;
    for at in 0..endpoints {
        let input = json!({"EndpointName": endpoint(at), "EndpointConfigName": SHARED});
        call("CreateEndpoint", input)?;
        for number in 0..each {
            let input = component_input(&component(at, number), &endpoint(at));
            call("CreateInferenceComponent", input)?;
        }
    }
    Ok(())
}

/// The model, and the configuration, of all [hosts of components](store_hosts).
const SHARED: &str = "shared";

/// The name of an endpoint that [hosts components](store_hosts).
pub fn endpoint(at: usize) -> String {
    format!("hosting-{at}")
}

/// The name of a component on such an endpoint.
pub fn component(endpoint: usize, number: usize) -> String {
    format!("component-{endpoint}-{number}")
}

/// Taken as it comes: nobody is asked whether there is such a role.
const ROLE: &str = "arn:aws:iam::000000000000:role/bench";

fn model(name: &str) -> Value {
    json!({"ModelName": name, "PrimaryContainer": {"Image": "image"}, "ExecutionRoleArn": ROLE})
}

/// A configuration with one variant; without a model, its endpoint is for inference components.
fn config(name: &str, model: Option<&str>, instance_type: &str, count: u32) -> Value {
    let mut variant = json!({
        "VariantName": "AllTraffic", "InstanceType": instance_type, "InitialInstanceCount": count,
    });
    if let Some(model) = model {
        variant["ModelName"] = model.into();
    }
    json!({"EndpointConfigName": name, "ExecutionRoleArn": ROLE, "ProductionVariants": [variant]})
}

fn component_input(name: &str, endpoint: &str) -> Value {
    let needs = json!({"MinMemoryRequiredInMb": 128});
    json!({
        "InferenceComponentName": name, "EndpointName": endpoint, "VariantName": "AllTraffic",
        "Specification": {"ModelName": SHARED, "ComputeResourceRequirements": needs},
        "RuntimeConfig": {"CopyCount": 1},
    })
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

/// How far the streams are beside which something is changed.
#[derive(Debug, Default)]
pub struct Beside {
    /// They are being measured.
    pub measured: AtomicBool,
    /// They have ended.
    pub ended: AtomicBool,
}

/// Rounds of all changers, for names that nothing else has.
static ROUNDS: AtomicU32 = AtomicU32::new(0);

/// Works at a pace.
struct Changer<'a> {
    control: Control,
    beside: &'a Beside,
    period: Duration,
    next: Instant,
    /// Nanoseconds that each operation took which began while the streams were measured.
    times: Vec<u64>,
}

impl Changer<'_> {
    /// Calls an operation when it is its turn.
    fn call(&mut self, operation: &str, input: &Value) -> anyhow::Result<Value> {
        // What could not be begun in its time is not made up for at once.
        self.next = (self.next + self.period).max(Instant::now() - self.period);
        thread::sleep(self.next.saturating_duration_since(Instant::now()));
        let measured = self.beside.measured.load(Ordering::Relaxed);
        let begin = Instant::now();
        let output = self.control.call(operation, input)?;
        if measured {
            self.times.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(output)
    }

    /// Describes something and weighs an endpoint, in turn, until that is in service.
    fn in_service(&mut self, weighed: &str, kind: &str, name: &str) -> anyhow::Result<()> {
        let begin = Instant::now();
        let mut weight = 0;
        loop {
            weight = weight % 5 + 1;
            let variant = json!({"VariantName": "AllTraffic", "DesiredWeight": weight});
            let weights =
                json!({"EndpointName": weighed, "DesiredWeightsAndCapacities": [variant]});
            // One that is being changed takes no other change.
            let now = self.call("DescribeEndpoint", &json!({"EndpointName": weighed}))?;
            if now["EndpointStatus"] == "InService" {
                self.call("UpdateEndpointWeightsAndCapacities", &weights)?;
            }
            let named = json!({ format!("{kind}Name"): name });
            let described = self.call(&format!("Describe{kind}"), &named)?;
            match described[format!("{kind}Status")].as_str() {
                Some("InService") => return Ok(()),
                Some("Creating" | "Updating") if begin.elapsed() < SETTLING => {}
                _ => bail!("{name} is not in service after {:?}: {described}", begin.elapsed()),
            }
        }
    }

    /// A round of all operations: an endpoint is made, gets another configuration, and goes; so does a component.
    fn round(&mut self, changes: Changes<'_>, name: &str) -> anyhow::Result<()> {
        let Changes { weighed, instance_type, .. } = changes;
        self.call("CreateModel", &model(name))?;
        let first = config(name, Some(name), instance_type, 1);
        self.call("CreateEndpointConfig", &first)?;
        self.call("CreateEndpoint", &json!({"EndpointName": name, "EndpointConfigName": name}))?;
        self.in_service(weighed, "Endpoint", name)?;
        let other = format!("{name}-other");
        let mut second = config(&other, Some(name), instance_type, 2);
        second["ProductionVariants"][0]["RoutingConfig"] =
            json!({"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"});
        self.call("CreateEndpointConfig", &second)?;
        self.call("UpdateEndpoint", &json!({"EndpointName": name, "EndpointConfigName": other}))?;
        self.in_service(weighed, "Endpoint", name)?;
        self.call("DeleteEndpoint", &json!({"EndpointName": name}))?;
        for config in [name, &other] {
            self.call("DeleteEndpointConfig", &json!({"EndpointConfigName": config}))?;
        }
        self.call("DeleteModel", &json!({"ModelName": name}))?;

        self.call("CreateInferenceComponent", &component_input(name, &endpoint(0)))?;
        self.in_service(weighed, "InferenceComponent", name)?;
        for copies in [0, 1] {
            let wanted = json!({"CopyCount": copies});
            let input = json!({"InferenceComponentName": name, "DesiredRuntimeConfig": wanted});
            self.call("UpdateInferenceComponentRuntimeConfig", &input)?;
            self.in_service(weighed, "InferenceComponent", name)?;
        }
        self.call("DeleteInferenceComponent", &json!({"InferenceComponentName": name}))?;
        Ok(())
    }
}

/// Makes, weighs, describes, updates and deletes endpoints and components until the streams have ended; returns how
/// long each operation took that began while they were measured, in nanoseconds. The first of the
/// [hosts of components](store_hosts) has to be there.
///
/// # Errors
/// When one of the operations fails, or what was made does not serve in time.
pub fn change(
    address: SocketAddr,
    changes: Changes<'_>,
    beside: &Beside,
) -> anyhow::Result<Vec<u64>> {
    let mut changer = Changer {
        control: Control::connect(address)?,
        beside,
        period: Duration::from_secs_f64(1.0 / changes.per_second),
        next: Instant::now(),
        times: Vec::new(),
    };
    while !beside.ended.load(Ordering::Relaxed) {
        // What an earlier call of this made may still be on its way out.
        let round = ROUNDS.fetch_add(1, Ordering::Relaxed);
        changer.round(changes, &format!("made-{round}"))?;
    }
    Ok(changer.times)
}
