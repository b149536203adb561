//! The configuration file, read again when it changes or when somebody says so.

use std::path::{Path, PathBuf};

use super::{
    in_force::{InForce, ReloadError, Reloaded},
    watch::FileWatch,
};
use crate::config;

/// Reads one file again and again.
pub(in crate::gateway) struct Reloader<'a> {
    file: PathBuf,
    in_force: &'a InForce<'a>,
    /// What the file held when it was last read.
    text: Option<String>,
    /// Whether the last attempt was refused.
    refused: bool,
}

impl<'a> Reloader<'a> {
    /// For the file that the current fleet came from.
    pub(in crate::gateway) fn new(file: PathBuf, in_force: &'a InForce<'a>) -> Self {
        Self { file, in_force, text: None, refused: false }
    }

    /// Reads the file and takes it over. Without `force`, `None` when it holds what it held at the
    /// last time, right or wrong.
    ///
    /// # Errors
    /// When the file is wrong, or its fleet has no room. Nothing has changed then.
    async fn reload(&mut self, force: bool) -> Result<Option<Reloaded>, ReloadError> {
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
        let reloaded = self.in_force.take_over_file(config?, force).await?;
        // A mistake may have been taken back.
        if reloaded.is_none() && std::mem::take(&mut self.refused) {
            tracing::info!(file = %self.file.display(), "the file is as what is in effect again");
            self.in_force.metrics.config.restored();
        }
        Ok(reloaded)
    }

    /// Reloads at each signal of `hangup` and each change of the file, for ever; logs what came of
    /// it, and tells `applied` of what was taken over, which may fail to do its part.
    pub(in crate::gateway) async fn run(
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
                    self.in_force.metrics.config.reloaded(left_out(&reloaded));
                    if let Err(error) = applied(&reloaded) {
                        tracing::error!("configuration not taken over in all: {error:#}");
                        self.in_force.metrics.config.incomplete(format!("{error:#}"));
                    }
                }
                Err(error) => {
                    let issues = error.to_string();
                    for issue in issues.lines() {
                        tracing::error!("configuration not taken over: {issue}");
                    }
                    self.refused = true;
                    self.in_force.metrics.config.refused(issues);
                }
            }
            force = tokio::select! {
                signal = hangup.recv() => signal.is_some(),
                () = FileWatch::next(&mut watch) => false,
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

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc, time::Duration};

    use arc_swap::ArcSwap;
    use tokio::time::timeout;

    use super::*;
    use crate::{
        fleet::{self, Counters, FailureKind, Fleet},
        gateway::reload::in_force::Parts,
        metrics::Metrics,
    };

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

        fn in_force(&self) -> InForce<'_> {
            let file = Arc::clone(self.fleet.load().config());
            let parts = Parts { file, added: Vec::new() };
            InForce::new(&self.fleet, parts, &self.counters, &self.metrics)
        }

        fn urls(&self) -> Vec<String> {
            self.fleet.load().instances().map(|(_, _, i)| i.url.clone()).collect()
        }
    }

    #[tokio::test]
    async fn a_changed_file_is_taken_over_and_an_unchanged_one_is_not() {
        let setup = Setup::new(&file(&[1, 2], ""));
        let in_force = setup.in_force();
        let mut reloader = Reloader::new(setup.path(), &in_force);
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
        let in_force = setup.in_force();
        let mut reloader = Reloader::new(setup.path(), &in_force);
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
        let in_force = setup.in_force();
        let run = Reloader::new(setup.path(), &in_force).run(&mut hangup, |_| {
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
