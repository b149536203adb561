//! Idle connections to instances, one pool per worker thread.
//!
//! A pooled connection is kept for less than instances keep it (many servers close after five
//! seconds), so that a request rarely meets one that is being closed. The newest goes out first: it
//! is the least likely to be stale, and the surplus grows old and is closed.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use hashbrown::HashMap;

use super::InstanceId;
use crate::{engine::Conn, metrics::InstanceMetrics};

struct Idle {
    conn: Conn,
    since: Instant,
}

/// One instance's idle connections, the oldest first.
struct Shelf {
    idle: VecDeque<Idle>,
    metrics: Arc<InstanceMetrics>,
}

/// One thread's idle connections.
#[derive(Default)]
pub struct ConnectionPool {
    shelves: HashMap<InstanceId, Shelf>,
}

impl ConnectionPool {
    /// Takes the newest connection that is still open.
    pub fn take(&mut self, instance: InstanceId, max_idle: Duration) -> Option<Conn> {
        let shelf = self.shelves.get_mut(&instance)?;
        while let Some(mut idle) = shelf.idle.pop_back() {
            if shelf.is_good(&mut idle, max_idle) {
                shelf.metrics.pool.idle.dec();
                shelf.metrics.pool.reused.inc();
                return Some(idle.conn);
            }
        }
        None
    }

    /// Keeps a connection on which nothing is under way. When the instance already has `limit` of
    /// them, the oldest is closed.
    pub fn put(
        &mut self,
        instance: InstanceId,
        metrics: &Arc<InstanceMetrics>,
        conn: Conn,
        limit: usize,
    ) {
        if limit == 0 || !conn.input.is_empty() {
            metrics.pool.discarded.inc();
            return;
        }
        let shelf = self
            .shelves
            .entry(instance)
            .or_insert_with(|| Shelf { idle: VecDeque::new(), metrics: metrics.clone() });
        if shelf.idle.len() >= limit && shelf.idle.pop_front().is_some() {
            metrics.pool.discarded.inc();
            metrics.pool.idle.dec();
        }
        shelf.idle.push_back(Idle { conn, since: Instant::now() });
        metrics.pool.idle.inc();
    }

    /// Closes what is too old, was closed by its instance, or belongs to an instance that
    /// `is_known` no longer knows.
    pub fn sweep(&mut self, max_idle: Duration, is_known: impl Fn(InstanceId) -> bool) {
        self.shelves.retain(|&instance, shelf| {
            let known = is_known(instance);
            let mut idle = std::mem::take(&mut shelf.idle);
            idle.retain_mut(|idle| {
                if known {
                    return shelf.is_good(idle, max_idle);
                }
                shelf.metrics.pool.discarded.inc();
                shelf.metrics.pool.idle.dec();
                false
            });
            shelf.idle = idle;
            !shelf.idle.is_empty()
        });
    }

    /// Connections at rest.
    pub fn len(&self) -> usize {
        self.shelves.values().map(|shelf| shelf.idle.len()).sum()
    }

    /// Whether no connection is at rest.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shelf {
    /// Whether a connection may be used; counts it off when not.
    fn is_good(&self, idle: &mut Idle, max_idle: Duration) -> bool {
        let gone = if idle.since.elapsed() >= max_idle {
            &self.metrics.pool.expired
        } else if !is_quiet(&mut idle.conn) {
            &self.metrics.pool.closed_by_peer
        } else {
            return true;
        };
        gone.inc();
        self.metrics.pool.idle.dec();
        false
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        self.sweep(Duration::ZERO, |_| false);
    }
}

/// Whether an idle connection is open and silent. Anything that arrives on one, a FIN above all,
/// makes it useless.
fn is_quiet(conn: &mut Conn) -> bool {
    // Readiness that the event loop has already noted costs nothing to look at; only then is the
    // socket asked, because readiness may be left over from the last exchange.
    let mut cx = Context::from_waker(Waker::noop());
    match conn.stream.poll_readable(&mut cx) {
        Poll::Pending => true,
        Poll::Ready(Err(_)) => false,
        Poll::Ready(Ok(())) => {
            let mut byte = [0];
            matches!(conn.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{metrics::Metrics, net::Stream};
    use std::{io::Write, net::TcpListener, net::TcpStream};

    fn pair() -> (Conn, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Conn::new(Stream::new(near).unwrap()), listener.accept().unwrap().0)
    }

    fn metrics() -> Arc<InstanceMetrics> {
        Metrics::new().instance("e", "v", "u")
    }

    const AGE: Duration = Duration::from_secs(3);

    #[tokio::test]
    async fn the_newest_open_connection_comes_first() {
        let (mut pool, metrics) = (ConnectionPool::default(), metrics());
        let (old, _old_peer) = pair();
        let (new, _new_peer) = pair();
        let new_address = new.stream.local_addr().unwrap();
        pool.put(1, &metrics, old, 8);
        pool.put(1, &metrics, new, 8);
        assert!(pool.take(2, AGE).is_none());
        assert_eq!(pool.take(1, AGE).unwrap().stream.local_addr().unwrap(), new_address);
        assert_eq!(pool.len(), 1);
        assert_eq!((metrics.pool.idle.get(), metrics.pool.reused.get()), (1, 1));
        assert!(pool.take(1, Duration::ZERO).is_none(), "too old");
        assert!(pool.is_empty());
        assert_eq!((metrics.pool.idle.get(), metrics.pool.expired.get()), (0, 1));
    }

    #[tokio::test]
    async fn closed_and_talkative_connections_are_not_reused() {
        let (mut pool, metrics) = (ConnectionPool::default(), metrics());
        let (closed, closed_peer) = pair();
        let (talking, mut talking_peer) = pair();
        drop(closed_peer);
        talking_peer.write_all(b"HTTP/1.1 408 ...").unwrap();
        // The event loop must have seen both.
        std::future::poll_fn(|cx| closed.stream.poll_readable(cx)).await.unwrap();
        std::future::poll_fn(|cx| talking.stream.poll_readable(cx)).await.unwrap();
        pool.put(1, &metrics, closed, 8);
        pool.put(1, &metrics, talking, 8);
        assert!(pool.take(1, AGE).is_none());
    }

    #[tokio::test]
    async fn the_limit_closes_the_oldest_and_a_sweep_the_unknown() {
        let (mut pool, metrics) = (ConnectionPool::default(), metrics());
        let mut peers = Vec::new();
        for _ in 0..3 {
            let (conn, peer) = pair();
            pool.put(1, &metrics, conn, 2);
            peers.push(peer);
        }
        assert_eq!(pool.len(), 2);
        pool.sweep(AGE, |_| true);
        assert_eq!(pool.len(), 2);
        pool.sweep(AGE, |id| id != 1);
        assert_eq!(pool.len(), 0);
        let (mut conn, _peer) = pair();
        conn.input.extend_from_slice(b"surplus");
        pool.put(1, &metrics, conn, 2);
        assert!(pool.is_empty());
    }
}
