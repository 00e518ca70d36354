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

use graphmill_core::{Matrix, NodeId, Result, matrix::Sparse};

use super::{Capabilities, Feature, OutputRows, Traffic};

/// Bytes of one read by a device from the host's memory: a cache line of NVIDIA devices.
const LINE_BYTES: u64 = 128;

/// Path of rows over the link to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The host gathers rows, and they leave as they are gathered.
    #[default]
    Streamed,
    /// The host gathers all rows of a batch before the first one leaves.
    Gathered,
    /// The device reads rows in the host's memory, in whole lines of 128 bytes.
    Direct,
}

impl Access {
    /// Words after the latency of a link.
    const TABLE: [(&str, Self); 3] =
        [("streamed", Self::Streamed), ("gathered", Self::Gathered), ("direct", Self::Direct)];
}

/// Bandwidth and latency of a link, and how rows cross it.
///
/// # Source
/// Seung Won Min, Kun Wu, Mert Hidayetoglu, Jinjun Xiong, Xiang Song and Wen-mei Hwu, *Graph Neural
/// Network Training and Data Tiering*, KDD 2022, section 5.3: gathering by the processor, and
/// zero-copy access ([`Access::Direct`]).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkOptions {
    /// Bandwidth in bytes per second; 0 for a link that takes no time.
    pub bandwidth: f64,
    /// Latency in seconds, from the last byte's departure to its arrival.
    pub latency: f64,
    /// Path of rows over the link.
    pub access: Access,
}

impl FromStr for LinkOptions {
    type Err = String;

