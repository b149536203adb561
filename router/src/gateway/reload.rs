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

use crate::{
    config::{self, Config, ConfigError},
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
pub(super) struct Reloaded {
    /// What is in force now.
    pub(super) config: Arc<Config>,
    /// Settings that the file changes but that stay as they are until a restart.
    pub(super) ignored: Vec<&'static str>,
}

/// Why a configuration was not taken over.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReloadError {
    /// The file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file is right, but there is no room for its fleet.
    #[error(transparent)]
    Fleet(#[from] BuildError),
}

/// Reads one file again and again.
#[derive(Debug)]
pub(super) struct Reloader<'a> {
    file: PathBuf,
    fleet: &'a ArcSwap<Fleet>,
    counters: &'a Counters,
    metrics: &'a Metrics,
    /// What the file held when it was last read.
    text: Option<String>,
    /// Whether the last attempt was refused.
    refused: bool,
}

impl<'a> Reloader<'a> {
    /// For the file that the current fleet came from.
    pub(super) fn new(
        file: PathBuf,
        fleet: &'a ArcSwap<Fleet>,
        counters: &'a Counters,
        metrics: &'a Metrics,
    ) -> Self {
        Self { file, fleet, counters, metrics, text: None, refused: false }
    }

    /// Reads the file and takes it over. Without `force`, `None` when it holds what it held at the
    /// last time, right or wrong.
    ///
    /// # Errors
    /// When the file is wrong, or its fleet has no room. Nothing has changed then.
    pub(super) async fn reload(&mut self, force: bool) -> Result<Option<Reloaded>, ReloadError> {
        let text = match config::text(&self.file) {
            Ok(text) => text,
            Err(error) => {
                self.text = None;
                return Err(error.into());
            }
        };
        if !force && self.text.as_ref() == Some(&text) {
            return Ok(None);
        }
        let config = config::parse(&self.file.display().to_string(), &text);
        self.text = Some(text);
        let mut config = config?;
        let old = self.fleet.load_full();
        let previous = Arc::clone(old.config());
        if !force && config == *previous {
            // A mistake may have been taken back.
            if std::mem::take(&mut self.refused) {
                tracing::info!(file = %self.file.display(), "the file is as what is in effect again");
                self.metrics.config.restored();
            }
            return Ok(None);
        }
        let ignored = keep_fixed(&mut config, &previous);
        let config = Arc::new(config);
        let new = Fleet::build(&config, Some(&old), self.counters, self.metrics)?;
        drop(old);
        fleet::resolve_new(&new, RESOLVE).await;
        Arc::new(new).replace(self.fleet);
        Ok(Some(Reloaded { config, ignored }))
    }

