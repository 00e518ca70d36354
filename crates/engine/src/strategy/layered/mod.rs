//! Bottom-layer rows of hot nodes, computed once for all batches of a super-batch, with bounded
//! staleness.
//!
//! # Algorithm
//!
//! ```text
//!   --hot-prefetch off:   all     draw s0 | rows s0 | train on s0: b0 b1 b2 b3 | draw s1 | rows s1 | train on s1: ..   staleness < n
//!
//!   --hot-prefetch on:    aside   draw s1, rows s1: v0 v1 v2 v3 | draw s2, rows s2: v4 v5 v6 v7 | ..
//!                      front   train on s0:      b0 b1 b2 b3 | train on s1:      b4 b5 b6 b7 | ..                   staleness < 2 n
//! ```
//!
//! A super-batch has `n` batches. They are drawn ahead without their bottom blocks, so the number
//! of batches that request a node's row is counted, not estimated. The hot nodes are left out when
//! the bottom blocks are drawn. An inner strategy trains on the batches without special cases: it
//! draws through [`Lookahead`](crate::reuse::Lookahead), and the learner reads the reused rows.
//!
//! With `--hot-prefetch on`, rows are made while the model trains on the previous super-batch
//! (section 4.2.2). Slice `i` of the queue uses the parameters after the `i`-th update of that
//! super-batch, so the results do not depend on timing. The coldest rows are made first and the
//! hottest last: the rows that are read most are the newest.
//!
//! # Source
//!
//! Ai et al., *NeutronOrch: Rethinking Sample-based GNN Training under CPU-GPU Heterogeneous
//! Environments*, VLDB 2024, section 4.
//!
//! # Cost
//!
//! One bottom-layer row per hot node and super-batch, instead of one per batch that requests it.
//!
//! # Memory
//!
//! The hot rows of a super-batch, twice with `--hot-prefetch on`, on every device; the upper blocks
//! of a super-batch; the bottom layer's parameters of the versions in use.
//!
//! # Deviations
//!
//! Requests are counted instead of estimated. Reused rows follow the parameters in the directions
//! of `--hot-rank` ([`crate::reuse::basis`]).

mod options;
mod super_batch;

use std::{ops::Range, sync::Arc, time::Instant};

use graphmill_loader::feature::Link;
use rayon::ThreadPool;

use super::{
    chosen::Chosen,
    interface::{CompletedBatch, Epoch, Flow, Strategy, StrategyContext},
};
use crate::{
    Error, Result,
    config::{Devices, Switch},
    learner::Learner,
    record::{DeviceRecord, ReuseRecord},
    reuse::{History, Reuse, SuperBatchSpan},
    stage::Loader,
};
pub use options::{HotGradient, LayeredOptions};
pub(crate) use options::{settle, unused};
use super_batch::{RowCounts, SuperBatch, SuperBatchContext, SuperBatchMaker};

/// Share of a super-batch's time that devices may wait before the number of hot rows is reduced.
const MAX_IDLE: f64 = 0.02;
/// Growth of the number of hot rows if devices do not wait.
const GROWTH: f64 = 1.1;

/// Reuses bottom-layer rows of hot nodes within super-batches, around another strategy.
pub struct Layered<'a> {
    context: StrategyContext<'a>,
    options: LayeredOptions,
    inner: Box<dyn Strategy + 'a>,
    maker: Option<SuperBatchMaker>,
    /// Totals of the current epoch.
    totals: SuperBatchTotals,
    note: Option<String>,
    /// Batches per super-batch.
    length: u64,
}

/// Totals of the super-batches of an epoch.
#[derive(Default)]
struct SuperBatchTotals {
    super_batches: u64,
    batches: u64,
    counts: RowCounts,
    /// Seconds that training has waited for rows, in total and for the last super-batch.
    waited: f64,
    waited_last: f64,
}

