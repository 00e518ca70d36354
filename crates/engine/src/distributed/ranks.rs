//! The ranks of a run, as one of them sees the others.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use graphmill_core::{Matrix, keyed};
use graphmill_distributed::{
    Collective, Messenger, NodeOwnership,
    rows::{ROWS, Remote, RowService, Table},
    sampler::{LISTS, SAMPLE},
};
use graphmill_loader::{Extracted, Feature};
use graphmill_nn::model::{Model, Part};
use serde::de::DeserializeOwned;

use super::gradients::Gradients;
use crate::{
    Error, Result, RunDir,
    checkpoint::{self, Checkpoint, Files},
    learner::{GradientExchange, StepContext},
    record::{EpochTotals, RankRecord},
};

/// The tables of rows between layers that inference reads, in turns, as services of these numbers.
pub(super) const LAYERS: [u32; 2] = [ROWS + 1, ROWS + 2];

/// What collective numbers begin with, so that no two uses share one.
pub(super) mod class {
    pub(in super::super) const OPTIONS: u64 = 4 << 56;
    pub(super) const SUMS: u64 = 1 << 56;
    pub(super) const STEPS: u64 = 2 << 56;
    pub(super) const MEETINGS: u64 = 3 << 56;
}

/// What ranks add up apart from each other.
type Counters = [u64; 6];

/// Edges, those of bottom blocks, rows and bytes from near, rows and bytes from other ranks.
fn counters(sums: &mut EpochTotals) -> [&mut u64; 6] {
    let EpochTotals { edges, bottom_edges, traffic, .. } = sums;
    let (host, remote) = (&mut traffic.host, &mut traffic.remote);
    [edges, bottom_edges, &mut host.rows, &mut host.bytes, &mut remote.rows, &mut remote.bytes]
}

/// Files as words.
pub(super) fn pack(files: &Files) -> Vec<u32> {
    let mut words = Vec::new();
    for (name, bytes) in files {
        for bytes in [name.as_bytes(), bytes] {
            let len = bytes.len() as u64;
            words.extend([len as u32, (len >> 32) as u32]);
            words.extend(bytes.chunks(4).map(|four| {
                let mut word = [0; 4];
                word[..four.len()].copy_from_slice(four);
                u32::from_le_bytes(word)
            }));
        }
    }
    words
}

/// The files that were packed.
pub(super) fn unpack(mut words: &[u32]) -> Option<Files> {
    let mut next = || {
        let (&[low, high], rest) = words.split_first_chunk()?;
        let len = usize::try_from(u64::from(high) << 32 | u64::from(low)).ok()?;
        let (these, rest) = rest.split_at_checked(len.div_ceil(4))?;
        words = rest;
        let mut bytes: Vec<u8> = these.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(len);
        Some((bytes, rest.is_empty()))
    };
    let mut files = Vec::new();
    loop {
        let (name, _) = next()?;
        let (bytes, is_last) = next()?;
        files.push((String::from_utf8(name).ok()?, bytes));
        if is_last {
            return Some(files);
        }
    }
}

/// The ranks of a run: who owns what, and what all of them do together. All ranks call the same
/// methods in the same order.
pub struct Ranks {
    all: Collective,
    book: Arc<NodeOwnership>,
    gradients: Mutex<Gradients>,
    steps: AtomicU64,
    meetings: AtomicU64,
    wants_stop: AtomicBool,
    stops: AtomicBool,
    /// Own seeds, and those of other ranks, are counted here; and bytes sent before the epoch in
    /// hand.
    seeds: AtomicU64,
    bytes: Mutex<[u64; 3]>,
    /// What all ranks had added up where the epoch was resumed in its middle.
    before: Mutex<Counters>,
    /// Own rows between layers.
    layers: [Arc<RwLock<Matrix>>; 2],
}

impl Ranks {
    /// # Errors
    /// The system refuses threads.
    pub(super) fn new(post: Arc<Messenger>, book: Arc<NodeOwnership>) -> Result<Self> {
        let all = Collective::new(post.clone());
        let layers: [Arc<RwLock<Matrix>>; 2] = Default::default();
        for (number, table) in LAYERS.iter().zip(&layers) {
            post.serve(*number, Arc::new(RowService::new(book.clone(), Table::Written(table.clone()))));
        }
        let gradients = Gradients::new(all.clone(), class::SUMS)?;
        Ok(Self {
            all,
            book,
            gradients: Mutex::new(gradients),
            steps: AtomicU64::new(class::STEPS),
            meetings: AtomicU64::new(class::MEETINGS),
            wants_stop: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            seeds: AtomicU64::new(0),
            bytes: Mutex::default(),
            before: Mutex::default(),
            layers,
        })
    }