    /// Reloads at each signal of `hangup` and each change of the file, for ever; logs what came of
    /// it, and tells `applied` of what was taken over, which may fail to do its part.
    pub(super) async fn run(
        mut self,
        hangup: &mut tokio::signal::unix::Signal,
        mut applied: impl FnMut(&Reloaded) -> anyhow::Result<()>,
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
                    self.refused = false;
                    report(&self.file, &reloaded);
                    self.metrics.config.reloaded(left_out(&reloaded));
                    if let Err(error) = applied(&reloaded) {
                        tracing::error!("configuration not taken over in all: {error:#}");
                        self.metrics.config.incomplete(format!("{error:#}"));
                    }
                }
                Err(error) => {
                    let issues = error.to_string();
                    for issue in issues.lines() {
                        tracing::error!("configuration not taken over: {issue}");
                    }
                    self.refused = true;
                    self.metrics.config.refused(issues);
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

/// What of the file is not in effect.
fn left_out(reloaded: &Reloaded) -> String {
    match &*reloaded.ignored {
        [] => String::new(),
        settings => format!("changes that need a restart were left out: {}", settings.join(", ")),
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
    ("half_closed_clients", |new, old| {
        keep(&mut new.half_closed_clients, &old.half_closed_clients)
    }),
    ("engine.mode", |new, old| keep(&mut new.engine.mode, &old.engine.mode)),
    ("engine.xdp", |new, old| keep(&mut new.engine.xdp, &old.engine.xdp)),
    ("engine.interfaces", |new, old| keep(&mut new.engine.interfaces, &old.engine.interfaces)),
    ("engine.except_interfaces", |new, old| {
        keep(&mut new.engine.except_interfaces, &old.engine.except_interfaces)
    }),
    ("engine.hand_over_from_bytes", |new, old| {
        keep(&mut new.engine.hand_over_from_bytes, &old.engine.hand_over_from_bytes)
    }),
    ("engine.hand_over_from_reads", |new, old| {
        keep(&mut new.engine.hand_over_from_reads, &old.engine.hand_over_from_reads)
    }),
    ("engine.learn_reads", |new, old| keep(&mut new.engine.learn_reads, &old.engine.learn_reads)),
    ("engine.backlog_bytes", |new, old| {
        keep(&mut new.engine.backlog_bytes, &old.engine.backlog_bytes)
    }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::settings, fleet::FailureKind};
    use std::fs;

    const TIME: Duration = Duration::from_secs(30);

    fn file(hosts: &[u8], head: &str) -> String {
        let mut text = format!("{head}\n[[endpoint]]\nname = \"e\"\n");
        text += "[[endpoint.variant]]\nname = \"v\"\n";
        for host in hosts {
            text += "[[endpoint.variant.instance]]\n";
            text += &format!("url = \"http://10.0.0.{host}:8000\"\n");
        }
        text
    }

    struct Setup {
        dir: tempfile::TempDir,
        counters: Counters,
        metrics: Arc<Metrics>,
        fleet: ArcSwap<Fleet>,
    }

    impl Setup {
        fn new(text: &str) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            fs::write(dir.path().join("f.toml"), text).expect("written");
            let (counters, metrics) = (Counters::heap(4), Metrics::new());
            let config = config::load(&dir.path().join("f.toml")).expect("valid");
            let fleet = Fleet::build(&Arc::new(config), None, &counters, &metrics);
            let fleet = ArcSwap::from_pointee(fleet.expect("room"));
            Self { dir, counters, metrics, fleet }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("f.toml")
        }

        fn write(&self, text: &str) {
            fs::write(self.path(), text).expect("written");
        }

        fn reloader(&self) -> Reloader<'_> {
            Reloader::new(self.path(), &self.fleet, &self.counters, &self.metrics)
        }

        fn urls(&self) -> Vec<String> {
            self.fleet.load().instances().map(|(_, _, i)| i.url.clone()).collect()
        }
    }

    #[test]
    fn what_the_table_calls_fixed_is_kept_and_nothing_else() {
        let fixed: Vec<_> = FIXED.iter().map(|(path, _)| *path).collect();
        let table: Vec<_> = settings().filter(|s| !s.live).map(|s| s.path).collect();
        assert_eq!(fixed, table);
        let old = Config::default();
        let mut new = Config { threads: 7, access_log: true, ..Config::default() };
        new.engine.backlog_bytes += 1;
        assert_eq!(keep_fixed(&mut new, &old), ["threads", "engine.backlog_bytes"]);
        assert_eq!(new, Config { access_log: true, ..old });
    }

    #[tokio::test]
    async fn a_changed_file_is_taken_over_and_an_unchanged_one_is_not() {
        let setup = Setup::new(&file(&[1, 2], ""));
        let mut reloader = setup.reloader();
        assert!(reloader.reload(false).await.expect("valid").is_none(), "it says what is");
        let one = Arc::clone(setup.fleet.load().instances().next().expect("two").2);
        let blame = fleet::Blame { prefix: None, client: [127, 0, 0, 1].into() };
        one.note_failure(FailureKind::Connect, blame);

        setup.write(&file(&[1, 3], "access_log = true\nthreads = 5"));
        let reloaded = reloader.reload(false).await.expect("valid").expect("changed");
        assert!(reloaded.config.access_log);
        assert_eq!((&*reloaded.ignored, reloaded.config.threads), (&["threads"][..], 0));
        assert_eq!(setup.urls(), ["http://10.0.0.1:8000", "http://10.0.0.3:8000"]);
        assert!(Arc::ptr_eq(&one, setup.fleet.load().instances().next().expect("two").2));

        assert!(reloader.reload(false).await.expect("valid").is_none(), "nothing new");
        assert!(reloader.reload(true).await.expect("valid").is_some(), "SIGHUP asks for it");
    }

    #[tokio::test]
    async fn a_wrong_file_changes_nothing_and_is_reported_once() {
        let setup = Setup::new(&file(&[1], ""));
        let mut reloader = setup.reloader();
        let before = setup.fleet.load_full();
        setup.write(&file(&[2], "thread = 5"));
        let error = reloader.reload(false).await.expect_err("a typo").to_string();
        let expected = format!("{}:1:1: thread: is not a setting", setup.path().display());
        assert!(error.starts_with(&expected), "{error}");
        assert!(Arc::ptr_eq(&before, &setup.fleet.load_full()));
        assert!(reloader.reload(false).await.expect("said already").is_none());
        // Half written, empty, gone, a directory: all the same.
        for text in ["", "[[endpoint]]\nna", "\0"] {
            setup.write(text);
            reloader.reload(false).await.expect_err("no configuration");
        }
        fs::remove_file(setup.path()).expect("there");
        reloader.reload(false).await.expect_err("gone");
        fs::create_dir(setup.path()).expect("free");
        reloader.reload(false).await.expect_err("a directory");
        fs::remove_dir(setup.path()).expect("there");
        // More instances than counters: right, but without room.
        setup.write(&file(&[2, 3, 4, 5, 6], ""));
        let error = reloader.reload(false).await.expect_err("four slots").to_string();
        assert!(error.contains("all 4 in-flight counters are taken"), "{error}");
        assert!(Arc::ptr_eq(&before, &setup.fleet.load_full()));
        assert_eq!(setup.counters.free(), 3);
        setup.write(&file(&[2], ""));
        reloader.reload(false).await.expect("right now").expect("changed");
    }

    /// Writes a file in each way in which files get replaced, and waits until the watch says so.
    #[tokio::test]
    async fn every_way_of_replacing_the_file_is_noticed() {
        let setup = Setup::new(&file(&[1], ""));
        let path = setup.path();
        let mut watch = FileWatch::new(&path).expect("inotify works");
        let mut noticed = async |what: &str| {
            timeout(TIME, watch.changed()).await.unwrap_or_else(|_| panic!("{what}: unnoticed"));
        };
        setup.write("in place");
        noticed("written in place").await;
        let other = setup.dir.path().join("f.toml.new");
        fs::write(&other, "renamed").expect("written");
        fs::rename(&other, &path).expect("renamed");
        noticed("renamed over").await;
        fs::remove_file(&path).expect("there");
        fs::write(&path, "again").expect("written");
        noticed("removed and written").await;

        // A link into another directory, whose file changes: noticed once the link is known.
        let elsewhere = tempfile::tempdir().expect("a directory");
        let target = elsewhere.path().join("real.toml");
        fs::write(&target, "one").expect("written");
        fs::remove_file(&path).expect("there");
        std::os::unix::fs::symlink(&target, &path).expect("linked");
        noticed("replaced by a link").await;
        fs::write(&target, "two").expect("written");
        noticed("the link's target written").await;
    }

    #[tokio::test]
    async fn a_kubernetes_config_map_is_noticed() {
        // f.toml -> ..data/f.toml, ..data -> ..1; an update renames a new ..data over the old one.
        let dir = tempfile::tempdir().expect("a directory");
        let version = |n: u8| {
            let version = dir.path().join(format!("..{n}"));
            fs::create_dir(&version).expect("free");
            fs::write(version.join("f.toml"), format!("# {n}")).expect("written");
            std::os::unix::fs::symlink(format!("..{n}"), dir.path().join("..tmp")).expect("linked");
            fs::rename(dir.path().join("..tmp"), dir.path().join("..data")).expect("renamed");
        };
        version(1);
        let path = dir.path().join("f.toml");
        std::os::unix::fs::symlink("..data/f.toml", &path).expect("linked");
        let mut watch = FileWatch::new(&path).expect("inotify works");
        for n in 2..4 {
            version(n);
            timeout(TIME, watch.changed()).await.expect("noticed");
            assert_eq!(config::text(&path).expect("there"), format!("# {n}"));
            fs::remove_dir_all(dir.path().join(format!("..{}", n - 1))).expect("there");
        }
    }

    #[tokio::test]
    async fn reading_the_file_is_no_change() {
        let setup = Setup::new(&file(&[1], ""));
        let mut watch = FileWatch::new(&setup.path()).expect("inotify works");
        for _ in 0..10 {
            config::text(&setup.path()).expect("there");
        }
        // Events come in order: were the reads among them, one would be pending before the write.
        tokio::select! {
            biased;
            () = watch.changed() => panic!("reading was taken for a change"),
            () = tokio::time::sleep(Duration::from_millis(300)) => {}
        }
        setup.write("x");
        timeout(TIME, watch.changed()).await.expect("noticed");
    }

    #[tokio::test]
    async fn the_loop_reloads_on_signals_and_changes_and_outlives_mistakes() {
        use tokio::{
            signal::unix::{SignalKind, signal},
            sync::mpsc,
        };

        let setup = Setup::new(&file(&[1], ""));
        // A signal that nothing else in this process uses.
        let mut hangup = signal(SignalKind::user_defined2()).expect("allowed");
        let (sender, mut applied) = mpsc::unbounded_channel();
        // Changed before the loop begins: noticed all the same.
        setup.write(&file(&[2], ""));
        let run = setup.reloader().run(&mut hangup, |_| {
            sender.send(()).expect("open");
            Ok(())
        });
        let test = async {
            let mut next = async || timeout(TIME, applied.recv()).await.expect("taken over");
            next().await;
            assert_eq!(setup.urls(), ["http://10.0.0.2:8000"]);
            setup.write(&file(&[3], ""));
            next().await;
            setup.write("broken");
            while setup.metrics.config.failed() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(setup.urls(), ["http://10.0.0.3:8000"]);
            let last = || setup.metrics.config.last_reload().expect("there were some");
            assert!(!last().successful && last().message.contains("f.toml:1"), "{:?}", last());
            // The mistake is taken back: nothing to take over, and nothing wrong any more.
            setup.write(&file(&[3], ""));
            while !last().successful {
                tokio::task::yield_now().await;
            }
            assert_eq!((last().message, setup.metrics.config.generation()), (String::new(), 2));
            setup.write(&file(&[4], ""));
            next().await;
            assert_eq!(setup.urls(), ["http://10.0.0.4:8000"]);
            // SAFETY: raising a signal that has a handler.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
            next().await;
            assert_eq!(setup.metrics.config.generation(), 4);
        };
        tokio::select! {
            () = run => unreachable!("it runs for ever"),
            () = test => {}
        }
    }
}
