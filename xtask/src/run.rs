//! `cargo xtask run`: a simulated fleet and the gateway, on loopback.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    Profile,
    children::{Running, Signal, Signals},
    command::{Cmd, is_root},
    ebpf,
    workspace::Workspace,
};

/// Simulated engines of the endpoint in the configuration.
const ENGINES: usize = 4;
/// Further ones, for endpoints that are made through the control API.
const HOSTS: usize = 3;
/// The type that those are.
const INSTANCE_TYPE: &str = "ml.p5.48xlarge";

/// What `cargo xtask run` takes.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    profile: Profile,
    /// Port of the gateway; the next free one is taken when it is in use.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Port of metrics and health; the next free one is taken when it is in use.
    #[arg(long, default_value_t = 9901)]
    admin_port: u16,
    /// Port of the control API; the next free one is taken when it is in use.
    #[arg(long, default_value_t = 9902)]
    control_port: u16,
    /// What carries bodies: auto, splice, sockmap or userspace.
    #[arg(long, default_value = "auto")]
    engine: String,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ebpf::build_or_explain(workspace)?;
    let flags = options.profile.flags();
    workspace.cargo("build").args(["-p", "router", "-p", "bench", "--bins"]).args(flags).run()?;
    let release = options.profile.release;
    let gateway_binary = workspace.binary("atalho", release);

    let signals = Signals::block()?;
    let mut fleet = Vec::new();
    let mut urls = Vec::new();
    for number in 1..=ENGINES + HOSTS {
        let command = Cmd::new(workspace.binary("atalho-sim", release)).args(["--port", "0"]);
        let name = format!("engine {number}");
        let (engine, line) =
            Running::start_and_read(name, command.quiet(), Duration::from_secs(10))?;
        let address = line
            .strip_prefix("listening on ")
            .with_context(|| format!("{} said `{line}`", engine.name))?;
        urls.push(format!("http://{}", address.trim()));
        fleet.push(engine);
    }

    let listen = free_port(options.port)?;
    let admin = free_port(options.admin_port)?;
    let control = free_port(options.control_port)?;
    let addresses = Addresses { listen, admin, control };
    let directory = workspace.target.join("run");
    let (file, store) = (directory.join("atalho.toml"), directory.join("control.redb"));
    fs::create_dir_all(&directory)?;
    // Each run begins with no endpoint but that of the file.
    if store.exists() {
        fs::remove_file(&store)?;
    }
    fs::write(&file, configuration(&addresses, &store, &options.engine, &urls))?;
    let serve = Cmd::new(&gateway_binary).args(["serve", "--config"]).arg(&file);
    let mut gateway = Running::start("the gateway", serve.quiet())?;
    wait_until_ready(admin, &mut gateway, &signals)?;

    explain(workspace.relative(&gateway_binary), workspace.relative(&file), &addresses);
    let result = watch(&signals, &mut gateway, &mut fleet);
    eprintln!("stopping");
    // In this order: the gateway lets open exchanges end while the engines still serve.
    drop(gateway);
    drop(fleet);
    result
}

/// Until somebody stops us, or a process ends by itself.
fn watch(signals: &Signals, gateway: &mut Running, fleet: &mut [Running]) -> Result<()> {
    loop {
        if signals.wait(Duration::from_secs(3600)) == Signal::Stop {
            return Ok(());
        }
        if let Some(status) = gateway.ended() {
            bail!("the gateway ended by itself: {status}");
        }
        // Killing an engine to see what happens is part of trying things out.
        for engine in fleet.iter_mut().filter(|engine| !engine.reported) {
            if let Some(status) = engine.ended() {
                engine.reported = true;
                eprintln!("{} ended: {status}; the gateway goes on without it", engine.name);
            }
        }
    }
}

fn wait_until_ready(admin: SocketAddr, gateway: &mut Running, signals: &Signals) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Some(status) = gateway.ended() {
            bail!("the gateway did not start: {status}; what it said is above");
        }
        if is_ready(admin) {
            return Ok(());
        }
        if signals.wait(Duration::from_millis(50)) == Signal::Stop {
            bail!("stopped");
        }
    }
    bail!("the gateway is not ready after 30 s: see what it said above")
}

