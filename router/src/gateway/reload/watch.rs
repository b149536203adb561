//! Changes of a file.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

/// Quiet time after which a file counts as written: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);
/// Longest wait for such a quiet time.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Notices changes of a file, also when it is replaced by renaming (editors) or by switching a
/// symbolic link (Kubernetes): it watches directories.
#[derive(Debug)]
pub(super) struct FileWatch {
    file: PathBuf,
    watcher: RecommendedWatcher,
    watched: Vec<PathBuf>,
    changes: mpsc::Receiver<()>,
}

impl FileWatch {
    pub(super) fn new(file: &Path) -> notify::Result<Self> {
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

    /// Waits for a change; for ever, if there is no watch.
    pub(super) async fn next(watch: &mut Option<Self>) {
        match watch {
            Some(watch) => watch.changed().await,
            None => std::future::pending().await,
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

/// Reading the file is an event too, and must not lead to reading it again.
fn is_change(kind: EventKind) -> bool {
    !kind.is_access() || kind == EventKind::Access(AccessKind::Close(AccessMode::Write))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    /// Writes a file in each way in which files get replaced, and waits until the watch says so.
    #[tokio::test]
    async fn every_way_of_replacing_the_file_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f.toml");
        fs::write(&path, "# 1").expect("written");
        let mut watch = FileWatch::new(&path).expect("inotify works");
        let mut noticed = async |what: &str| {
            timeout(TIME, watch.changed()).await.unwrap_or_else(|_| panic!("{what}: unnoticed"));
        };
        fs::write(&path, "in place").expect("written");
        noticed("written in place").await;
        let other = dir.path().join("f.toml.new");
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
            assert_eq!(fs::read_to_string(&path).expect("there"), format!("# {n}"));
            fs::remove_dir_all(dir.path().join(format!("..{}", n - 1))).expect("there");
        }
    }

    #[tokio::test]
    async fn reading_the_file_is_no_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f.toml");
        fs::write(&path, "# 1").expect("written");
        let mut watch = FileWatch::new(&path).expect("inotify works");
        for _ in 0..10 {
            fs::read_to_string(&path).expect("there");
        }
        // Events come in order: were the reads among them, one would be pending before the write.
        tokio::select! {
            biased;
            () = watch.changed() => panic!("reading was taken for a change"),
            () = tokio::time::sleep(Duration::from_millis(300)) => {}
        }
        fs::write(&path, "x").expect("written");
        timeout(TIME, watch.changed()).await.expect("noticed");
    }
}
