//! Asking the kernel about its network.

use std::io;

use netlink_packet_core::{
    NLA_HEADER_SIZE, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlaBuffer, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr};

/// A socket to ask one of the kernel's parts by, such as `NETLINK_ROUTE`.
pub(super) fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Attributes by their number.
pub(super) fn parts(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|attribute: NlaBuffer<&[u8]>| {
        let (kind, length) = (attribute.kind(), attribute.value_length());
        (kind, &attribute.into_inner()[NLA_HEADER_SIZE..][..length])
    })
}

/// Sends a request, and reads what is answered.
pub(super) fn request(
    socket: &Socket,
    kind: u16,
    flags: u16,
    message: &[u8],
    mut answer: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut bytes = vec![0; 16];
    bytes.extend(message);
    let length = bytes.len() as u32;
    let mut header = NetlinkBuffer::new(&mut bytes[..]);
    header.set_length(length);
    header.set_message_type(kind);
    header.set_flags(NLM_F_REQUEST | flags);
    socket.send(&bytes, 0)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = &bytes[..];
        while let Ok(message) = NetlinkBuffer::new_checked(rest) {
            match message.message_type() {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code =
                        message.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                    return if code == 0 {
                        Ok(())
                    } else {
                        Err(io::Error::from_raw_os_error(-code))
                    };
                }
                _ => answer(message.payload()),
            }
            let length = (message.length() as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or(&[]);
        }
    }
}
