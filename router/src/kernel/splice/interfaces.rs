//! The network interfaces of this namespace.

use std::{collections::BTreeMap, ffi::CStr, io};

/// An interface that has an address.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Its packets have an Ethernet header, as those of loopback do.
    pub(super) ethernet: bool,
}

/// All interfaces that have an IP address.
pub(super) fn with_address() -> io::Result<Vec<Interface>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the call fills `list` in, which is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // By name: whether it has an address, and what its packets are like.
    let mut found: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the list, which is freed only below; its strings and addresses are
        // valid as long.
        unsafe {
            let address = (*at).ifa_addr;
            if !address.is_null() {
                let name = CStr::from_ptr((*at).ifa_name).to_string_lossy().into_owned();
                let entry = found.entry(name).or_default();
                match i32::from((*address).sa_family) {
                    libc::AF_INET | libc::AF_INET6 => entry.0 = true,
                    libc::AF_PACKET => {
                        let kind = (*address.cast::<libc::sockaddr_ll>()).sll_hatype;
                        entry.1 = matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK);
                    }
                    _ => {}
                }
            }
            at = (*at).ifa_next;
        }
    }
    // SAFETY: made by getifaddrs, and not used any more.
    unsafe { libc::freeifaddrs(list) };
    let interfaces = found
        .into_iter()
        .filter(|(_, (addressed, _))| *addressed)
        .map(|(name, (_, ethernet))| Interface { name, ethernet });
    Ok(interfaces.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found() {
        let all = with_address().unwrap();
        assert!(
            all.iter().any(|interface| interface.name == "lo" && interface.ethernet),
            "{all:?}"
        );
    }
}
