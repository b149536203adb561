//! What a process holds in the kernel, and whether it is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::{AsFd, AsRawFd},
};

use aya::maps::{MapInfo, MapType};

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

    /// How many entries each map has that grows and shrinks (hashes and tries), by name.
    ///
    /// # Panics
    /// When the kernel refuses to say.
    pub fn entries(&self) -> BTreeMap<String, usize> {
        let mut entries = BTreeMap::new();
        for id in &self.maps {
            // Gone since.
            let Ok(map) = MapInfo::from_id(*id) else { continue };
            let grows = matches!(
                map.map_type(),
                Ok(MapType::Hash
                    | MapType::PerCpuHash
                    | MapType::LruHash
                    | MapType::LruPerCpuHash
                    | MapType::SockHash
                    | MapType::LpmTrie)
            );
            if grows {
                let name = map.name_as_str().unwrap_or("?").to_owned();
                *entries.entry(name).or_default() += count(&map);
            }
        }
        entries
    }

    /// Those of them that the kernel still has.
    pub fn alive(&self) -> Self {
        let alive = |kind, ids: &BTreeSet<u32>| {
            ids.iter().copied().filter(|id| exists(kind, *id)).collect()
        };
        Self {
            programs: alive(NextId::Program, &self.programs),
            maps: alive(NextId::Map, &self.maps),
            links: alive(NextId::Link, &self.links),
        }
    }
}

/// Walks over the keys of a map. One that changes meanwhile may be counted wrong.
fn count(map: &MapInfo) -> usize {
    const BPF_MAP_GET_NEXT_KEY: libc::c_long = 4;
    /// The part of `union bpf_attr` that is for this command.
    #[repr(C)]
    struct NextKey {
        map: u64,
        key: u64,
        next: u64,
    }
    let fd = map.fd().expect("a map that we may look into");
    let mut next = vec![0_u8; map.key_size() as usize];
    let mut count = 0;
    loop {
        let key = next.clone();
        let attributes = NextKey {
            map: fd.as_fd().as_raw_fd() as u64,
            key: if count == 0 { 0 } else { key.as_ptr() as u64 },
            next: next.as_mut_ptr() as u64,
        };
        // SAFETY: both keys are as long as the map's, and live during the call.
        let rc = unsafe {
            let attributes = &raw const attributes;
            libc::syscall(libc::SYS_bpf, BPF_MAP_GET_NEXT_KEY, attributes, size_of::<NextKey>())
        };
        if rc != 0 {
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "keys of a map: {error}");
            return count;
        }
        count += 1;
        assert!(count as u32 <= map.max_entries() + 1, "a map that changes all the time");
    }
}

/// Kinds of kernel objects, as commands of `bpf(2)` that find the next one.
#[derive(Clone, Copy)]
#[repr(i64)]
enum NextId {
    Program = 11,
    Map = 12,
    Link = 31,
}

/// Whether an object is there. Without opening it: opening and closing a map of programs that is about
/// to go makes the kernel clear it twice, and lose count of who holds it.
fn exists(kind: NextId, id: u32) -> bool {
    /// The part of `union bpf_attr` that is for these commands.
    #[repr(C)]
    struct Next {
        start: u32,
        next: u32,
        flags: u32,
    }
    let mut attributes = Next { start: id - 1, next: 0, flags: 0 };
    // SAFETY: the kernel writes `next`, within the size that it is told.
    let rc = unsafe {
        let attributes = &raw mut attributes;
        libc::syscall(libc::SYS_bpf, kind as libc::c_long, attributes, size_of::<Next>())
    };
    if rc != 0 {
        let error = io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "objects of the kernel: {error}");
        return false;
    }
    attributes.next == id
}
