//! What a process holds in the kernel, and whether it is gone.

use std::{collections::BTreeSet, fs, process::Command};

/// Identities of kernel objects. The kernel does not use one again soon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Maps.
    pub maps: BTreeSet<u32>,
    /// Links.
    pub links: BTreeSet<u32>,
}

impl Objects {
    /// What `pid` holds through its descriptors.
    pub fn of(pid: u32) -> Self {
        let mut objects = Self::default();
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return objects };
        for entry in entries.flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let id = |name: &str| -> Option<u32> {
                text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
            };
            // A link's entry names its program as well.
            objects.links.extend(id("link_id:"));
            objects.programs.extend(id("prog_id:"));
            objects.maps.extend(id("map_id:"));
        }
        objects
    }

    /// Whether there is anything.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.links.is_empty()
    }

    /// Those of them that the kernel still has.
    pub fn alive(&self) -> Self {
        let alive = |kind: &str, ids: &BTreeSet<u32>| {
            ids.iter().copied().filter(|id| exists(kind, *id)).collect()
        };
        Self {
            programs: alive("prog", &self.programs),
            maps: alive("map", &self.maps),
            links: alive("link", &self.links),
        }
    }
}

fn exists(kind: &str, id: u32) -> bool {
    Command::new("bpftool")
        .args([kind, "show", "id", &id.to_string()])
        .output()
        .expect("bpftool")
        .status
        .success()
}
