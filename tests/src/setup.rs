//! The configuration of a gateway under test.

use std::{net::SocketAddr, sync::Arc};

use toml::{Table, Value};

use crate::{Engine, Gateway, Upstream, netns::Namespace, network::Network};

/// Builds a configuration file and starts a gateway with it.
///
/// What would speak to an instance unasked (health checks, reading its metrics) is off, failures
/// eject nobody, and bodies are handed over from their first byte, so that the kernel engines work in
/// every test: a test turns on what it is about. All paths are reachable, so that a test can name one
/// after what it does. There is one worker thread, because each has its own
/// pool and the kernel spreads connections over them: which connection to an instance is used again
/// would be chance.
#[derive(Clone, Debug)]
pub struct Setup {
    engine: Engine,
    table: Table,
    routing: Table,
    instances: Vec<Table>,
    endpoints: Option<Value>,
    pub(crate) namespace: Option<String>,
    /// Kept until the gateway has ended.
    pub(crate) network: Option<Arc<Network>>,
    pub(crate) nobody: bool,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) flags: Vec<String>,
}

impl Setup {
    /// A gateway whose only endpoint has no instance yet.
    pub fn new(engine: Engine) -> Self {
        let network = Network::current();
        let listen = match &network {
            Some(network) => network.listen().to_string(),
            None => "127.0.0.1:0".to_owned(),
        };
        let setup = Self {
            engine,
            table: Table::new(),
            routing: Table::new(),
            instances: Vec::new(),
            endpoints: None,
            namespace: network.as_ref().map(|network| network.gateway.name().to_owned()),
            network,
            nobody: false,
            environment: Vec::new(),
            flags: Vec::new(),
        };
        setup
            .set("listen", vec![listen])
            .set("admin", "127.0.0.1:0")
            .set("threads", 1)
            .set("engine.mode", engine.name())
            .set("engine.xdp", if engine == Engine::SpliceXdp { "on" } else { "off" })
            .set("engine.hand_over_from_bytes", 0)
            .set("engine.hand_over_from_reads", 0)
            .set("path", everything())
            .set("health.active", false)
            .set("health.eject_after", 0)
            .set("models.interval", "0s")
            .set("models.cache", "0s")
            .set("scrape.interval", "0s")
    }

    /// One instance, played by `upstream`.
    pub fn single(engine: Engine, upstream: &Upstream) -> Self {
        Self::new(engine).instance(upstream.address())
    }

    /// The engine it was made for.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Sets one value by its dotted path.
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        let mut table = &mut self.table;
        let (sections, key) = path.rsplit_once('.').unwrap_or(("", path));
        for section in sections.split('.').filter(|section| !section.is_empty()) {
            table = table
                .entry(section)
                .or_insert_with(|| Table::new().into())
                .as_table_mut()
                .expect("a section");
        }
        table.insert(key.to_owned(), value.into());
        self
    }

    /// Takes a value back, to leave it at its default.
    pub fn unset(mut self, section: &str, key: &str) -> Self {
        if let Some(table) = self.table.get_mut(section).and_then(Value::as_table_mut) {
            table.remove(key);
        }
        self
    }

    /// Only those paths that are reachable by default.
    pub fn default_paths(mut self) -> Self {
        self.table.remove("path");
        self
    }

    /// Sets one value of the variant.
    pub fn routing(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.routing.insert(key.to_owned(), value.into());
        self
    }

    /// Routes by prefix.
    pub fn prefix_aware(self, prefix_length: i64, threshold: i64) -> Self {
        self.routing("strategy", "prefix-aware")
            .routing("prefix_length", prefix_length)
            .routing("concurrency_threshold", threshold)
    }

    /// Adds an instance.
    pub fn instance(self, address: SocketAddr) -> Self {
        self.instance_with(address, &[])
    }

    /// Adds an instance with more settings.
    pub fn instance_with(mut self, address: SocketAddr, settings: &[(&str, Value)]) -> Self {
        let mut table = Table::new();
        table.insert("url".to_owned(), format!("http://{address}").into());
        for (key, value) in settings {
            table.insert((*key).to_owned(), value.clone());
        }
        self.instances.push(table);
        self
    }

    /// Adds an instance for each of them.
    pub fn instances<'a>(self, upstreams: impl IntoIterator<Item = &'a Upstream>) -> Self {
        upstreams.into_iter().fold(self, |setup, upstream| setup.instance(upstream.address()))
    }

    /// Forgets the instances.
    pub fn no_instances(mut self) -> Self {
        self.instances.clear();
        self
    }

    /// Replaces the endpoint by those of a TOML text (`[[endpoint]]` tables).
    ///
    /// # Panics
    /// When the text is no TOML with endpoints.
    pub fn endpoints(mut self, text: &str) -> Self {
        let table: Table = text.parse().expect("TOML");
        self.endpoints = Some(table["endpoint"].clone());
        self
    }

    /// Runs the gateway as a user without privileges. Only root can do that.
    pub fn as_nobody(mut self) -> Self {
        self.nobody = true;
        self
    }

    /// Sets a variable of the gateway's environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a flag of `atalho serve`.
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// At the addresses of a running gateway.
    pub fn in_place_of(self, gateway: &Gateway) -> Self {
        let listen: Vec<_> = gateway.addresses().iter().map(ToString::to_string).collect();
        let setup = self.set("listen", listen).set("admin", gateway.admin().to_string());
        match gateway.control_address() {
            Some(address) => setup.set("control.listen", address.to_string()),
            None => setup,
        }
    }

    /// Runs the gateway in a network namespace.
    pub fn within(mut self, namespace: &Namespace) -> Self {
        self.namespace = Some(namespace.name().to_owned());
        self
    }

    /// Whether the test says how much is logged.
    pub(crate) fn logs_by_itself(&self) -> bool {
        self.table.get("log").is_some_and(|log| log.get("level").is_some())
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut table = self.table.clone();
        let endpoints = self.endpoints.clone().unwrap_or_else(|| {
            let mut variant = self.routing.clone();
            variant.insert("name".to_owned(), "main".into());
            let instances: Vec<Value> = self.instances.iter().cloned().map(Value::Table).collect();
            if !instances.is_empty() {
                variant.insert("instance".to_owned(), instances.into());
            }
            let mut endpoint = Table::new();
            endpoint.insert("name".to_owned(), "default".into());
            endpoint.insert("variant".to_owned(), vec![Value::Table(variant)].into());
            vec![Value::Table(endpoint)].into()
        });
        table.insert("endpoint".to_owned(), endpoints);
        toml::to_string(&table).expect("a table")
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it does not start; prints its log then.
    #[track_caller]
    pub fn start(&self) -> Gateway {
        Gateway::start(self)
    }
}

/// `[[path]]` tables that make every path reachable.
fn everything() -> Vec<Value> {
    let path = |path: &str| Value::Table([("path".to_owned(), path.into())].into_iter().collect());
    vec![path("/"), path("/{any...}")]
}
