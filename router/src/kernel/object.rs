//! The eBPF object in this binary.

/// The object's bytes, aligned as the loader needs them; `None` when the build had none.
pub(super) fn object() -> Option<&'static [u8]> {
    static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/atalho-ebpf"));
    (!OBJECT.is_empty()).then_some(OBJECT)
}