    /// Parses `none`, `12G`, `12G,10us` or `12G,10us,direct`: bytes per second, a latency in `s`,
    /// `ms` or `us`, and an [`Access`].
    fn from_str(word: &str) -> Result<Self, String> {
        if word == "none" {
            return Ok(Self::default());
        }
        let wrong = || {
            format!(
                "'{word}': not a link; use none, bytes per second such as 12G, with a latency, 12G,10us, \
                 or also with an access, 12G,10us,direct (streamed, gathered or direct)"
            )
        };
        let scaled = |word: &str, units: &[(&str, f64)]| {
            let word = word.trim();
            let split = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
            let (number, unit) = word.split_at(split);
            let scale = units.iter().find(|(name, _)| *name == unit)?.1;
            number.parse::<f64>().ok().map(|x| x * scale)
        };
        let sizes = [("", 1.0), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
        let times = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6)];
        let mut words = word.split(',');
        let bandwidth = words.next().unwrap_or_default();
        let bandwidth = scaled(bandwidth, &sizes).filter(|&x| x >= 1.0).ok_or_else(wrong)?;
        let latency = words.next().unwrap_or("0s");
        let latency = scaled(latency, &times).filter(|&x| x <= 60.0).ok_or_else(wrong)?;
        let access = words.next().map_or("streamed", str::trim);
        let access = Access::TABLE.iter().find(|(name, _)| *name == access).ok_or_else(wrong)?.1;
        if words.next().is_some() {
            return Err(wrong());
        }
        Ok(Self { bandwidth, latency, access })
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
        if let Some(left) = self.occupy(bytes, began) {
            let arrived = left + Duration::from_secs_f64(self.options.latency);
            thread::sleep(arrived.saturating_duration_since(Instant::now()));
        }
    }

    /// Transfers `bytes` as [`Link::transfer`] does, without waiting: later transfers follow them.
    /// Returns the time at which the last byte leaves, unless the link takes no time.
    pub fn occupy(&self, bytes: u64, began: Instant) -> Option<Instant> {
        self.transfers.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        if self.options.bandwidth == 0.0 {
            return None;
        }
        let takes = Duration::from_secs_f64(bytes as f64 / self.options.bandwidth);
        self.nanos.fetch_add(takes.as_nanos() as u64, Relaxed);
        let mut busy = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = busy.map_or(began, |until| until.max(began)) + takes;
        *busy = Some(left);
        Some(left)
    }

    /// Transfers the rows `ids` of `row_bytes` each, whose gathering has just ended and began at
    /// `began`. A device that reads rows itself ([`Access::Direct`]) reads every line that a row
    /// touches; the first row starts with a line.
    pub fn transfer_rows(&self, ids: &[NodeId], row_bytes: u64, began: Instant) {
        let packed = ids.len() as u64 * row_bytes;
        match self.options.access {
            Access::Streamed => self.transfer(packed, began),
            Access::Gathered => self.transfer(packed, Instant::now()),
            Access::Direct if row_bytes == 0 => self.transfer(0, began),
            Access::Direct => {
                let lines = |&id: &NodeId| {
                    let first = u64::from(id) * row_bytes;
                    (first + row_bytes - 1) / LINE_BYTES - first / LINE_BYTES + 1
                };
                self.transfer(ids.iter().map(lines).sum::<u64>() * LINE_BYTES, began);
            }
        }
    }

    /// [`Link::transfer_rows`] for gathered sparse rows: a start for each row, and columns and
    /// values.
    pub fn transfer_sparse(&self, rows: Sparse, began: Instant) {
        let row_bytes = |ends: &[u32]| 8 * (1 + u64::from(ends[1] - ends[0]));
        let sizes = rows.indptr.windows(2).map(row_bytes);
        match self.options.access {
            Access::Streamed => self.transfer(sizes.sum(), began),
            Access::Gathered => self.transfer(sizes.sum(), Instant::now()),
            Access::Direct => {
                self.transfer(sizes.map(|bytes| bytes.next_multiple_of(LINE_BYTES)).sum(), began);
            }
        }
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

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let began = Instant::now();
        let traffic = self.behind.read_to(ids, places, out)?;
        self.link.transfer_rows(ids, self.row_bytes(), began);
        Ok(with_wait(traffic, began))
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        let began = Instant::now();
        let traffic = self.behind.gather(ids, out)?;
        match out.view().sparse() {
            Some(rows) => self.link.transfer_sparse(rows, began),
            None => self.link.transfer_rows(ids, self.row_bytes(), began),
        }
        Ok(with_wait(traffic, began))
    }

    fn row_bytes(&self) -> u64 {
        self.behind.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

/// Adds the time since `began` that `traffic` does not count: the wait for the link. It counts as
/// the host's, whichever tier the rows came from.
fn with_wait(mut traffic: Traffic, began: Instant) -> Traffic {
    let waited = (began.elapsed().as_nanos() as u64).saturating_sub(traffic.total().nanos);
    traffic.host.nanos += waited;
    traffic
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Features, SparseRows};

    use super::*;
    use crate::feature::Host;

    #[test]
    fn transfers_take_turns_and_time() {
        let link = Link::new(LinkOptions { bandwidth: 1e6, latency: 0.002, ..LinkOptions::default() });
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
    fn transfers_follow_those_without_a_waiting_caller() {
        let link = Link::new(LinkOptions { bandwidth: 1e6, latency: 0.002, ..LinkOptions::default() });
        let began = Instant::now();
        assert_eq!(link.occupy(40_000, began), Some(began + Duration::from_millis(40)));
        assert!(began.elapsed() < Duration::from_millis(40), "the writer does not wait");
        link.transfer(4_000, began);
        assert!(began.elapsed() >= Duration::from_millis(46));
        assert_eq!((link.traffic().transfers, link.traffic().bytes), (2, 44_000));
        assert_eq!(Link::default().occupy(8, began), None, "a link that takes no time");
    }

    #[test]
    fn direct_reads_transfer_whole_lines() {
        let link = Link::new(LinkOptions { access: Access::Direct, ..LinkOptions::default() });
        let mut expected = 0;
        for (row_bytes, bytes) in
            [(100, 128 + 256 + 256), (128, 3 * 128), (4, 3 * 128), (200, 256 + 384 + 256)]
        {
            // rows 0, 1 and 2 lie at 0, row_bytes and 2 row_bytes
            let touched = |id: u64| (id * row_bytes..(id + 1) * row_bytes).map(|x| x / 128);
            let lines: usize =
                (0..3).map(|id| touched(id).collect::<std::collections::BTreeSet<_>>().len()).sum();
            assert_eq!(lines as u64 * 128, bytes, "{row_bytes}");
            link.transfer_rows(&[0, 1, 2], row_bytes, Instant::now());
            expected += bytes;
            assert_eq!(link.traffic().bytes, expected, "{row_bytes}");
        }
    }

    #[test]
    fn gathered_rows_leave_after_they_are_gathered() {
        let took = |access| {
            let link = Link::new(LinkOptions { bandwidth: 1e6, latency: 0.0, access });
            let began = Instant::now();
            thread::sleep(Duration::from_millis(30));
            link.transfer_rows(&[0; 10], 2_000, began);
            began.elapsed()
        };
        // 20 ms on the link: within the 30 ms of gathering, or after them
        assert!(took(Access::Gathered) >= Duration::from_millis(50));
        assert!(took(Access::Streamed) >= Duration::from_millis(30));
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
    fn sparse_rows_cross_the_link_as_columns_and_values() {
        let rows = SparseRows::from_dense(40, &[[0.0; 39].as_slice(), &[2.0]].concat().repeat(3)).unwrap();
        for (access, bytes) in [("streamed", 2 * 16), ("gathered", 2 * 16), ("direct", 2 * 128)] {
            let link = Arc::new(Link::new(format!("1G,0s,{access}").parse().unwrap()));
            let linked = Linked::new(Arc::new(Host::new(&Features::csr(rows.clone()))), link.clone());
            let mut out = Matrix::default();
            let traffic = linked.gather(&[2, 0], &mut out).unwrap();
            assert!(out.is_sparse());
            assert_eq!((traffic.host.bytes, link.traffic().bytes), (32, bytes), "{access}");
        }
    }

    #[test]
    fn links_are_parsed_as_bandwidth_and_latency() {
        let parse = |word: &str| word.parse::<LinkOptions>().map(|link| (link.bandwidth, link.latency));
        assert_eq!(parse("none"), Ok((0.0, 0.0)));
        assert_eq!(parse("16G"), Ok((16e9, 0.0)));
        assert_eq!(parse("1.5M, 2ms"), Ok((1.5e6, 0.002)));
        let access = |word: &str| word.parse::<LinkOptions>().map(|link| link.access);
        assert_eq!(access("16G,1us"), Ok(Access::Streamed));
        assert_eq!(access("16G,1us,gathered"), Ok(Access::Gathered));
        assert_eq!(access("16G, 0s, direct"), Ok(Access::Direct));
        let wrong =
            ["", "fast", "0", "0.0001", "12G,", "12G,3h", "12G,61s", "-1", "12G,direct", "12G,1s,dma"];
        for wrong in wrong {
            assert!(parse(wrong).unwrap_err().contains("bytes per second"), "{wrong}");
        }
    }
}