impl SuperBatchTotals {
    /// Adds a completed super-batch.
    fn add(&mut self, done: &SuperBatch, batches: u64) {
        self.super_batches += 1;
        self.batches += batches;
        self.counts += done.counts;
    }

    /// Adds the seconds that training has waited for the next super-batch.
    fn add_wait(&mut self, seconds: f64) {
        self.waited += seconds;
        self.waited_last = seconds;
    }
}

impl<'a> Layered<'a> {
    /// Reuse around the strategy `inner`.
    pub fn new(context: StrategyContext<'a>, inner: Box<dyn Strategy + 'a>) -> Self {
        Self {
            context,
            options: context.config.own.get(),
            inner,
            maker: None,
            totals: SuperBatchTotals::default(),
            note: None,
            length: 0,
        }
    }

    /// Returns true if rows are made while the model trains on the previous super-batch.
    fn is_ahead(&self) -> bool {
        self.options.hot_prefetch == Switch::On
    }

    /// Batches per update.
    fn round(&self) -> u64 {
        let config = self.context.config;
        Chosen::of(config).map_or(1, |chosen| chosen.batches_per_update(config))
    }

    /// Number of updates by `batches` batches.
    fn updates(&self, batches: u64) -> u64 {
        batches.div_ceil(self.round())
    }

    /// Largest age, in updates, of a row of a super-batch of `batches` batches after one of
    /// `before`.
    fn bound(&self, before: u64, batches: u64) -> u64 {
        let before = if self.is_ahead() { self.updates(before) } else { 0 };
        (before + self.updates(batches)).saturating_sub(1)
    }

    /// Returns true if rows can be reused. On the processor, a super-batch of one batch reuses
    /// none.
    fn reuses(&self) -> bool {
        self.maker.as_ref().is_some_and(|maker| maker.plan.max_hot > 0)
            && (self.length > 1 || *self.context.config.devices != Devices::Cpu)
    }

    /// Parameter version of each slice of rows that is made during a super-batch of `batches`
    /// batches, which began after `start` updates.
    fn versions(&self, start: u64, batches: u64) -> Vec<u64> {
        (start..start + self.updates(batches)).collect()
    }

    /// Largest length of a super-batch if the largest change of a weight by an update is `change`.
    fn length_at(&self, change: f32) -> u64 {
        let max = self.options.max_variation;
        if max == 0.0 || change == 0.0 {
            return self.length;
        }
        let updates = (max / (2.0 * f64::from(change))) as u64;
        updates.saturating_mul(self.round()).clamp(self.round(), self.length)
    }

    /// Reduces the number of hot rows if training waits for them, else increases it. The other
    /// nodes are left to the devices' feature caches (section 4.1.3).
    fn adapt(&mut self, seconds: f64) {
        let Some(maker) = &mut self.maker else { return };
        if self.options.hot_split.0.is_none() && seconds > 0.0 {
            let idle = self.totals.waited_last / seconds;
            let by = if idle > MAX_IDLE { (1.0 - idle).max(0.5) } else { GROWTH };
            maker.split = (maker.split * by).clamp(0.01, 1.0);
        }
    }

    /// Makes the super-batch of batch `epoch.from`: a new one, or after a resume the interrupted
    /// one. Also returns the number of updates before it, and whether it had begun.
    fn first(&mut self, epoch: &Epoch, history: &History) -> Result<Option<(SuperBatch, u64, bool)>> {
        let (from, to, step) = (epoch.from, epoch.to, epoch.learner.step);
        let position = history.position();
        let next = from..(from + position.length).min(to);
        let length = |batches: &Range<u64>| batches.end - batches.start;
        let (batches, start, made, begun) = match position.span.filter(|span| span.epoch == epoch.number) {
            Some(SuperBatchSpan { batches, start, made, .. }) if batches.contains(&from) => {
                (batches, start, made, true)
            }
            Some(SuperBatchSpan { batches, start, .. }) if batches.end == from && self.is_ahead() => {
                (next, step, self.versions(start, length(&batches)), false)
            }
            _ => (next, step, vec![step], false),
        };
        let bound = self.bound(self.length, length(&batches));
        let links = self.inner.links();
        let Some(maker) = &mut self.maker else { return Ok(None) };
        let context = SuperBatchContext::of(epoch, history, bound);
        let made =
            maker.make(context, &epoch.learner.passes, batches, &made, &|bytes| deliver(&links, bytes))?;
        Ok(made.map(|made| (made, start, begun)))
    }

