//! The few system calls that the loader library does not offer in the form needed here: updates of
//! socket maps from several threads at once, and the mapped memory of arrays.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr::NonNull,
};

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;

const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_LINK_CREATE: libc::c_int = 28;

const BPF_MAP_TYPE_RINGBUF: u32 = 27;

/// What to do when the key is there already.
#[derive(Clone, Copy)]
pub(super) enum Update {
    /// Replace the value.
    Any = 0,
    /// Fail with `EEXIST`.
    New = 1,
}

/// `union bpf_attr` for operations on elements.
#[repr(C)]
struct Element {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The start of `union bpf_attr` for making a map.
#[repr(C)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<RawFd> {
    // SAFETY: the attributes live through the call, and have the length it is told. What their
    // pointers name lives in the callers.
    let rc = unsafe {
        libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>() as libc::c_uint)
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc as RawFd) }
}

/// Sets an element. Keys and values must be of the map's sizes.
pub(super) fn update<K, V>(map: &impl AsFd, key: &K, value: &V, how: Update) -> io::Result<()> {
    let mut attributes = Element {
        map: map.as_fd().as_raw_fd() as u32,
        _pad: 0,
        key: (&raw const *key) as u64,
        value: (&raw const *value) as u64,
        flags: how as u64,
    };
    bpf(BPF_MAP_UPDATE_ELEM, &mut attributes).map(|_| ())
}

/// Puts a socket into a socket map.
pub(super) fn insert_socket(
    map: &impl AsFd,
    key: u64,
    socket: BorrowedFd<'_>,
    how: Update,
) -> io::Result<()> {
    update(map, &key, &(socket.as_raw_fd() as u32), how)
}

/// Removes an element.
pub(super) fn delete<K>(map: &impl AsFd, key: &K) -> io::Result<()> {
    let mut attributes = Element {
        map: map.as_fd().as_raw_fd() as u32,
        _pad: 0,
        key: (&raw const *key) as u64,
        value: 0,
        flags: 0,
    };
    bpf(BPF_MAP_DELETE_ELEM, &mut attributes).map(|_| ())
}

/// Reads an element. Keys and values must be of the map's sizes.
pub(super) fn lookup<K, V: Copy + Default>(map: &impl AsFd, key: &K) -> io::Result<V> {
    let mut value = V::default();
    let mut attributes = Element {
        map: map.as_fd().as_raw_fd() as u32,
        _pad: 0,
        key: (&raw const *key) as u64,
        value: (&raw mut value) as u64,
        flags: 0,
    };
    bpf(BPF_MAP_LOOKUP_ELEM, &mut attributes)?;
    Ok(value)
}

/// `union bpf_attr` for running a program.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    _pad: u32,
}

/// Runs a program once on a packet that consists of `data`. Returns its result.
pub(super) fn test_run<T>(program: &impl AsFd, data: &T) -> io::Result<u32> {
    let mut attributes = TestRun {
        program: program.as_fd().as_raw_fd() as u32,
        data_size_in: size_of::<T>() as u32,
        data_in: (&raw const *data) as u64,
        repeat: 1,
        ..TestRun::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut attributes)?;
    Ok(attributes.result)
}

/// Where a program goes at an interface.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hook {
    /// Packets that arrive, behind the programs that are there.
    IngressLast,
    /// Packets that leave, before them.
    EgressFirst,
}

/// `union bpf_attr` for attaching a program to an interface.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    _pad: u32,
    revision: u64,
}

/// Attaches a classifier to an interface, until the descriptor is closed.
pub(super) fn attach_tcx(program: &impl AsFd, interface: u32, hook: Hook) -> io::Result<OwnedFd> {
    const BPF_TCX_INGRESS: u32 = 46;
    const BPF_TCX_EGRESS: u32 = 47;
    const BPF_F_BEFORE: u32 = 1 << 3;
    const BPF_F_AFTER: u32 = 1 << 4;
    let (attach_type, flags) = match hook {
        Hook::IngressLast => (BPF_TCX_INGRESS, BPF_F_AFTER),
        Hook::EgressFirst => (BPF_TCX_EGRESS, BPF_F_BEFORE),
    };
    let mut attributes = LinkCreate {
        program: program.as_fd().as_raw_fd() as u32,
        interface,
        attach_type,
        flags,
        relative: 0,
        _pad: 0,
        revision: 0,
    };
    let fd = bpf(BPF_LINK_CREATE, &mut attributes)?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches an XDP program to an interface, in its driver, until the descriptor is closed.
pub(super) fn attach_xdp(program: &impl AsFd, interface: u32) -> io::Result<OwnedFd> {
    const BPF_XDP: u32 = 37;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    let mut attributes = LinkCreate {
        program: program.as_fd().as_raw_fd() as u32,
        interface,
        attach_type: BPF_XDP,
        flags: XDP_FLAGS_DRV_MODE,
        relative: 0,
        _pad: 0,
        revision: 0,
    };
    let fd = bpf(BPF_LINK_CREATE, &mut attributes)?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs an XDP program once on a frame. Returns its result, and what the frame has become.
pub(super) fn test_run_frame(program: &impl AsFd, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    let mut out = vec![0; frame.len() + 64];
    let mut attributes = TestRun {
        program: program.as_fd().as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_size_out: out.len() as u32,
        data_out: out.as_mut_ptr() as u64,
        repeat: 1,
        ..TestRun::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut attributes)?;
    out.truncate(attributes.data_size_out as usize);
    Ok((attributes.result, out))
}

/// Makes a ring buffer of `bytes`, a power of two and of whole pages.
pub(super) fn create_ring(bytes: u32) -> io::Result<OwnedFd> {
    let mut attributes = Create {
        map_type: BPF_MAP_TYPE_RINGBUF,
        key_size: 0,
        value_size: 0,
        max_entries: bytes,
        map_flags: 0,
    };
    let fd = bpf(BPF_MAP_CREATE, &mut attributes)?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// The memory of a mappable array, shared with the kernel programs or other processes, until dropped.
#[derive(Debug)]
pub(super) struct Mapping<T> {
    base: NonNull<T>,
    len: usize,
    bytes: usize,
}

// SAFETY: the memory is not bound to a thread; what is in it is for its users to synchronise.
unsafe impl<T: Sync> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapping<T> {}

impl<T> Mapping<T> {
    /// Bytes of an array of `len` elements: whole pages.
    pub(super) fn bytes_of(len: u32) -> usize {
        // The kernel rounds an element up to eight bytes.
        assert!(size_of::<T>().is_multiple_of(8));
        // SAFETY: takes nothing.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        (len as usize * size_of::<T>()).next_multiple_of(page)
    }

    /// Maps an array of `len` elements, made with `BPF_F_MMAPABLE` or a file of
    /// [as many bytes](Self::bytes_of), whose values are `T`.
    ///
    /// # Safety
    /// The values must be valid as `T`, whatever others write. With [`Access::Read`], nothing is to be written.
    pub(super) unsafe fn new(map: &impl AsFd, len: u32, access: Access) -> io::Result<Self> {
        let bytes = Self::bytes_of(len);
        let len = len as usize;
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("a mapping is never at zero");
        Ok(Self { base, len, bytes })
    }

    /// The first element.
    pub(super) fn base(&self) -> NonNull<T> {
        self.base
    }

    /// An element's address, valid while the mapping lives.
    pub(super) fn element(&self, index: u32) -> NonNull<T> {
        assert!((index as usize) < self.len);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.add(index as usize) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing uses it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