fn is_ready(admin: SocketAddr) -> bool {
    ask(admin, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Head and body of the answer to a GET request.
fn ask(admin: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Whether the gateway uses the kernel, in a sentence.
fn engine_in_use(admin: SocketAddr) -> String {
    let status = ask(admin, "/status").unwrap_or_default();
    let body = status.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let status: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let engines = status["engines"].as_array().cloned().unwrap_or_default();
    let kernel = || engines.iter().filter(|engine| engine["name"] != "userspace");
    if let Some(engine) = kernel().find(|engine| engine["available"] == true) {
        let name = engine["name"].as_str().unwrap_or_default();
        return format!("The kernel carries bodies where that pays: engine {name}.");
    }
    match kernel().find(|engine| engine["reason"] != "disabled") {
        Some(engine) => format!(
            "Everything is relayed in user space: the {} engine is not available ({}{}).",
            engine["name"].as_str().unwrap_or_default(),
            engine["reason"].as_str().unwrap_or("no reason given"),
            if is_root() { "" } else { "; it needs root" },
        ),
        None => "Everything is relayed in user space.".into(),
    }
}

/// The first port from `wanted` on that nobody listens on, out of a few.
fn free_port(wanted: u16) -> Result<SocketAddr> {
    let last = wanted.saturating_add(20);
    for port in wanted..=last {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            if port != wanted {
                eprintln!("port {wanted} is in use: taking {port}");
            }
            return Ok(address);
        }
    }
    bail!("ports {wanted} to {last} of 127.0.0.1 are all in use: name another one (see --help)")
}

/// Where the gateway listens.
struct Addresses {
    listen: SocketAddr,
    admin: SocketAddr,
    control: SocketAddr,
}

fn configuration(
    Addresses { listen, admin, control }: &Addresses,
    store: &Path,
    engine: &str,
    urls: &[String],
) -> String {
    let store = store.display();
    let (urls, hosts) = urls.split_at(ENGINES);
    let hosts: Vec<_> = hosts.iter().map(|url| format!("\"{url}\"")).collect();
    let hosts = hosts.join(", ");
    let instances: String = urls
        .iter()
        .map(|url| format!("\n[[endpoint.variant.instance]]\nurl = \"{url}\"\n"))
        .collect();
    format!(
        "# Written by `cargo xtask run`. Change it while the gateway runs: it takes the change over.\n\
         listen = [\"{listen}\"]\n\
         admin = \"{admin}\"\n\
         access_log = true\n\
         \n\
         [engine]\n\
         mode = \"{engine}\"\n\
         \n\
         [control]\n\
         listen = \"{control}\"\n\
         store = \"{store}\"\n\
         \n\
         [[host_pool]]\n\
         instance_type = \"{INSTANCE_TYPE}\"\n\
         hosts = [{hosts}]\n\
         \n\
         [[endpoint]]\n\
         name = \"default\"\n\
         \n\
         [[endpoint.variant]]\n\
         name = \"main\"\n\
         strategy = \"prefix-aware\"\n\
         prefix_length = 1024\n\
         concurrency_threshold = 4\n\
         {instances}"
    )
}

fn explain(binary: &Path, file: &Path, Addresses { listen, admin, control }: &Addresses) {
    let binary = binary.display();
    let file = file.display();
    let engine = engine_in_use(*admin);
    println!(
        r#"
The gateway is at http://{listen}, in front of {ENGINES} simulated engines.
{engine}
In another terminal:

  # A chat request. Send it twice: the second finds its prompt cached (cached_tokens).
  curl -si http://{listen}/v1/chat/completions -H 'content-type: application/json' \
    -d '{{"model":"sim-model","messages":[{{"role":"user","content":"Why is the sky blue?"}}]}}'

  # The same, streaming.
  curl -N http://{listen}/v1/chat/completions -H 'content-type: application/json' \
    -d '{{"model":"sim-model","stream":true,"messages":[{{"role":"user","content":"Why is the sky blue?"}}]}}'

  # Where a request would go, and why.
  echo '{{"model":"sim-model","messages":[{{"role":"user","content":"Why is the sky blue?"}}]}}' |
    {binary} explain --config {file} --path /v1/chat/completions -

  # What happened so far.
  curl -s http://{admin}/metrics | grep '^atalho_requests_total' | grep -v ' 0$'
  curl -s http://{admin}/status

  # Which engines work on this host.
  {binary} doctor

Amazon SageMaker's clients find their API here, and {HOSTS} more simulated hosts of the type {INSTANCE_TYPE}:

  export AWS_ENDPOINT_URL_SAGEMAKER=http://{control} AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME=http://{listen}
  export AWS_DEFAULT_REGION=us-east-1 AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any
  # Version 1 of the AWS CLI needs newer models than its own: see docs/sagemaker.md, "AWS CLI".

  aws sagemaker create-model --model-name example-llm-model \
    --primary-container Image=example-llm-image
  aws sagemaker create-endpoint-config --endpoint-config-name example-llm-config --production-variants '[{{
    "VariantName": "AllTraffic", "ModelName": "example-llm-model", "InitialInstanceCount": {HOSTS},
    "InstanceType": "{INSTANCE_TYPE}", "RoutingConfig": {{"RoutingStrategy": "PREFIX_AWARE",
    "PrefixAwareRoutingConfig": {{"PrefixLength": 4096, "ConcurrencyThreshold": 10}}}}}}]'
  aws sagemaker create-endpoint --endpoint-name example-llm-endpoint \
    --endpoint-config-name example-llm-config
  aws sagemaker wait endpoint-in-service --endpoint-name example-llm-endpoint

  echo '{{"messages":[{{"role":"user","content":"Why is the sky blue?"}}]}}' > request.json
  aws sagemaker-runtime invoke-endpoint --endpoint-name example-llm-endpoint \
    --content-type application/json --body fileb://request.json output.json && cat output.json

Ctrl-C stops everything.
"#
    );
}
