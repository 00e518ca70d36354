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
mod planned;
mod split;
mod super_batch;
#[cfg(test)]
mod tests;
mod train;

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Instant};

use graphmill_loader::feature::Link;

use super::{
    batches_per_update,
    interface::{Epoch, Flow, Strategy, StrategyContext},
    worker::attempt,
};
use crate::{
    Error, Result,
    config::{Devices, Switch},
    learner::Learner,
    record::{DeviceRecord, ReuseRecord},
    reuse::{self, History, ReuseTotals, ReuseWork, SuperBatchSpan},
    stage::Loader,
    timeline::Stage,
};
pub use options::{HotGradient, HotSplit, LayeredOptions};
pub(crate) use options::{REQUESTS, derive_options, refuses_to_decide, unused};
pub use planned::reuse_plan;
pub(crate) use planned::reuse_plan_of;
use super_batch::{SuperBatch, SuperBatchContext, SuperBatchMaker};
use train::{Current, deliver, side_by_side};

/// Share of a super-batch's time that devices may wait before the number of hot rows is reduced.
const MAX_IDLE: f64 = 0.02;
/// Growth of the number of hot rows if devices do not wait.
const GROWTH: f64 = 1.1;
/// Relative change of the number of hot rows above which an epoch begins with another division of
/// the devices' memory.
const REBALANCE: f64 = 0.1;

/// Reuses bottom-layer rows of hot nodes within super-batches, around another strategy.
pub struct Layered<'a> {
    context: StrategyContext<'a>,
    options: LayeredOptions,
    inner: Box<dyn Strategy + 'a>,
    maker: Option<SuperBatchMaker>,
    /// Position of the run, with the totals of the current epoch.
    history: Arc<History>,
    /// Seconds that training waited for the last super-batch.
    waited: f64,
    notes: VecDeque<String>,
    /// True if the run reuses rows only if counts say that it pays.
    decides: bool,
    /// True if they said that it does not.
    is_declined: bool,
    /// Batches per super-batch.
    length: u64,
}

impl<'a> Layered<'a> {
    /// Reuse around the strategy `inner`.
    pub fn new(context: StrategyContext<'a>, inner: Box<dyn Strategy + 'a>) -> Self {
        Self {
            context,
            options: context.config.own.get(),
            inner,
            maker: None,
            history: Arc::default(),
            waited: 0.0,
            notes: VecDeque::new(),
            decides: false,
            is_declined: false,
            length: 0,
        }
    }

    /// Reuse around the strategy `inner` if counts of the first super-batch say that it pays; else
    /// the strategy as it is.
    pub fn if_it_pays(context: StrategyContext<'a>, inner: Box<dyn Strategy + 'a>) -> Self {
        Self { decides: true, ..Self::new(context, inner) }
    }

    /// Returns true if rows are made while the model trains on the previous super-batch.
    fn is_ahead(&self) -> bool {
        self.options.hot_prefetch == Switch::On
    }

