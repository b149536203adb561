//! Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam: arXiv 1608.01350).

use xxhash_rust::xxh3::xxh3_64;

use super::{Choice, HostView, least_busy};

/// Points of hosts on a circle.
#[derive(Debug, Default)]
pub(super) struct Ring(Vec<(u64, usize)>);

impl Ring {
    /// With `nodes` points for each listed host.
    pub(super) fn new(hosts: &[HostView], nodes: u32) -> Self {
        let mut points = Vec::new();
        for (host, _) in hosts.iter().enumerate().filter(|(_, view)| view.listed) {
            points.extend(
                (0..nodes).map(|node| (xxh3_64(format!("{host}#{node}").as_bytes()), host)),
            );
        }
        points.sort_unstable();
        Self(points)
    }

    /// The first host behind the key that would not have more than `factor` of the average with one request more.
    pub(super) fn choose(
        &self,
        key: &[u8],
        factor: f64,
        hosts: &[HostView],
        failed: &[usize],
    ) -> Option<Choice> {
        let able = |host: usize| hosts[host].listed && !failed.contains(&host);
        let count = (0..hosts.len()).filter(|host| able(*host)).count();
        let total: u32 = hosts.iter().filter(|view| view.listed).map(|view| view.in_flight).sum();
        let bound = (f64::from(total + 1) / count.max(1) as f64 * factor).ceil();
        let begin = self.0.partition_point(|(point, _)| *point < xxh3_64(key));
        let mut first = None;
        for step in 0..self.0.len() {
            let (_, host) = self.0[(begin + step) % self.0.len()];
            if !able(host) {
                continue;
            }
            let home = *first.get_or_insert(host);
            if f64::from(hosts[host].in_flight + 1) <= bound {
                return Some(Choice { host, overflow: host != home });
            }
        }
        Some(Choice { host: least_busy(hosts, failed, |_| true)?, overflow: true })
    }
}
