//! Loads with open streams.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::load::relay::Load;

/// A load with open streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "kebab-case")]
pub enum Scenario {
    /// 100 streams, an event of 200 bytes every 10 ms.
    Paced100,
    /// 1,000 streams, an event of 200 bytes every 20 ms.
    Paced1000,
    /// 64 streams, a chunk of 16 KiB every 4 ms: bulk at a pace that everyone keeps up with.
    Bulk,
    /// 8 streams of chunks of 16 KiB, as fast as they go.
    Flood,
    /// The same with a content length.
    FloodLength,
}

impl Scenario {
    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Paced100 => "100 streams, a chunk of 200 bytes every 10 ms",
            Self::Paced1000 => "1,000 streams, a chunk of 200 bytes every 20 ms",
            Self::Bulk => "64 streams, a chunk of 16 KiB every 4 ms",
            Self::Flood => "8 streams of 16 KiB chunks, flat out",
            Self::FloodLength => "8 streams of 16 KiB writes with a content length, flat out",
        }
    }

    /// Whether it asks how much goes through, rather than how quickly.
    pub fn is_flood(self) -> bool {
        matches!(self, Self::Flood | Self::FloodLength)
    }

    pub(super) fn load(self, seconds: Duration) -> Load {
        let (streams, size, gap_us) = match self {
            Self::Paced100 => (100, 200, 10_000),
            Self::Paced1000 => (1_000, 200, 20_000),
            Self::Bulk => (64, 16 << 10, 4_000),
            Self::Flood | Self::FloodLength => (8, 16 << 10, 0),
        };
        let chunked = self != Self::FloodLength;
        let warm_up = Duration::from_millis(500);
        Load { streams, size, gap_us, chunked, endpoint: None, warm_up, measure: seconds }
    }
}