    /// Batches per update.
    fn round(&self) -> u64 {
        batches_per_update(self.context.config)
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

    /// Reduces the number of hot rows if training waits for them, else increases it. The other
    /// nodes are left to the devices' feature caches (section 4.1.3). Ranks follow the one that
    /// waits for the largest share of its time, so that all have the same hot nodes.
    ///
    /// # Errors
    /// A rank did not take part.
    fn adapt(&mut self, seconds: f64) -> Result<()> {
        let Some(maker) = &mut self.maker else { return Ok(()) };
        if self.options.hot_split != HotSplit::Timed {
            return Ok(());
        }
        let own = if seconds > 0.0 { self.waited / seconds } else { 0.0 };
        let idle = match self.context.exchange {
            Some(exchange) => exchange.greatest(own)?,
            None => own,
        };
        let by = if idle > MAX_IDLE { (1.0 - idle).max(0.5) } else { GROWTH };
        maker.split = (maker.split * by).clamp(0.01, 1.0);
        Ok(())
    }

    /// Makes the super-batch of batch `epoch.from`: a new one, or after a resume the interrupted
    /// one. Also returns the number of updates before it, and whether it had begun.
    fn first(&mut self, epoch: &Epoch, history: &History) -> Result<Option<(SuperBatch, u64, bool)>> {
        let (from, to, step) = (epoch.from, epoch.to, epoch.learner.step);
        let position = history.position();
        let next = from..(from + position.length).min(to);
        let length = |batches: &Range<u64>| batches.end - batches.start;
        let span = position.span.filter(|span| span.epoch == epoch.number);
        let (batches, start, made, begun) = match span {
            // its rows were too old before the interruption
            Some(_) if position.cut == Some(from) => (next, step, vec![step], false),
            Some(SuperBatchSpan { batches, start, made, .. }) if batches.contains(&from) => {
                (batches, start, made, true)
            }
            Some(SuperBatchSpan { batches, start, .. }) if batches.end == from && self.is_ahead() => {
                (next, step, self.versions(start, length(&batches)), false)
            }
            _ => (next, step, vec![step], false),
        };
        let bound = self.bound(self.length, length(&batches));
        let links = self.links();
        let Some(maker) = &mut self.maker else { return Ok(None) };
        let context = SuperBatchContext::of(epoch, history, bound, self.context.exchange);
        let made =
            maker.make(context, &epoch.learner.context, batches, &made, &|bytes| deliver(&links, bytes))?;
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
            let (clock, to) = (Instant::now(), epoch.to);
            if !std::mem::take(&mut begun) {
                let Some(fresh) = self.refresh(now, epoch, &history)? else { return Ok(Flow::Stop) };
                now = fresh;
                let (length, change) = (self.length, history.position().change);
                let next_length =
                    reuse::length_at((length, self.round()), self.options.max_variation, change);
                history.begin(SuperBatchSpan { start, ..now.span.clone() }, next_length);
            }
            let length = now.span.batches.end - now.span.batches.start;
            let next = |end: u64| end..(end + history.position().length).min(to);
            let after = next(now.span.batches.end);
            let bound = self.bound(length, after.end - after.start);
            let made =
                if self.is_ahead() && !after.is_empty() { self.versions(start, length) } else { Vec::new() };
            let links = self.links();
            let deliver = |bytes| deliver(&links, bytes);
            let current = self.current(&now, &history);
            let Some(maker) = &mut self.maker else { return Ok(Flow::Stop) };
            let context = SuperBatchContext::of(epoch, &history, bound, self.context.exchange);
            let steps = epoch.learner.context.detached();
            let inner = &mut *self.inner;
            let mut train = || current.train(inner, epoch);
            let (trained, early, waited) = if made.is_empty() {
                (train(), Ok(None), 0.0)
            } else {
                let pool = maker.pool.clone();
                let make = || maker.make(context, &steps, after.clone(), &made, &deliver);
                side_by_side(&history, pool.as_deref(), train, make)
            };
            self.waited = waited;
            history.add(ReuseTotals { waited, ..ReuseTotals::default() });
            let (flow, end) = trained?;
            if flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
            if end >= to {
                break;
            }
            maker.recycle(now);
            // rows that were made ahead for other batches are dropped
            let early = early?.filter(|early| early.span.batches.start == end);
            let made = match early {
                Some(made) => Some(made),
                None => maker.make(context, &steps, next(end), &[epoch.learner.step], &deliver)?,
            };
            let Some(made) = made else { return Ok(Flow::Stop) };
            (now, start) = (made, epoch.learner.step);
            self.adapt(clock.elapsed().as_secs_f64())?;
        }
        Ok(Flow::Continue)
    }

    /// Links to the devices that read the rows.
    fn links(&self) -> Vec<Arc<Link>> {
        let links = self.inner.links();
        if links.is_empty() { self.context.links.to_vec() } else { links }
    }

    /// A super-batch of this run in training.
    fn current<'s>(&self, batch: &'s SuperBatch, history: &'s History) -> Current<'s> {
        let updates = self.updates(batch.span.batches.end - batch.span.batches.start);
        Current { batch, history, updates, max_variation: self.options.max_variation }
    }

    /// Makes the rows of a super-batch again, from the current parameters, if these have changed
    /// too much since the rows were made ahead.
    fn refresh(&mut self, made: SuperBatch, epoch: &Epoch, history: &History) -> Result<Option<SuperBatch>> {
        let step = epoch.learner.step;
        if made.span.made == [step] || !self.current(&made, history).has_drifted(step) {
            return Ok(Some(made));
        }
        let links = self.links();
        let (batches, bound) = (made.span.batches.clone(), made.rows.bound);
        let Some(maker) = &mut self.maker else { return Ok(None) };
        maker.recycle(made);
        let context = SuperBatchContext::of(epoch, history, bound, self.context.exchange);
        maker.make(context, &epoch.learner.context, batches, &[step], &|bytes| deliver(&links, bytes))
    }

