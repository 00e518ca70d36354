//! A link that rows come over: it counts, and where it is asked to it takes the time that a link of
//! its bandwidth and latency would.

use std::{
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

/// What a link is like.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkOptions {
    /// Bytes a second; 0 for a link that takes no time.
    pub bandwidth: f64,
    /// Seconds from the last byte's departure to its arrival.
    pub latency: f64,
}

impl FromStr for LinkOptions {
    type Err = String;

    /// From `none`, `12G`, or `12G,10us`: bytes a second, and the latency in seconds, `ms` or `us`.
    fn from_str(word: &str) -> Result<Self, String> {
        if word == "none" {
            return Ok(Self::default());
        }
        let wrong = || format!("'{word}': none, bytes a second such as 12G, or with a latency, 12G,10us");
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

/// What went over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    /// Transfers.
    pub transfers: u64,
    /// Bytes.
    pub bytes: u64,
    /// Seconds in which it was taken.
    pub seconds: f64,
}

/// A link between a device and the host. Transfers take their turns on it.
#[derive(Debug, Default)]
pub struct Link {
    options: LinkOptions,
    transfers: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
    /// When the last byte of all transfers so far has left.
    taken_until: Mutex<Option<Instant>>,
}

impl Link {
    /// A link that nothing has gone over.
    pub fn new(options: LinkOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Carries bytes that have been on their way since `began`: returns when they have arrived.
    pub fn carry(&self, bytes: u64, began: Instant) {
        self.transfers.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        if self.options.bandwidth == 0.0 {
            return;
        }
        let takes = Duration::from_secs_f64(bytes as f64 / self.options.bandwidth);
        self.nanos.fetch_add(takes.as_nanos() as u64, Relaxed);
        let left = {
            let mut taken = self.taken_until.lock().unwrap_or_else(PoisonError::into_inner);
            let left = taken.map_or(began, |until| until.max(began)) + takes;
            *taken = Some(left);
            left
        };
        let arrived = left + Duration::from_secs_f64(self.options.latency);
        thread::sleep(arrived.saturating_duration_since(Instant::now()));
    }

    /// What went over it.
    pub fn carried(&self) -> Carried {
        Carried {
            transfers: self.transfers.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            seconds: self.nanos.load(Relaxed) as f64 * 1e-9,
        }
    }
}

/// Rows that come over a link.
pub struct Linked {
    behind: Arc<dyn Feature>,
    link: Arc<Link>,
}

impl Linked {
    /// The rows of `behind`, over `link`.
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
        // rows leave as they are gathered: the link is no later than its own time behind the first
        self.link.carry(ids.len() as u64 * self.row_bytes(), began);
        // the host is where rows set out from, whatever tier they were in before
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
    fn transfers_take_their_time_and_their_turns() {
        let link = Link::new(LinkOptions { bandwidth: 1e6, latency: 0.002 });
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| link.carry(4_000, began));
            }
        });
        // 3 x 4 ms in turns, and the latency of the last
        assert!(began.elapsed() >= Duration::from_millis(14));
        let carried = link.carried();
        assert_eq!((carried.transfers, carried.bytes), (3, 12_000));
        assert!((carried.seconds - 0.012).abs() < 1e-6);
    }

    #[test]
    fn rows_are_those_behind_the_link() {
        let link = Arc::new(Link::default());
        let host = Host::new(&Features::f32(2, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        let linked = Linked::new(Arc::new(host), link.clone());
        let mut out = [0.0; 4];
        let traffic = linked.read(&[2, 0], &mut out).unwrap();
        assert_eq!((out, traffic.host.rows), ([4.0, 5.0, 0.0, 1.0], 2));
        assert_eq!(link.carried(), Carried { transfers: 1, bytes: 16, seconds: 0.0 });
    }

    #[test]
    fn links_are_written_as_bandwidth_and_latency() {
        let parse = |word: &str| word.parse::<LinkOptions>().map(|link| (link.bandwidth, link.latency));
        assert_eq!(parse("none"), Ok((0.0, 0.0)));
        assert_eq!(parse("16G"), Ok((16e9, 0.0)));
        assert_eq!(parse("1.5M, 2ms"), Ok((1.5e6, 0.002)));
        for wrong in ["", "fast", "0", "0.0001", "12G,", "12G,3h", "12G,61s", "-1"] {
            assert!(parse(wrong).unwrap_err().contains("bytes a second"), "{wrong}");
        }
    }
}