    /// Runs the super-batches of the epoch, one after the other.
    fn run_super_batches(&mut self, epoch: &mut Epoch) -> Result<Flow> {
        let history = epoch.learner.history.clone();
        if epoch.from == 0 {
            history.begin_epoch();
        }
        history.publish(epoch.learner.step, &epoch.learner.model, 0);
        let Some((mut now, mut start, mut begun)) = self.first(epoch, &history)? else {
            return Ok(Flow::Stop);
        };
        loop {
            let (Range { end, .. }, to) = (now.span.batches.clone(), epoch.to);
            let length = end - now.span.batches.start;
            if !std::mem::take(&mut begun) {
                let next_length = self.length_at(history.position().change);
                history.begin(SuperBatchSpan { start, ..now.span.clone() }, next_length);
            }
            let next = end..(end + history.position().length).min(to);
            let bound = self.bound(length, next.end - next.start);
            let made = if self.is_ahead() && end < to { self.versions(start, length) } else { Vec::new() };
            let updates = self.updates(length);
            let Some(maker) = &mut self.maker else { return Ok(Flow::Stop) };
            let links = self.inner.links();
            let deliver = |bytes| deliver(&links, bytes);

            let clock = Instant::now();
            let (ahead, rows) = (now.ahead.clone(), now.rows.clone());
            epoch.learner.passes.reuse = Some(Reuse { ahead, rows });
            let reading = Loader { ahead: Some(now.ahead.clone()), ..epoch.loader.clone() };
            let context = SuperBatchContext::of(epoch, &history, bound);
            let passes = epoch.learner.passes.detached();
            let mut train = || train(&mut *self.inner, epoch, &reading, end, &history, updates);
            let (flow, early, waited) = if made.is_empty() {
                (train(), Ok(None), 0.0)
            } else {
                let pool = maker.pool.clone();
                let make = || maker.make(context, &passes, next.clone(), &made, &deliver);
                side_by_side(&history, pool.as_deref(), train, make)
            };
            epoch.learner.passes.reuse = None;
            drop(reading);
            self.totals.add(&now, length);
            self.totals.add_wait(waited);
            if flow? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            if end >= to {
                break;
            }
            maker.recycle(now);
            let mut made = early?;
            if made.is_none() {
                made = maker.make(context, &passes, next, &[epoch.learner.step], &deliver)?;
            }
            let Some(made) = made else { return Ok(Flow::Stop) };
            (now, start) = (made, epoch.learner.step);
            self.adapt(clock.elapsed().as_secs_f64());
        }
        Ok(Flow::Continue)
    }
}

/// Trains on this thread while another thread makes the next super-batch on the threads of `pool`.
/// Returns both results, and the seconds that this thread waited for the other.
fn side_by_side(
    history: &History,
    pool: Option<&ThreadPool>,
    train: impl FnOnce() -> Result<Flow>,
    make: impl FnOnce() -> Result<Option<SuperBatch>> + Send,
) -> (Result<Flow>, Result<Option<SuperBatch>>, f64) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || match pool {
            Some(pool) => pool.install(make),
            None => make(),
        });
        let flow = {
            // the other thread does not wait for updates that will not follow, even if training
            // fails
            let _closing = CloseOnDrop(history);
            train()
        };
        let clock = Instant::now();
        let made = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (flow, made, clock.elapsed().as_secs_f64())
    })
}

