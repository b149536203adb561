//! Taking over a changed configuration while requests go on.
//!
//! A new configuration is read, checked and made into a fleet beside the one at work. Only when all
//! of that has succeeded does one swap put it in place; else nothing has changed. Requests under way
//! keep the fleet they began with, and their counts.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use super::{Config, ConfigError, read};
use crate::{
    fleet::{self, BuildError, Counters, Fleet},
    metrics::Metrics,
};

/// Quiet time after which a file counts as written: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);
/// Longest wait for such a quiet time.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// How long a reload waits for the addresses of new host names.
const RESOLVE: Duration = Duration::from_secs(2);

/// A configuration that was taken over.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// What is in force now.
    pub config: Arc<Config>,
    /// What was before.
    pub previous: Arc<Config>,
    /// Settings that the file changes but that stay as they are until a restart.
    pub ignored: Vec<&'static str>,
}

/// Why a configuration was not taken over.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file is right, but there is no room for its fleet.
    #[error(transparent)]
    Fleet(#[from] BuildError),
}

/// Reads one file again and again.
#[derive(Debug)]
pub struct Reloader<'a> {
    file: PathBuf,
    fleet: &'a ArcSwap<Fleet>,
    counters: &'a Counters,
    metrics: &'a Metrics,
    /// What the file held when it was last read.
    text: Option<String>,
}

impl<'a> Reloader<'a> {
    /// For the file that the current fleet came from.
    pub fn new(
        file: PathBuf,
        fleet: &'a ArcSwap<Fleet>,
        counters: &'a Counters,
        metrics: &'a Metrics,
    ) -> Self {
        Self { file, fleet, counters, metrics, text: None }
    }

    /// Reads the file and takes it over. Without `force`, `None` when it holds what it held at the
    /// last time, right or wrong.
    ///
    /// # Errors
    /// When the file is wrong, or its fleet has no room. Nothing has changed then.
    pub async fn reload(&mut self, force: bool) -> Result<Option<Reloaded>, ReloadError> {
        let text = match read::text(&self.file) {
            Ok(text) => text,
            Err(error) => {
                self.text = None;
                return Err(error.into());
            }
        };
        if !force && self.text.as_ref() == Some(&text) {
            return Ok(None);
        }
        let config = read::parse(&self.file.display().to_string(), &text);
        self.text = Some(text);
        let mut config = config?;
        let old = self.fleet.load_full();
        let previous = Arc::clone(old.config());
        if !force && config == *previous {
            return Ok(None);
        }
        let ignored = keep_fixed(&mut config, &previous);
        let config = Arc::new(config);
        let new = Fleet::build(&config, Some(&old), self.counters, self.metrics)?;
        drop(old);
        fleet::resolve_new(&new, RESOLVE).await;
        Arc::new(new).replace(self.fleet);
        Ok(Some(Reloaded { config, previous, ignored }))
    }

    /// Reloads at each signal of `hangup` and each change of the file, for ever; logs what came of
    /// it, and tells `applied` of what was taken over.
    pub async fn run(
        mut self,
        hangup: &mut tokio::signal::unix::Signal,
        mut applied: impl FnMut(&Reloaded),
    ) {
        let mut watch = FileWatch::new(&self.file)
            .inspect_err(|error| {
                tracing::warn!(
                    file = %self.file.display(), %error,
                    "changes of the configuration file go unnoticed: send SIGHUP after each"
                );
            })
            .ok();
        // The file may have changed between its first reading and the watch.
        let mut force = false;
        loop {
            match self.reload(force).await {
                Ok(None) => {}
                Ok(Some(reloaded)) => {
                    report(&self.file, &reloaded);
                    self.metrics.config.reloaded();
                    applied(&reloaded);
                }
                Err(error) => {
                    self.metrics.config.reloads_failed.inc();
                    let file = self.file.display();
                    tracing::error!(%file, "configuration not taken over: {error}");
                }
            }
            force = tokio::select! {
                signal = hangup.recv() => signal.is_some(),
                () = changed(&mut watch) => false,
            };
        }
    }
}

