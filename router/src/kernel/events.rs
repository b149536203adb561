//! Queues of events, one per worker thread.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use aya::maps::{Map, MapData, RingBuf};
use router_ebpf::layout::MAX_WORKERS;

use super::sys::{self, Update};

/// Bytes of one worker's queue of events: about 1,600 events.
const EVENT_QUEUE_BYTES: u32 = 65_536;

/// Gives a worker thread its queue in a map of queues.
///
/// # Errors
/// When there are more workers than the map has room for, or the system refuses.
pub(super) fn open(queues: &impl AsFd, worker: u32) -> io::Result<RingBuf<MapData>> {
    if worker as usize >= MAX_WORKERS {
        let message = format!("at most {MAX_WORKERS} worker threads can use a kernel engine");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let ring = sys::create_ring(EVENT_QUEUE_BYTES)?;
    sys::update(queues, &worker, &ring.as_raw_fd(), Update::Any)?;
    let map = MapData::from_fd(ring).map_err(io::Error::other)?;
    RingBuf::try_from(Map::RingBuf(map)).map_err(io::Error::other)
}
