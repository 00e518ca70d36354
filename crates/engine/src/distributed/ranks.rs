//! The ranks of a run, from the view of one of them.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use graphmill_core::Matrix;
use graphmill_distributed::{
    Collective, Messenger, NodeOwnership,
    edges::EDGE_ROWS,
    messenger::HEADER,
    neighbors::{FETCH, STEP},
    numbers::{of_words, to_words},
    rows::{ROWS, Remote, RowService, Table},
    sampler::{LISTS, SAMPLE},
    subgraphs::SUBGRAPH,
    times::{TIME_DRAWS, TIME_LAST},
};
use graphmill_loader::{Feature, Traffic, feature::LinkTraffic};
use graphmill_nn::model::Model;
use serde::de::DeserializeOwned;

use super::{
    gradients::Gradients,
    stages::Counts,
    words::{pack, unpack},
};
use crate::{
    Error, Result, RunDir,
    checkpoint::{self, Checkpoint, Files},
    config::Work,
    record::{EpochTotals, RankRecord},
};

/// Numbers of the services for the two tables of rows between layers, which inference uses in
/// turns.
pub(crate) const LAYERS: [u32; 2] = [ROWS + 1, ROWS + 2];

/// Number of the service for feature rows as the parts store them.
pub(super) const STORED_ROWS: u32 = ROWS + 3;

/// Number of the service for learned rows, which devices request between updates.
pub(crate) const LEARNED: u32 = ROWS + 4;

/// Most words of one of several messages with a table.
pub(super) const MESSAGE_WORDS: usize = 1 << 22;

/// Prefixes of collective numbers, one per use, so that no two uses share a number.
pub(super) mod class {
    pub(in super::super) const OPTIONS: u64 = 4 << 56;
    pub(super) const SUMS: u64 = 1 << 56;
    pub(super) const STEPS: u64 = 2 << 56;
    pub(super) const MEETINGS: u64 = 3 << 56;
    pub(super) const REUSED: u64 = 5 << 56;
}

/// Counters that each rank adds up separately.
type Counters = [u64; 14];

/// Seeds, bytes sent for samples, features and sums, and the bits of the seconds of each stage.
type More = [u64; 12];

/// Edges, edges of bottom blocks, the rows and bytes of each tier, from the nearest to the
/// farthest, and the rows and pairs that were computed.
fn counters(sums: &mut EpochTotals) -> [&mut u64; 14] {
    let EpochTotals { edges, bottom_edges, traffic, rows, pairs, .. } = sums;
    let Traffic { device, peer, host, disk, remote } = traffic;
    [
        edges,
        bottom_edges,
        &mut device.rows,
        &mut device.bytes,
        &mut peer.rows,
        &mut peer.bytes,
        &mut host.rows,
        &mut host.bytes,
        &mut disk.rows,
        &mut disk.bytes,
        &mut remote.rows,
        &mut remote.bytes,
        rows,
        pairs,
    ]
}

/// The ranks of a run: the owners of nodes, and collective operations. All ranks call the same
/// methods in the same order.
pub struct Ranks {
    pub(super) all: Collective,
    pub(super) book: Arc<NodeOwnership>,
    pub(super) gradients: Mutex<Gradients>,
    pub(super) steps: AtomicU64,
    meetings: AtomicU64,
    /// Number of exchanges of reused rows, which run beside the others.
    pub(super) reused: AtomicU64,
    pub(super) wants_stop: AtomicBool,
    pub(super) stops: AtomicBool,
    /// The same of a checkpoint.
    pub(super) wants_save: AtomicBool,
    pub(super) saves: AtomicBool,
    /// Number of this rank's seeds in the current epoch.
    pub(super) seeds: AtomicU64,
    /// Counts of the messenger: before the epoch while it runs, then in the epoch.
    counts: Mutex<Counts>,
    /// Nanoseconds that the sampling services spent on writing replies.
    building: Arc<AtomicU64>,
    /// Counters of all ranks at the point where the epoch was resumed.
    before: Mutex<Counters>,
    /// Totals of this rank at that point.
    resumed: Mutex<EpochTotals>,
    /// Own rows between layers.
    layers: [Arc<RwLock<Matrix>>; 2],
}

