//! What the kernel says of an interface and XDP.

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// A conversation with the kernel's `netdev` family (Linux 6.3), in the network namespace of the
/// thread that began it.
#[derive(Debug)]
pub(super) struct Netdev {
    socket: OwnedFd,
    family: u16,
}

/// Messages of generic netlink (linux/genetlink.h, linux/netdev.h).
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_DEVICE: u8 = 1;
const INTERFACE: u16 = 1;
const XDP_FEATURES: u16 = 3;

/// What an interface can do with XDP: bits of `enum netdev_xdp_act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features(u64);

impl Features {
    /// `NETDEV_XDP_ACT_BASIC`: a program decides in the driver.
    const BASIC: u64 = 1;
    /// `NETDEV_XDP_ACT_REDIRECT`: it may send frames to other interfaces.
    const REDIRECT: u64 = 2;
    /// `NETDEV_XDP_ACT_NDO_XMIT`: others' programs may send frames to it.
    const TARGET: u64 = 4;

    /// Whether a program in the driver can forward frames.
    pub(super) const fn forwards(self) -> bool {
        let both = Self::BASIC | Self::REDIRECT;
        self.0 & both == both
    }

    /// Whether frames may be redirected to it now.
    pub(super) const fn takes_redirected(self) -> bool {
        self.0 & Self::TARGET != 0
    }
}

/// Bytes of the headers in front of attributes.
const HEADERS: usize = 20;

impl Netdev {
    pub(super) fn open() -> io::Result<Self> {
        // SAFETY: takes plain numbers.
        let socket = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                libc::NETLINK_GENERIC,
            )
        };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let mut netdev = Self { socket, family: CONTROL };
        let id = netdev.ask(GET_FAMILY, FAMILY_NAME, b"netdev\0", FAMILY_ID)?;
        netdev.family = u16::from_ne_bytes(
            id.get(..2).and_then(|id| id.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?,
        );
        Ok(netdev)
    }

    /// What an interface can do now.
    pub(super) fn features(&self, index: u32) -> io::Result<Features> {
        let features = self.ask(GET_DEVICE, INTERFACE, &index.to_ne_bytes(), XDP_FEATURES)?;
        let features = features.get(..8).and_then(|bytes| bytes.try_into().ok());
        Ok(Features(u64::from_ne_bytes(features.ok_or(io::ErrorKind::InvalidData)?)))
    }

    /// Sends a request with one attribute, and returns one attribute of the answer.
    fn ask(&self, command: u8, attribute: u16, value: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
        let padded = value.len().next_multiple_of(4);
        let mut request = Vec::with_capacity(HEADERS + 4 + padded);
        request.extend(((HEADERS + 4 + padded) as u32).to_ne_bytes());
        request.extend(self.family.to_ne_bytes());
        request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request.extend([0; 8]);
        request.extend([command, 1, 0, 0]);
        request.extend(((4 + value.len()) as u16).to_ne_bytes());
        request.extend(attribute.to_ne_bytes());
        request.extend(value);
        request.resize(HEADERS + 4 + padded, 0);
        let fd = self.socket.as_raw_fd();
        // SAFETY: the buffer lives during the call, and has the length that the call is told.
        if unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = [0u8; 4096];
        // SAFETY: as above.
        let got = unsafe { libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        attribute_of(&answer[..got as usize], wanted)
    }
}

/// Finds an attribute in an answer.
fn attribute_of(answer: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    let short = |at: usize| answer.get(at..at + 2).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    if short(4) == Some(libc::NLMSG_ERROR as u16) {
        let code = answer.get(16..20).and_then(|bytes| bytes.try_into().ok());
        return Err(io::Error::from_raw_os_error(-code.map_or(-libc::EIO, i32::from_ne_bytes)));
    }
    let mut at = HEADERS;
    while let (Some(length), Some(kind)) = (short(at), short(at + 2)) {
        let length = usize::from(length);
        if length < 4 {
            break;
        }
        if kind == wanted {
            return Ok(answer.get(at + 4..at + length).unwrap_or_default().to_vec());
        }
        at += length.next_multiple_of(4);
    }
    Err(io::ErrorKind::NotFound.into())
}

/// The number of an interface of the calling thread's network namespace.
pub(super) fn index(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface)?;
    // SAFETY: a string with its end.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// The name of an interface's driver.
pub(super) fn driver(interface: &str) -> io::Result<String> {
    /// `struct ethtool_drvinfo`.
    #[repr(C)]
    struct Info {
        command: u32,
        driver: [u8; 32],
        rest: [u8; 160],
    }
    const GET_DRIVER: u32 = 3;
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    let mut info = Info { command: GET_DRIVER, driver: [0; 32], rest: [0; 160] };
    // SAFETY: all zeros is a value of this type.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(15).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: the request and what it points to live during the call, and are as large as the kernel
    // expects.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let end = info.driver.iter().position(|byte| *byte == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_no_target() {
        match Netdev::open() {
            Ok(netdev) => {
                let features = netdev.features(index("lo").unwrap()).unwrap();
                assert!(!features.takes_redirected() && !features.forwards());
            }
            // Before Linux 6.3.
            Err(error) => crate::testing::skip(error),
        }
        assert!(driver("lo").is_err(), "it has none");
        assert!(index("nosuch0").is_err());
    }
}
