//! A link over which rows are read. It counts, and on request takes the time of a link of a given
//! bandwidth and latency.

use std::{
    ops::Sub,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use graphmill_core::{NodeId, Result};

use super::{Capabilities, Feature, Places, Traffic};

/// Bandwidth and latency of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkOptions {
    /// Bandwidth in bytes per second; 0 for a link that takes no time.
    pub bandwidth: f64,
    /// Latency in seconds, from the last byte's departure to its arrival.
    pub latency: f64,
}

impl FromStr for LinkOptions {
    type Err = String;

    /// Parses `none`, `12G`, or `12G,10us`: bytes per second, and a latency in `s`, `ms` or `us`.
    fn from_str(word: &str) -> Result<Self, String> {
        if word == "none" {
            return Ok(Self::default());
        }
        let wrong = || {
            format!(
                "'{word}': not a link; use none, bytes per second such as 12G, or with a latency, 12G,10us"
            )
        };
        let (bandwidth, latency) = word.split_once(',').unwrap_or((word, "0s"));
        let scaled = |word: &str, units: &[(&str, f64)]| {
            let word = word.trim();
            let split = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
            let (number, unit) = word.split_at(split);
            let scale = units.iter().find(|(name, _)| *name == unit)?.1;
            number.parse::<f64>().ok().map(|x| x * scale)
        };
        let sizes = [("", 1.0), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
        let times = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6)];
        let bandwidth = scaled(bandwidth, &sizes).filter(|&x| x >= 1.0).ok_or_else(wrong)?;
        let latency = scaled(latency, &times).filter(|&x| x <= 60.0).ok_or_else(wrong)?;
        Ok(Self { bandwidth, latency })
    }
}

/// Traffic of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkTraffic {
    /// Number of transfers.
    pub transfers: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Seconds during which the link was busy.
    pub seconds: f64,
}

impl Sub for LinkTraffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            transfers: self.transfers - earlier.transfers,
            bytes: self.bytes - earlier.bytes,
            seconds: self.seconds - earlier.seconds,
        }
    }
}

/// A link between a device and the host, or its peers. Transfers take turns on it.
#[derive(Debug, Default)]
pub struct Link {
    options: LinkOptions,
    transfers: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
    /// Time at which the last byte of all transfers so far has left.
    busy_until: Mutex<Option<Instant>>,
}

impl Link {
    /// Creates a link without traffic.
    pub fn new(options: LinkOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Transfers `bytes` that have been under way since `began`, and returns when they have
    /// arrived.
    pub fn transfer(&self, bytes: u64, began: Instant) {
        self.transfers.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        if self.options.bandwidth == 0.0 {
            return;
        }
        let takes = Duration::from_secs_f64(bytes as f64 / self.options.bandwidth);
        self.nanos.fetch_add(takes.as_nanos() as u64, Relaxed);
        let left = {
            let mut busy = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
            let left = busy.map_or(began, |until| until.max(began)) + takes;
            *busy = Some(left);
            left
        };
        let arrived = left + Duration::from_secs_f64(self.options.latency);
        thread::sleep(arrived.saturating_duration_since(Instant::now()));
    }

    /// Traffic so far.
    pub fn traffic(&self) -> LinkTraffic {
        LinkTraffic {
            transfers: self.transfers.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            seconds: self.nanos.load(Relaxed) as f64 * 1e-9,
        }
    }
}

/// A tier whose rows are read over a link.
pub struct Linked {
    behind: Arc<dyn Feature>,
    link: Arc<Link>,
}

impl Linked {
    /// Creates a tier that reads the rows of `behind` over `link`.
    pub fn new(behind: Arc<dyn Feature>, link: Arc<Link>) -> Self {
        Self { behind, link }
    }
}

impl Feature for Linked {
    fn dim(&self) -> usize {
        self.behind.dim()
    }

    fn num_rows(&self) -> usize {
        self.behind.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> Result<Traffic> {
        let began = Instant::now();
        let mut traffic = self.behind.read_to(ids, places, out)?;
        // rows leave as they are gathered, so the link starts with the first row
        self.link.transfer(ids.len() as u64 * self.row_bytes(), began);
        // the traffic counts as the host's, whichever tier the rows came from
        let waited = (began.elapsed().as_nanos() as u64).saturating_sub(traffic.total().nanos);
        traffic.host.nanos += waited;
        Ok(traffic)
    }

    fn row_bytes(&self) -> u64 {
        self.behind.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::Features;

    use super::*;
    use crate::feature::Host;

    #[test]
    fn transfers_take_turns_and_time() {
        let link = Link::new(LinkOptions { bandwidth: 1e6, latency: 0.002 });
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| link.transfer(4_000, began));
            }
        });
        // three transfers of 4 ms in turn, and the latency of the last
        assert!(began.elapsed() >= Duration::from_millis(14));
        let traffic = link.traffic();
        assert_eq!((traffic.transfers, traffic.bytes), (3, 12_000));
        assert!((traffic.seconds - 0.012).abs() < 1e-6);
    }

    #[test]
    fn a_linked_tier_returns_the_next_tiers_rows() {
        let link = Arc::new(Link::default());
        let host = Host::new(&Features::f32(2, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        let linked = Linked::new(Arc::new(host), link.clone());
        let mut out = [0.0; 4];
        let traffic = linked.read(&[2, 0], &mut out).unwrap();
        assert_eq!((out, traffic.host.rows), ([4.0, 5.0, 0.0, 1.0], 2));
        assert_eq!(link.traffic(), LinkTraffic { transfers: 1, bytes: 16, seconds: 0.0 });
    }

    #[test]
    fn links_are_parsed_as_bandwidth_and_latency() {
        let parse = |word: &str| word.parse::<LinkOptions>().map(|link| (link.bandwidth, link.latency));
        assert_eq!(parse("none"), Ok((0.0, 0.0)));
        assert_eq!(parse("16G"), Ok((16e9, 0.0)));
        assert_eq!(parse("1.5M, 2ms"), Ok((1.5e6, 0.002)));
        for wrong in ["", "fast", "0", "0.0001", "12G,", "12G,3h", "12G,61s", "-1"] {
            assert!(parse(wrong).unwrap_err().contains("bytes per second"), "{wrong}");
        }
    }
}