impl Ranks {
    /// Joins the ranks, and serves this rank's rows between layers.
    ///
    /// # Errors
    /// The system refuses threads.
    pub(crate) fn new(post: Arc<Messenger>, book: Arc<NodeOwnership>) -> Result<Self> {
        let all = Collective::new(post.clone());
        let layers: [Arc<RwLock<Matrix>>; 2] = Default::default();
        for (number, table) in LAYERS.iter().zip(&layers) {
            post.serve(*number, Arc::new(RowService::new(book.clone(), Table::Written(table.clone()))));
        }
        // graph stores have no gradients
        let gradients = Gradients::new(all.among(book.num_trainers()), class::SUMS)?;
        Ok(Self {
            all,
            book,
            gradients: Mutex::new(gradients),
            steps: AtomicU64::new(class::STEPS),
            meetings: AtomicU64::new(class::MEETINGS),
            reused: AtomicU64::new(class::REUSED),
            wants_stop: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            wants_save: AtomicBool::new(false),
            saves: AtomicBool::new(false),
            seeds: AtomicU64::new(0),
            counts: Mutex::default(),
            building: Arc::default(),
            before: Mutex::default(),
            resumed: Mutex::default(),
            layers,
        })
    }

    /// The owners of nodes.
    pub fn book(&self) -> &Arc<NodeOwnership> {
        &self.book
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.book.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.book.size()
    }

    /// Messenger of this rank.
    pub(crate) fn post(&self) -> &Arc<Messenger> {
        self.all.post()
    }

