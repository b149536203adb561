//! Filters that killed processes have left behind.

use std::io;

use aya::{maps::MapInfo, programs::loaded_programs};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::kernel::{
    netlink::{self, parts},
    sys,
};

/// `struct tcmsg`: family, interface, handle, parent, priority and protocol.
const MESSAGE: usize = 20;
/// Where filters of arriving and leaving packets are.
const PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;

/// Removes the hooks of processes that are gone from an interface. They do nothing any more.
pub(super) fn remove_dead_hooks(interface: u32) -> io::Result<()> {
    let socket = netlink::open(NETLINK_ROUTE)?;
    for parent in PARENTS {
        let mut ask = [0; MESSAGE];
        ask[4..8].copy_from_slice(&interface.to_ne_bytes());
        ask[12..16].copy_from_slice(&parent.to_ne_bytes());
        let mut dead = Vec::new();
        netlink::request(&socket, libc::RTM_GETTFILTER, NLM_F_DUMP, &ask, |filter| {
            if let Some((message, attributes)) = filter.split_at_checked(MESSAGE)
                && hook(attributes).is_some_and(is_dead)
            {
                dead.push(message.to_vec());
            }
        })?;
        for mut message in dead {
            // Its kind, as an attribute.
            message.extend([8, 0, TCA_KIND as u8, 0, b'b', b'p', b'f', 0]);
            netlink::request(&socket, libc::RTM_DELTFILTER, NLM_F_ACK, &message, |_| {})?;
        }
    }
    Ok(())
}

/// The program of a filter, if it is one of our hooks.
fn hook(attributes: &[u8]) -> Option<u32> {
    let (_, options) = parts(attributes).find(|(kind, _)| *kind == TCA_OPTIONS)?;
    let part = |wanted| parts(options).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    if !part(TCA_BPF_NAME)?.starts_with(b"atalho_splice_") {
        return None;
    }
    Some(u32::from_ne_bytes(part(TCA_BPF_ID)?.try_into().ok()?))
}

/// Whether a hook has nothing to call.
fn is_dead(program: u32) -> bool {
    let dead = || {
        let mut all = loaded_programs().filter_map(Result::ok);
        let maps = all.find(|info| info.id() == program)?.map_ids().ok()??;
        // The name is cut to 15 bytes, and this one is shorter.
        let hooks = maps
            .into_iter()
            .filter_map(|id| MapInfo::from_id(id).ok())
            .find(|map| map.name_as_str() == Some("HOOKS"))?;
        let called = sys::lookup::<_, u32>(&hooks.fd().ok()?, &0u32);
        Some(called.is_err())
    };
    dead().unwrap_or(false)
}
