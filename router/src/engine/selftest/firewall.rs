//! Whether a reset with a socket's own number leaves this host's sockets for loopback.
//!
//! Connection tracking judges resets by what the peer has acknowledged, whatever else it was told about a
//! connection (`nf_conntrack_tcp_packet` in net/netfilter/nf_conntrack_proto_tcp.c). Once the numbers of a
//! gateway's socket have moved, its resets are before that; on their way out netfilter sees them before the
//! programs change them. Where a rule drops what does not fit, a peer on this host would wait for ever.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use router_ebpf::splice::layout::flag;

use super::{Failure, connections::V4, failed};
use crate::kernel::splice::{Info, SpliceObject, reset_with_old_number};

/// Bytes between the number of the reset and what the peer has acknowledged.
const BEHIND: usize = 500;
/// How long a packet may take over loopback, where it is under way for microseconds.
const LIMIT: Duration = Duration::from_millis(500);

/// Says whether one arrives where the programs see it. Uses connections of its own.
pub(super) fn lets_resets_out(programs: &SpliceObject) -> Result<bool, Failure> {
    reset(programs).map_err(failed("a reset on loopback"))
}

fn reset(programs: &SpliceObject) -> std::io::Result<bool> {
    let listener = TcpListener::bind(V4)?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, address) = listener.accept()?;
    // Acknowledged with the answer.
    near.write_all(&[0; BEHIND])?;
    far.read_exact(&mut [0; BEHIND])?;
    far.write_all(&[0])?;
    near.read_exact(&mut [0])?;
    // From now on, the programs note the first packet that arrives for the far end.
    let info = Info::of(far.as_fd())?;
    let addresses = (far.local_addr()?, address);
    let index = programs.register(addresses, &info, 0, false, 0)?;
    let arrived = || programs.entry(index).flags() & flag::ARRIVED != 0;
    let start = Instant::now();
    let sent = reset_with_old_number(near, BEHIND as u32 / 2);
    while sent.is_ok() && !arrived() && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    let heard = arrived();
    programs.forget(index, false);
    sent.map(|()| heard)
}