    /// Waits until all ranks call this.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn meet(&self) -> Result<()> {
        self.gather(&[]).map(drop)
    }

    /// Gathers the words of every rank, in the order of ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn gather(&self, words: &[u32]) -> Result<Vec<Vec<u32>>> {
        Ok(self.all.gather(self.meetings.fetch_add(1, Relaxed), words)?)
    }

    /// Replaces `values` by the sum over all ranks' `values`, which have equal lengths.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn sum(&self, values: &mut [f32]) -> Result<()> {
        Ok(self.all.sum(self.meetings.fetch_add(1, Relaxed), values)?)
    }

    /// Returns rank 0's words.
    ///
    /// # Errors
    /// Rank 0 did not take part.
    pub(crate) fn broadcast(&self, words: Vec<u32>) -> Result<Vec<u32>> {
        Ok(self.all.broadcast(self.meetings.fetch_add(1, Relaxed), words)?)
    }

    /// Returns rank 0's numbers.
    ///
    /// # Errors
    /// Rank 0 did not take part.
    pub(crate) fn agree(&self, numbers: [f64; 2]) -> Result<[f64; 2]> {
        let received = self.broadcast(to_words(numbers.map(f64::to_bits)))?;
        let mut numbers = of_words(&received).map(f64::from_bits);
        Ok([(); 2].map(|()| numbers.next().unwrap_or(0.0)))
    }

    /// Reads the checkpoint of rank 0's run directory `run`, on all ranks; `None` if it has no
    /// checkpoint.
    ///
    /// # Errors
    /// It cannot be read, or a rank did not take part.
    pub(crate) fn checkpoint<S: DeserializeOwned>(
        &self,
        run: Option<&RunDir>,
    ) -> Result<Option<Checkpoint<S>>> {
        let dir = run.map(RunDir::checkpoint).unwrap_or_default();
        let mut damage = None;
        let files = self.files(|| {
            let found = checkpoint::files(&dir)?;
            Ok(found.map(|(files, of_newer)| {
                damage = of_newer;
                files
            }))
        })?;
        let loaded = files.map(|files| Checkpoint::of_files(&dir, &files)).transpose()?;
        Ok(loaded.map(|checkpoint| checkpoint.with_damage(damage)))
    }

    /// Returns on all ranks the files that `read` returns on rank 0, which alone calls it; `None`
    /// if it returns none.
    ///
    /// # Errors
    /// Those of `read`, or a rank did not take part.
    pub(crate) fn files(&self, read: impl FnOnce() -> Result<Option<Files>>) -> Result<Option<Files>> {
        let files = if self.rank() == 0 { read()? } else { None };
        let received = self.broadcast(files.map(|files| pack(&files)).unwrap_or_default())?;
        if received.is_empty() {
            return Ok(None);
        }
        let malformed =
            || Error::usage("rank 0 has sent malformed files; use the same build on all machines");
        unpack(&received).map(Some).ok_or_else(malformed)
    }

    /// Parameters of `model` as rank 0 has them, if this rank is a graph store, which does not
    /// update its own; `None` if this rank trains. All ranks call this at the same time.
    ///
    /// # Errors
    /// Rank 0 did not take part.
    pub(super) fn trained(&self, model: &Model) -> Result<Option<Model>> {
        let number = self.meetings.fetch_add(1, Relaxed);
        let (post, book) = (self.post(), &self.book);
        if book.trains() {
            if book.rank() == 0 {
                let mut words: Vec<u32> = Vec::new();
                model.visit(&mut |_, param| {
                    words.extend_from_slice(bytemuck::cast_slice(param.value.view().host()));
                });
                for store in book.num_trainers()..book.size() {
                    post.put(store, number, |message| message.extend_from_slice(&words));
                }
            }
            return Ok(None);
        }
        let words = post.take(0, number)?;
        let mut values: &[f32] = bytemuck::cast_slice(&words[HEADER..]);
        let mut trained = model.clone();
        let mut is_short = false;
        trained.visit_mut(&mut |_, param| {
            let to = param.value.view_mut().host();
            match values.split_at_checked(to.len()) {
                Some((these, rest)) => {
                    to.copy_from_slice(these);
                    values = rest;
                }
                None => is_short = true,
            }
        });
        if is_short || !values.is_empty() {
            let message = "its model has another shape; start all ranks with the same options".to_string();
            return Err(graphmill_core::Error::Peer { rank: 0, message }.into());
        }
        Ok(Some(trained))
    }

    /// Announces whether this rank wants to stop with the next update; returns true if all ranks
    /// stop, as they agreed with the last update.
    pub(crate) fn agree_to_stop(&self, wants: bool) -> bool {
        self.wants_stop.store(wants, Relaxed);
        self.stops.load(Relaxed)
    }

    /// Announces whether this rank wants a checkpoint after the next update; returns true if all
    /// ranks write one now, as they agreed with the last update.
    pub(crate) fn agree_to_save(&self, wants: bool) -> bool {
        let saves = self.saves.load(Relaxed);
        self.wants_save.store(wants && !saves, Relaxed);
        saves
    }

    /// Sends each rank its words, and returns those that each rank sent to this one, by rank.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn exchange_words(&self, mut words: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
        let (number, post) = (self.meetings.fetch_add(1, Relaxed), self.post());
        for to in post.others() {
            post.put(to, number, |message| message.extend_from_slice(&words[to]));
        }
        for from in post.others() {
            words[from] = post.take(from, number)?;
            words[from].drain(..HEADER);
        }
        Ok(words)
    }

    /// Returns the words of all ranks on rank 0, `None` on the others. `counts` are the numbers of
    /// words by rank.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn collect_words(&self, own: &[u32], counts: &[usize]) -> Result<Option<Vec<Vec<u32>>>> {
        let (number, post) = (self.meetings.fetch_add(1, Relaxed), self.post());
        if self.rank() > 0 {
            for words in own.chunks(MESSAGE_WORDS) {
                post.put(0, number, |message| message.extend_from_slice(words));
            }
            return Ok(None);
        }
        let mut all = vec![own.to_vec()];
        for (from, &count) in counts.iter().enumerate().skip(1) {
            let mut words = Vec::with_capacity(count);
            while words.len() < count {
                words.extend_from_slice(&post.take(from, number)?[HEADER..]);
            }
            all.push(words);
        }
        Ok(Some(all))
    }

    /// Table of this rank's rows of layer `l` in inference, and a feature that reads such rows of
    /// all ranks, of `dim` values each.
    pub(super) fn layer(&self, l: usize, dim: usize) -> (&Arc<RwLock<Matrix>>, Box<dyn Feature>) {
        use graphmill_distributed::rows::OwnedAndRemoteRows;
        let which = l % 2;
        let table = &self.layers[which];
        let remote = Remote::new(self.post().clone(), self.book.clone(), LAYERS[which], dim);
        let own = Table::Written(table.clone());
        (table, Box::new(OwnedAndRemoteRows::new(self.book.clone(), own, Arc::new(remote))))
    }

    /// Resumes an epoch in its middle: `sums` are the totals of all ranks so far, and become this
    /// rank's.
    pub(crate) fn resume(&self, sums: &mut EpochTotals) {
        let counted = counters(sums).map(|counter| *counter);
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = counted;
        if self.rank() > 0 {
            counters(sums).into_iter().for_each(|counter| *counter = 0);
        }
        *self.resumed.lock().unwrap_or_else(PoisonError::into_inner) = *sums;
    }

    /// Replaces `sums` by the totals of all ranks; returns the counters of each rank since the
    /// resume, with its `more`.
    ///
    /// # Errors
    /// A rank did not take part.
    fn add_up(&self, sums: &mut EpochTotals, more: More) -> Result<Vec<(Counters, More)>> {
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = counters(sums).map(|counter| *counter);
        if self.rank() == 0 {
            own.iter_mut().zip(before).for_each(|(own, before)| *own -= before);
        }
        let gathered = self.gather(&to_words(own.into_iter().chain(more)))?;
        let mut all = Vec::with_capacity(gathered.len());
        let mut total = before;
        for words in &gathered {
            let numbers: Vec<u64> = of_words(words).collect();
            let (Some(&of_sums), Some(&others)) = (numbers.first_chunk(), numbers.last_chunk()) else {
                continue;
            };
            let of_sums: Counters = of_sums;
            total.iter_mut().zip(of_sums).for_each(|(total, own)| *total += own);
            all.push((of_sums, others));
        }
        counters(sums).into_iter().zip(total).for_each(|(counter, total)| *counter = total);
        Ok(all)
    }

    /// Replaces `sums` by the totals of all ranks, for a checkpoint in the middle of an epoch.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn total(&self, sums: &mut EpochTotals) -> Result<()> {
        self.add_up(sums, More::default()).map(drop)
    }

    /// Sum of the work of all ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn sum_work(&self, own: Work) -> Result<Work> {
        let gathered = self.gather(&to_words([own.rows, own.edges, own.pairs]))?;
        let of = |words: &Vec<u32>| {
            let mut numbers = of_words(words);
            let [rows, edges, pairs] = [(); 3].map(|()| numbers.next().unwrap_or(0));
            Work { rows, edges, pairs }
        };
        Ok(gathered.iter().map(of).sum())
    }

    /// Returns the record of each rank for the epoch, whose totals on this rank are `sums`, and
    /// replaces `sums` by the totals of all ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn end_epoch(&self, sums: &mut EpochTotals, links: LinkTraffic) -> Result<Vec<RankRecord>> {
        let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let resumed = std::mem::take(&mut *self.resumed.lock().unwrap_or_else(PoisonError::into_inner));
        let mut more = More::default();
        more[0] = self.seeds.swap(0, Relaxed);
        more[1..4].copy_from_slice(&counts.bytes);
        let seconds = counts.stages(sums, &resumed, links).seconds();
        more[4..].copy_from_slice(&seconds.map(f64::to_bits));
        let all = self.add_up(sums, more)?;
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Counters::default();
        let record = |(rank, (of_sums, more)): (usize, (Counters, More))| {
            let [sampled_edges, _, device, _, peer, _, host, _, disk_rows, _, remote_rows, ..] = of_sums;
            let device_rows = device + peer;
            let [seeds, sample_bytes, feature_bytes, sum_bytes, stages @ ..] = more;
            RankRecord {
                rank,
                seeds,
                sampled_edges,
                near_rows: device_rows + host + disk_rows,
                device_rows,
                disk_rows,
                remote_rows,
                sample_bytes,
                feature_bytes,
                sum_bytes,
                stages: stages.map(f64::from_bits).into(),
            }
        };
        Ok(all.into_iter().enumerate().map(record).collect())
    }

    /// Counter of the nanoseconds that the sampling services spend on writing replies.
    pub(crate) fn building(&self) -> &Arc<AtomicU64> {
        &self.building
    }

    /// Counts of the messenger so far.
    fn counted(&self) -> Counts {
        let post = self.post();
        let samples = [SAMPLE, LISTS, FETCH, STEP, SUBGRAPH, TIME_DRAWS, TIME_LAST];
        let rows = [ROWS, EDGE_ROWS];
        let bytes = |services: &[u32]| services.iter().map(|&service| post.sent(service).bytes).sum::<u64>();
        let nanos = |services: &[u32], side: usize| {
            services.iter().map(|&service| post.spent(service)[side].as_nanos() as u64).sum::<u64>()
        };
        Counts {
            // learned rows count with their gradients, which are in mailboxes
            bytes: [bytes(&samples), bytes(&rows), bytes(&[0, LEARNED])],
            served: [nanos(&samples, 0), self.building.load(Relaxed)],
            waited: [nanos(&samples, 1), nanos(&rows, 1)],
        }
    }

    /// Begins (with `begin`) or ends the count of the bytes that an epoch's batches send, on all
    /// ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn count_bytes(&self, begin: bool) -> Result<()> {
        if begin {
            // all earlier requests are answered
            self.meet()?;
        }
        let now = self.counted();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts = if begin { now } else { now.since(&counts) };
        drop(counts);
        self.meet()
    }
}