    /// Work that reuse saves and adds on the processor; `None` if it is not known.
    ///
    /// # Errors
    /// A draw fails, and the run needs the counts; or a rank did not take part.
    fn count(&self, loader: &Loader, learner: &Learner) -> Result<Option<ReuseWork>> {
        let is_subgraph = loader.sampler.properties().subgraphs.is_some();
        let is_known = *self.context.config.devices == Devices::Cpu && !is_subgraph;
        let Some(maker) = self.maker.as_ref().filter(|_| is_known) else { return Ok(None) };
        let (plan, exchange) = (maker.reserved_plan(), self.context.exchange);
        let counted = attempt(Stage::Embed, 0, || reuse::count(&plan, loader, &learner.model, exchange));
        // without a decision, a failed draw is repeated, and reported, at its batch
        let own = if self.decides { Some(counted?) } else { counted.ok() };
        exchange.map_or(Ok(own), |exchange| exchange.sum_work(own))
    }

    /// Returns false if the run decides by counts, and these say that reuse does not pay. Notes
    /// what they say.
    fn pays(&mut self, work: Option<ReuseWork>) -> bool {
        let Some(work) = work else { return true };
        let pays = work.pays();
        if self.decides {
            let verdict = if pays { "on" } else { "off: every batch computes all its rows" };
            self.notes.push_back(format!("--reuse auto: {work}: {verdict}"));
        } else if !pays {
            self.notes.push_back(format!(
                "--reuse layered: {work}, so it does not pay; --reuse auto computes all rows then"
            ));
        }
        pays || !self.decides
    }

    /// Divides the memory of the devices between reused rows and cached features, and prepares the
    /// devices for it.
    fn assign_memory(&mut self, loader: &Loader, learner: &Learner) -> Result<()> {
        let Some(maker) = &self.maker else { return Ok(()) };
        self.inner.expect_reuse(Arc::new(maker.reserved_plan()));
        self.inner.prepare(loader, learner)
    }

    /// Returns true if the number of rows differs so much from the reserved one that memory should
    /// be divided again.
    fn is_unbalanced(&self) -> bool {
        let timed = self.options.hot_split == HotSplit::Timed && self.context.config.device_budget.0 > 0;
        self.maker.as_ref().is_some_and(|maker| {
            let (wanted, reserved) = (maker.next_plan().max_hot as f64, maker.reserved as f64);
            timed && (wanted - reserved).abs() > REBALANCE * reserved
        })
    }
}

impl Strategy for Layered<'_> {
    fn prepare(&mut self, loader: &Loader, learner: &Learner) -> Result<()> {
        if self.maker.is_some() || self.is_declined {
            // only the caches of the devices have changed
            return match self.reuses() {
                true => self.assign_memory(loader, learner),
                false => self.inner.prepare(loader, learner),
            };
        }
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
        let is_resumed = position.length > 0;
        let maker = planned::maker(&self.context, loader, learner)?;
        self.length = maker.plan.length;
        self.history = learner.history.clone();
        self.maker = Some(maker);
        if !self.reuses() {
            self.notes.push_back("no rows are reused: every batch computes all its rows".into());
            return self.inner.prepare(loader, learner);
        }
        if !is_resumed {
            learner.history.set_work(self.count(loader, learner)?);
        }
        if !self.pays(learner.history.position().work) {
            (self.maker, self.is_declined) = (None, true);
            return self.inner.prepare(loader, learner);
        }
        let (n, bound) = (self.length, self.bound(self.length, self.length));
        self.notes.push_back(format!(
            "super-batches of {n} batches reuse bottom-layer rows that are at most {bound} updates old"
        ));
        self.assign_memory(loader, learner)
    }

    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        if self.maker.is_none() && !self.is_declined {
            self.prepare(epoch.loader, epoch.learner)?;
        } else if epoch.from == 0 && self.is_unbalanced() {
            if let Some(maker) = &mut self.maker {
                maker.reserved = maker.next_plan().max_hot;
            }
            self.assign_memory(epoch.loader, epoch.learner)?;
        }
        if !self.reuses() || epoch.from >= epoch.to {
            return self.inner.run(epoch);
        }
        let flow = self.run_super_batches(&mut epoch);
        epoch.learner.context.reuse = None;
        flow
    }

    fn reuse(&mut self) -> Option<ReuseRecord> {
        let split = self.maker.as_ref()?.split;
        self.history.position().totals.record(split, 0.0)
    }

    fn staleness_bound(&self) -> u64 {
        // both are counted up to the update that uses them
        let of_rows = if self.reuses() { self.bound(self.length, self.length) } else { 0 };
        of_rows.max(self.inner.staleness_bound())
    }

    fn devices(&mut self) -> Vec<DeviceRecord> {
        self.inner.devices()
    }

    fn note(&mut self) -> Option<String> {
        self.notes.pop_front().or_else(|| self.inner.note())
    }
}