/// Trains on the batches before `to`, and publishes the model after every update.
fn train<'a>(
    inner: &mut dyn Strategy,
    epoch: &mut Epoch<'_, 'a>,
    loader: &Loader<'a>,
    to: u64,
    history: &History,
    updates: u64,
) -> Result<Flow> {
    let Epoch { number, order, from, timeline, lr, .. } = *epoch;
    let report = &mut *epoch.after;
    let mut after = |learner: &Learner<'a>, done: &[CompletedBatch]| {
        history.publish(learner.step, &learner.model, updates);
        report(learner, done)
    };
    epoch.from = to;
    let learner = &mut *epoch.learner;
    inner.run(Epoch { number, order, from, to, loader, learner, lr, after: &mut after, timeline })
}

/// Simulates the transfer of rows to every device.
fn deliver(links: &[Arc<Link>], bytes: u64) {
    links.iter().for_each(|link| link.transfer(bytes, Instant::now()));
}

/// Closes the history when dropped.
struct CloseOnDrop<'h>(&'h History);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Strategy for Layered<'_> {
    fn prepare(&mut self, loader: &Loader, learner: &Learner) -> Result<()> {
        let config = self.context.config;
        let position = learner.history.position();
        if position.length > 0 && position.round != self.round() {
            return Err(Error::usage(format!(
                "--devices {}: this gives updates of {} batches, and the run has updates of {} batches, so \
                 its rows would have other ages; resume with as many devices as before",
                config.devices,
                self.round(),
                position.round
            )));
        }
        let mut maker = SuperBatchMaker::new(&self.context, loader, learner, self.round())?;
        self.length = maker.plan.length;
        if position.length == 0 {
            if config.device_budget.0 > 0 {
                // devices reserve memory for the rows that there are, not for all that there may be
                maker.plan.max_hot = maker.plan.held_rows(loader);
            }
            learner.history.settle(self.length, self.round(), maker.plan.max_hot);
        }
        let plan = maker.plan.clone();
        self.maker = Some(maker);
        if self.reuses() {
            self.inner.expect_reuse(Arc::new(plan));
            let (n, bound) = (self.length, self.bound(self.length, self.length));
            self.note = Some(format!(
                "super-batches of {n} batches reuse bottom-layer rows that are at most {bound} updates old"
            ));
        } else {
            self.note = Some("no rows are reused: every batch computes all its rows".into());
        }
        self.inner.prepare(loader, learner)
    }

    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        self.totals = SuperBatchTotals::default();
        if self.maker.is_none() {
            self.prepare(epoch.loader, epoch.learner)?;
        }
        if !self.reuses() || epoch.from >= epoch.to {
            return self.inner.run(epoch);
        }
        let flow = self.run_super_batches(&mut epoch);
        epoch.learner.passes.reuse = None;
        flow
    }

    fn reuse(&mut self) -> Option<ReuseRecord> {
        let split = self.maker.as_ref()?.split;
        let SuperBatchTotals { super_batches, batches, counts, waited, .. } =
            std::mem::take(&mut self.totals);
        let each = |sum: u64| sum as f64 / super_batches.max(1) as f64;
        Some(ReuseRecord {
            super_batch: batches as f64 / super_batches.max(1) as f64,
            hot_nodes: each(counts.made),
            asked_rows: counts.requested,
            reused_rows: counts.reused,
            made_rows: counts.made,
            made_edges: counts.edges,
            waited_seconds: waited,
            split,
            variation: 0.0,
        })
        .filter(|_| super_batches > 0)
    }

    fn staleness_bound(&self) -> u64 {
        // a gradient may be late, and the rows that it was computed from were old then
        let of_rows = if self.reuses() { self.bound(self.length, self.length) } else { 0 };
        of_rows + self.inner.staleness_bound()
    }

    fn devices(&mut self) -> Vec<DeviceRecord> {
        self.inner.devices()
    }

    fn note(&mut self) -> Option<String> {
        self.note.take().or_else(|| self.inner.note())
    }
}