fn report(file: &Path, reloaded: &Reloaded) {
    let instances: usize = reloaded
        .config
        .endpoints
        .iter()
        .flat_map(|endpoint| &endpoint.variants)
        .map(|variant| variant.instances.len())
        .sum();
    tracing::info!(file = %file.display(), instances, "configuration taken over");
    for setting in &reloaded.ignored {
        tracing::warn!(setting, "a change of this setting needs a restart, and was left out");
    }
}

/// Settings that a running gateway cannot change, with how to take one over from the old
/// configuration and tell whether it differed.
type Keep = fn(&mut Config, &Config) -> bool;

fn keep<T: Clone + PartialEq>(new: &mut T, old: &T) -> bool {
    let differs = new != old;
    new.clone_from(old);
    differs
}

const FIXED: &[(&str, Keep)] = &[
    ("listen", |new, old| keep(&mut new.listen, &old.listen)),
    ("admin", |new, old| keep(&mut new.admin, &old.admin)),
    ("threads", |new, old| keep(&mut new.threads, &old.threads)),
    ("engine.mode", |new, old| keep(&mut new.engine.mode, &old.engine.mode)),
    ("log.format", |new, old| keep(&mut new.log.format, &old.log.format)),
    ("log.level", |new, old| keep(&mut new.log.level, &old.log.level)),
    ("guard.interfaces", |new, old| keep(&mut new.guard.interfaces, &old.guard.interfaces)),
    ("guard.mode", |new, old| keep(&mut new.guard.mode, &old.guard.mode)),
];

/// Puts what cannot change back to what it is, and names what the file would have changed.
fn keep_fixed(new: &mut Config, old: &Config) -> Vec<&'static str> {
    FIXED.iter().filter(|(_, keep)| keep(new, old)).map(|(path, _)| *path).collect()
}

/// Notices changes of a file, also when it is replaced by renaming (editors) or by switching a
/// symbolic link (Kubernetes): it watches directories.
#[derive(Debug)]
struct FileWatch {
    file: PathBuf,
    watcher: RecommendedWatcher,
    watched: Vec<PathBuf>,
    changes: mpsc::Receiver<()>,
}

impl FileWatch {
    fn new(file: &Path) -> notify::Result<Self> {
        // One pending change says as much as many.
        let (sender, changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error, such as an overflow, may hide a change.
            if event.map_or(true, |event| is_change(event.kind)) {
                let _ = sender.try_send(());
            }
        })?;
        let mut watch = Self { file: file.to_owned(), watcher, watched: Vec::new(), changes };
        let directory = match file.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => file,
        };
        watch.watch(directory)?;
        watch.follow();
        Ok(watch)
    }

    fn watch(&mut self, directory: &Path) -> notify::Result<()> {
        self.watcher.watch(directory, RecursiveMode::NonRecursive)?;
        self.watched.push(directory.to_owned());
        Ok(())
    }

    /// Watches the directory of what the file's symbolic link points to.
    fn follow(&mut self) {
        let target = self.file.canonicalize().ok();
        let Some(directory) = target.as_deref().and_then(Path::parent) else { return };
        for old in self.watched.split_off(1) {
            // One that is gone is no longer watched anyway.
            let _ = self.watcher.unwatch(&old);
        }
        let first = self.watched[0].canonicalize().ok();
        if first.as_deref() != Some(directory)
            && let Err(error) = self.watch(directory)
        {
            tracing::warn!(directory = %directory.display(), %error, "cannot watch directory");
        }
    }

    /// Waits for a change, and then for quiet.
    async fn changed(&mut self) {
        if self.changes.recv().await.is_none() {
            return std::future::pending().await;
        }
        let latest = Instant::now() + SETTLE_MAX;
        let quiet = async { while timeout(SETTLE, self.changes.recv()).await.is_ok() {} };
        let _ = timeout_at(latest, quiet).await;
        self.follow();
    }
}

async fn changed(watch: &mut Option<FileWatch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Reading the file is an event too, and must not lead to reading it again.
fn is_change(kind: EventKind) -> bool {
    !kind.is_access() || kind == EventKind::Access(AccessKind::Close(AccessMode::Write))
}
