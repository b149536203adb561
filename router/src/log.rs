//! The program's log: set-up, and the one line per request.
//!
//! Everything goes to standard error, so that standard output stays what a command prints. No line
//! holds a prompt, a credential, a tenant id or a query. Of what a client says, an access line shows
//! the path, the model and the request id.

use std::{io::IsTerminal, net::IpAddr, time::Duration};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Filters by module, such as `info,router::fleet=debug`; goes before the configured level.
pub const FILTER_VARIABLE: &str = "ATALHO_LOG";

/// What access lines are filtered by.
const ACCESS: &str = "access";

/// Starts the log. Call once per process, first thing.
///
/// `level` is the least severe level written (`error`, `warn`, `info`, `debug`, `trace`); the
/// environment variable [`FILTER_VARIABLE`] goes before it. Access lines are written whatever the
/// level: who asked for them wants them.
///
/// # Errors
/// The variable holds no valid filter, or a log was started already.
pub fn init(json: bool, level: &str) -> anyhow::Result<()> {
    // The loader of the kernel programs tells every relocation it makes.
    let filter =
        std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| format!("{level},aya=warn,aya_obj=warn"));
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| anyhow::anyhow!("{FILTER_VARIABLE}: `{filter}` is no filter: {error}"))?
        .add_directive("access=info".parse()?);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry.with(lines.json().flatten_event(true).with_current_span(false)).try_init()?;
    } else {
        let ansi = std::io::stderr().is_terminal();
        registry.with(lines.with_target(false).with_ansi(ansi)).try_init()?;
    }
    Ok(())
}

/// What one request's line says. An empty text stands for "none".
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The client's own address, behind the proxies that are trusted to tell it.
    pub client: IpAddr,
    /// The request's `x-request-id`, the client's or a new one.
    pub request_id: &'a str,
    /// The id of the trace that it is part of.
    pub trace_id: &'a str,
    /// Name of the endpoint in the configuration.
    pub endpoint: &'a str,
    /// Name of the variant in the configuration.
    pub variant: &'a str,
    /// `GET`, `POST`, ...; methods that HTTP does not define show as `OTHER`.
    pub method: &'static str,
    /// The path that the client asked for, without its query.
    pub path: &'a str,
    /// Which API the path belongs to, such as `chat_completions`.
    pub api: &'static str,
    /// The model that the client asked for, as far as the gateway had to look.
    pub model: &'a str,
    /// A hash of the tenant id, which tells tenants apart without naming them.
    pub tenant: Option<u64>,
    /// Status that the client was sent; 0 when none was.
    pub status: u16,
    /// The instance that served, as in the configuration.
    pub instance: &'a str,
    /// Why that instance, or the slug of the error that the gateway replied with.
    pub reason: &'a str,
    /// How the exchange ended; see [`Outcome`](crate::metrics::Outcome).
    pub outcome: &'a str,
    /// Body bytes from the client.
    pub request_bytes: u64,
    /// Body bytes to the client.
    pub response_bytes: u64,
    /// From the request's head until the response's head.
    pub head: Option<Duration>,
    /// From the request's head until the first byte of the response's body.
    pub first_byte: Option<Duration>,
    /// From the request's head until the end of the exchange.
    pub duration: Duration,
    /// What carried most of the response: `userspace`, `sockmap`, `splice`.
    pub engine: &'static str,
}

impl Access<'_> {
    /// What came from `client` and is no request, answered with an error.
    pub const fn refused(client: IpAddr, status: u16, reason: &'static str) -> Access<'static> {
        Access {
            client,
            request_id: "",
            trace_id: "",
            method: "",
            path: "",
            api: "",
            endpoint: "",
            variant: "",
            model: "",
            tenant: None,
            status,
            instance: "",
            reason,
            outcome: "",
            request_bytes: 0,
            response_bytes: 0,
            head: None,
            first_byte: None,
            duration: Duration::ZERO,
            engine: "",
        }
    }
}

/// Writes one request's line.
pub fn access(line: &Access<'_>) {
    let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    tracing::info!(
        target: ACCESS,
        client = %line.client,
        request_id = line.request_id,
        trace_id = line.trace_id,
        method = line.method,
        path = line.path,
        api = line.api,
        endpoint = line.endpoint,
        variant = line.variant,
        model = line.model,
        tenant = line.tenant.map(|hash| format!("{hash:016x}")),
        status = line.status,
        instance = line.instance,
        reason = line.reason,
        outcome = line.outcome,
        request_bytes = line.request_bytes,
        response_bytes = line.response_bytes,
        head_ms = line.head.map(millis),
        first_byte_ms = line.first_byte.map(millis),
        duration_ms = millis(line.duration),
        engine = line.engine,
        "request"
    );
}