    /// Which node is whose.
    pub fn book(&self) -> &Arc<NodeOwnership> {
        &self.book
    }

    /// Which rank this is.
    pub fn rank(&self) -> usize {
        self.book.rank()
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.book.size()
    }

    /// The post.
    pub(super) fn post(&self) -> &Arc<Messenger> {
        self.all.post()
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// A rank did not come.
    pub fn meet(&self) -> Result<()> {
        self.gather(&[]).map(drop)
    }

    /// What every rank says, in their order.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn gather(&self, said: &[u32]) -> Result<Vec<Vec<u32>>> {
        Ok(self.all.gather(self.meetings.fetch_add(1, Relaxed), said)?)
    }

    /// What rank 0 says.
    ///
    /// # Errors
    /// It did not take part.
    pub(crate) fn broadcast(&self, said: Vec<u32>) -> Result<Vec<u32>> {
        Ok(self.all.broadcast(self.meetings.fetch_add(1, Relaxed), said)?)
    }

    /// Rank 0's numbers.
    ///
    /// # Errors
    /// It did not take part.
    pub(crate) fn agree(&self, numbers: [f64; 2]) -> Result<[f64; 2]> {
        let words = numbers.iter().flat_map(|x| [x.to_bits() as u32, (x.to_bits() >> 32) as u32]).collect();
        let told = self.broadcast(words)?;
        let number = |i: usize| {
            let [low, high] = [2 * i, 2 * i + 1].map(|i| told.get(i).copied().unwrap_or(0));
            f64::from_bits(u64::from(high) << 32 | u64::from(low))
        };
        Ok([number(0), number(1)])
    }

    /// The checkpoint of rank 0's run directory `run`, on all ranks; none where there is none.
    ///
    /// # Errors
    /// It cannot be read, or a rank did not take part.
    pub(crate) fn checkpoint<S: DeserializeOwned>(
        &self,
        run: Option<&RunDir>,
    ) -> Result<Option<Checkpoint<S>>> {
        let dir = run.map(RunDir::checkpoint).unwrap_or_default();
        let files = if self.rank() == 0 { checkpoint::files(&dir)? } else { None };
        let told = self.broadcast(files.map(|files| pack(&files)).unwrap_or_default())?;
        if told.is_empty() {
            return Ok(None);
        }
        let files = unpack(&told).ok_or_else(|| Error::usage("rank 0 has sent a checkpoint that is none"))?;
        Checkpoint::of_files(&dir, &files).map(Some)
    }

    /// Says whether this rank was asked to stop, and returns whether all are to: what all agreed on
    /// with the last update.
    pub(crate) fn agree_to_stop(&self, wants: bool) -> bool {
        self.wants_stop.store(wants, Relaxed);
        self.stops.load(Relaxed)
    }

    /// The rows that inference makes own ones of layer `l` into, and a feature of all ranks' such
    /// rows, of `dim` values.
    pub(super) fn layer(&self, l: usize, dim: usize) -> (&Arc<RwLock<Matrix>>, Box<dyn Feature>) {
        use graphmill_distributed::rows::OwnedAndRemoteRows;
        let which = l % 2;
        let table = &self.layers[which];
        let remote = Remote::new(self.post().clone(), self.book.clone(), LAYERS[which], dim);
        let own = Table::Written(table.clone());
        (table, Box::new(OwnedAndRemoteRows::new(self.book.clone(), own, Arc::new(remote))))
    }

    /// Takes up an epoch in its middle: `sums` are those of all ranks up to there, and from here on
    /// this one's.
    pub(crate) fn resume(&self, sums: &mut EpochTotals) {
        let counted = counters(sums).map(|counter| *counter);
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = counted;
        if self.rank() > 0 {
            counters(sums).into_iter().for_each(|counter| *counter = 0);
        }
    }

