//! The memory of a process, of those that it starts, and of the sockets that they open: a control group of their own
//! counts it, so that other programs make no difference.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A control group that a process is in, and what it starts from now on. Left and removed when dropped.
#[derive(Debug)]
pub struct Cgroup {
    process: String,
    group: PathBuf,
    /// That of before.
    home: PathBuf,
    /// What counts.
    counters: &'static [&'static str],
}

/// Where the hierarchy that counts memory is mounted, where this process is in it (and what it starts), and whether it
/// is of the second version.
struct Hierarchy {
    root: PathBuf,
    home: PathBuf,
    unified: bool,
}

impl Cgroup {
    /// Of a process: what it takes from now on is counted, and sockets that it opens or accepts from now on.
    ///
    /// # Errors
    /// What the system lacks, or forbids.
    pub fn of(process: u32) -> Result<Self, String> {
        let hierarchy = Hierarchy::find()?;
        let Hierarchy { root, home, unified } = hierarchy;
        let said = |what: &Path, error: io::Error| format!("{}: {error}", what.display());
        let write = |path: PathBuf, value: &str| {
            fs::write(&path, value).map_err(|error| said(&path, error))
        };
        // Below the root, which may have processes and pass the controller on all the same.
        let group = root.join(format!("atalho-test-{process}"));
        if unified {
            write(root.join("cgroup.subtree_control"), "+memory")?;
        }
        // One of a test that was killed, when process numbers came round, serves as well.
        match fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(said(&group, error));
            }
            _ => {}
        }
        let counters: &[&str] = if unified {
            &["memory.current"]
        } else {
            // The first version counts sockets apart, and only where they have a limit.
            write(group.join("memory.kmem.tcp.limit_in_bytes"), "1099511627776")?;
            &["memory.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes"]
        };
        let entered = Self { process: process.to_string(), group, home, counters };
        write(entered.group.join("cgroup.procs"), &entered.process)?;
        Ok(entered)
    }

    /// Bytes in use: of processes, of the kernel for them, and of their sockets' queues.
    ///
    /// # Panics
    /// When the kernel does not say.
    pub fn bytes(&self) -> u64 {
        let read = |name: &&str| {
            let path = self.group.join(name);
            let text =
                fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            text.trim().parse::<u64>().expect("a number of bytes")
        };
        self.counters.iter().map(read).sum()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What fails leaves an empty group behind, no more.
        let _ = fs::write(self.home.join("cgroup.procs"), &self.process);
        let _ = fs::remove_dir(&self.group);
    }
}

impl Hierarchy {
    fn find() -> Result<Self, String> {
        let read =
            |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (mounts, places) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
        let found = Self::first(&mounts, &places).or_else(|| Self::second(&mounts, &places));
        found.ok_or_else(|| "no control group hierarchy counts memory here".to_owned())
    }

    /// Of the first version, there is one for each controller, or for some together.
    fn first(mounts: &str, places: &str) -> Option<Self> {
        let root = mounted(mounts, |kind, options| {
            kind == "cgroup" && options.split(',').any(|option| option == "memory")
        })?;
        let home = places.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == "memory").then_some(path)
        })?;
        Some(Self { home: below(&root, home), root, unified: false })
    }

    fn second(mounts: &str, places: &str) -> Option<Self> {
        let root = mounted(mounts, |kind, _| kind == "cgroup2")?;
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
        let home = places.lines().find_map(|line| line.strip_prefix("0::"))?;
        controllers.split_whitespace().any(|name| name == "memory").then(|| Self {
            home: below(&root, home),
            root,
            unified: true,
        })
    }
}

fn mounted(mounts: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        wanted(kind, options).then(|| path.into())
    })
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