    /// Makes `sums` those of all ranks; returns what each has added to them, itself and since it
    /// was resumed.
    ///
    /// # Errors
    /// A rank did not take part.
    fn add_up(&self, sums: &mut EpochTotals, more: [u64; 4]) -> Result<Vec<(Counters, [u64; 4])>> {
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = counters(sums).map(|counter| *counter);
        if self.rank() == 0 {
            own.iter_mut().zip(before).for_each(|(own, before)| *own -= before);
        }
        let said = own.iter().chain(&more).flat_map(|&n| [n as u32, (n >> 32) as u32]);
        let told = self.gather(&said.collect::<Vec<u32>>())?;
        let number = |two: &[u32]| u64::from(two[1]) << 32 | u64::from(two[0]);
        let mut all = Vec::with_capacity(told.len());
        let mut total = before;
        for words in &told {
            let numbers: Vec<u64> = words.chunks_exact(2).map(number).collect();
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

    /// Makes `sums` those of all ranks, where all stop in the middle of an epoch.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn stop(&self, sums: &mut EpochTotals) -> Result<()> {
        self.add_up(sums, [0; 4]).map(drop)
    }

    /// What each rank did in the epoch that adds up to `sums` on this one, and leaves in `sums`
    /// what all did.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn end_epoch(&self, sums: &mut EpochTotals) -> Result<Vec<RankRecord>> {
        let [sample, feature, sum] = *self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let seeds = self.seeds.swap(0, Relaxed);
        let all = self.add_up(sums, [seeds, sample, feature, sum])?;
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Counters::default();
        let record = |(rank, (of_sums, more)): (usize, (Counters, [u64; 4]))| {
            let [sampled_edges, _, near_rows, _, remote_rows, _] = of_sums;
            let [seeds, sample_bytes, feature_bytes, sum_bytes] = more;
            RankRecord {
                rank,
                seeds,
                sampled_edges,
                near_rows,
                remote_rows,
                sample_bytes,
                feature_bytes,
                sum_bytes,
            }
        };
        Ok(all.into_iter().enumerate().map(record).collect())
    }

    /// From here on, and up to here, bytes are those of an epoch's batches, on all ranks: `begin`
    /// and then not.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn count_bytes(&self, begin: bool) -> Result<()> {
        if begin {
            // what was asked before is answered
            self.meet()?;
        }
        let post = self.post();
        let now = [&[SAMPLE, LISTS][..], &[ROWS], &[0]]
            .map(|services| services.iter().map(|&service| post.sent(service).bytes).sum::<u64>());
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *bytes = if begin { now } else { [0, 1, 2].map(|i| now[i] - bytes[i]) };
        drop(bytes);
        self.meet()
    }
}

impl GradientExchange for Ranks {
    fn gradient(
        &self,
        passes: &mut StepContext,
        model: &mut Model,
        batch: &Extracted,
        number: u64,
    ) -> Result<(f64, usize)> {
        let (own, seeds) = (batch.sampled.num_seeds(), &batch.sampled.seeds);
        let share = match seeds.global_size {
            Some(all) => seeds.nodes.len() as f64 / all as f64,
            None => 1.0 / self.size() as f64,
        };
        let mut gradients = self.gradients.lock().unwrap_or_else(PoisonError::into_inner);
        let told = Cell::new(false);
        let mut after = |model: &mut Model, part: Part| {
            told.set(true);
            gradients.begin(model, part, share as f32);
        };
        let key = keyed::key(&[passes.seed, number, self.rank() as u64, 0x6472_6f70]);
        let loss =
            if seeds.nodes.is_empty() { 0.0 } else { passes.gradient_by_part(model, batch, key, &mut after) };
        if !told.get() {
            // nothing to learn from here, or nothing that can be learned from: the others wait for
            // as many sums
            model.zero_grad(passes.backend);
            after(model, Part::Head);
            (0..model.num_layers()).rev().for_each(|l| after(model, Part::Layer(l)));
            after(model, Part::Input);
        }
        let said = (loss * share).to_bits();
        let stop = self.wants_stop.load(Relaxed);
        let said = [said as u32, (said >> 32) as u32, own as u32, u32::from(stop)];
        let told = self.all.gather(self.steps.fetch_add(1, Relaxed), &said)?;
        let (mut sum, mut seeds, mut stops) = (0.0, 0, false);
        for words in &told {
            if let [low, high, own, stop] = words[..] {
                sum += f64::from_bits(u64::from(high) << 32 | u64::from(low));
                seeds += own as usize;
                stops |= stop == 1;
            }
        }
        self.stops.store(stops, Relaxed);
        self.seeds.fetch_add(own as u64, Relaxed);
        gradients.finish(model)?;
        Ok((sum, seeds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_out_as_they_went_in() {
        let file =
            |name: &str, len: usize| (name.to_string(), (0..len).map(|i| i as u8).collect::<Vec<u8>>());
        for files in [vec![file("a", 0)], vec![file("state.json", 7), file("b", 4096), file("", 3)]] {
            let words = pack(&files);
            assert_eq!(unpack(&words), Some(files));
            assert_eq!(unpack(&words[..words.len() - 1]), None);
        }
    }
}
