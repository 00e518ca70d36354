//! Bottom-layer rows of hot nodes are computed once for the batches of a super-batch, with bounded
//! staleness (NeutronOrch).
//!
//! ```text
//!   --hot-ahead off:   all     draw s0 | rows s0 | train on s0: b0 b1 b2 b3 | draw s1 | rows s1 | train on s1: ..   staleness < n
//!
//!   --hot-ahead on:    aside   draw s1, rows s1: v0 v1 v2 v3 | draw s2, rows s2: v4 v5 v6 v7 | ..
//!                      front   train on s0:      b0 b1 b2 b3 | train on s1:      b4 b5 b6 b7 | ..                   staleness < 2 n
//! ```
//!
//! A super-batch is `n` batches. They are drawn ahead but for their bottom blocks, so that how many
//! of them ask for a node's row is known and not guessed; the hot ones are left out when the bottom
//! blocks are drawn. Another strategy trains on the batches, and does not know: it draws through
//! [`Ahead`](crate::reuse::Ahead), and the learner reads the rows that lie there.
//!
//! Ahead, rows are made while the super-batch before is trained on (section 4.2.2): slice `i` of
//! the queue from the parameters that stand after its `i`-th update, whoever is faster, so that the
//! numbers of a run do not depend on it. The coldest rows are made first and the hottest last: what
//! is read most is newest.

mod aside;
mod options;

use std::{ops::Range, sync::Arc, time::Instant};

use graphmill_loader::feature::Link;
use rayon::ThreadPool;

use super::{
    UpdateOptions, factored,
    interface::{Done, Epoch, Flow, Setting, Strategy},
    round,
    sequential::Sequential,
};
use crate::{
    Error, Result,
    config::{Devices, Switch},
    learner::Learner,
    record::{DeviceRecord, ReuseRecord},
    reuse::{History, Reuse, Span},
    stage::Loader,
};
use aside::{Aside, Counts, Super, SuperBatchContext};
pub use options::{HotGradient, LayeredOptions};
pub(crate) use options::{settle, unused};

/// The part of a super-batch's time that devices may wait before fewer rows are made for them.
const IDLE: f64 = 0.02;
/// By how much more rows are made where they do not wait.
const MORE: f64 = 1.1;

/// Reuses bottom-layer rows of hot nodes within super-batches, around another strategy.
pub struct Layered<'a> {
    with: Setting<'a>,
    options: LayeredOptions,
    inner: Box<dyn Strategy + 'a>,
    aside: Option<Aside>,
    /// Of the epoch in hand.
    sums: SuperBatchTotals,
    note: Option<String>,
    /// Batches of a super-batch.
    length: u64,
}

/// What the super-batches of an epoch come to.
#[derive(Default)]
struct SuperBatchTotals {
    supers: u64,
    batches: u64,
    counts: Counts,
    /// Seconds that training has waited for rows, in all and for the last super-batch.
    waited: f64,
    waited_last: f64,
}

impl SuperBatchTotals {
    /// Adds a super-batch that is done.
    fn add(&mut self, done: &Super, batches: u64) {
        self.supers += 1;
        self.batches += batches;
        self.counts += done.counts;
    }

    /// Adds what the one after it was waited for.
    fn wait(&mut self, seconds: f64) {
        self.waited += seconds;
        self.waited_last = seconds;
    }
}

impl<'a> Layered<'a> {
    /// With nothing computed yet.
    ///
    /// # Errors
    /// Options that this strategy cannot work with.
    pub fn new(with: Setting<'a>) -> Result<Self> {
        let config = with.config;
        if with.sampler.properties().subgraphs.is_some() {
            return Err(Error::usage(format!(
                "--strategy layered: --sampler {} draws subgraphs, whose layers all read the same nodes; use one that draws hop by \
                 hop, such as neighbor",
                config.sampler
            )));
        }
        if with.sampler.properties().num_layers < 2 {
            return Err(Error::usage(
                "--strategy layered: a model of one layer has none above the bottom one to reuse its rows; use --layers 2 or more",
            ));
        }
        let inner: Box<dyn Strategy + 'a> = if config.num_devices() > 0 {
            if config.own.get::<UpdateOptions>().is_asynchronous() {
                return Err(Error::usage(
                    "--updates asynchronous: layered counts the age of its rows in updates, one after the other; use --updates \
                     synchronous",
                ));
            }
            Box::new(factored::Factored::new(with, factored::Design::TimeSharing))
        } else {
            Box::new(Sequential::new(with.data.num_nodes()))
        };
        let options = config.own.get();
        Ok(Self {
            with,
            options,
            inner,
            aside: None,
            sums: SuperBatchTotals::default(),
            note: None,
            length: 0,
        })
    }

    /// Whether rows are made while others are trained on.
    fn is_ahead(&self) -> bool {
        self.options.hot_ahead == Switch::On
    }

    /// Batches of an update.
    fn round(&self) -> u64 {
        if *self.with.config.devices == Devices::Cpu { 1 } else { round(self.with.config) }
    }

    /// Updates of so many batches.
    fn updates(&self, batches: u64) -> u64 {
        batches.div_ceil(self.round())
    }

    /// Updates that a row of a super-batch of so many batches, after one of so many, may be old.
    fn bound(&self, before: u64, batches: u64) -> u64 {
        let before = if self.is_ahead() { self.updates(before) } else { 0 };
        (before + self.updates(batches)).saturating_sub(1)
    }

    /// Whether rows can be reused at all: not by a batch alone, where the processor does all the
    /// work.
    fn reuses(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.most() > 0)
            && (self.length > 1 || *self.with.config.devices != Devices::Cpu)
    }

    /// The versions of the parameters that the rows of a super-batch are made from, while one of so
    /// many batches is trained on that began after `start` updates.
    fn versions(&self, start: u64, batches: u64) -> Vec<u64> {
        (start..start + self.updates(batches)).collect()
    }

    /// How long a super-batch may be, where an update has changed no weight by more than this.
    fn length_at(&self, change: f32) -> u64 {
        let most = self.options.max_variation;
        if most == 0.0 || change == 0.0 {
            return self.length;
        }
        let updates = (most / (2.0 * f64::from(change))) as u64;
        updates.saturating_mul(self.round()).clamp(self.round(), self.length)
    }

    /// Fewer rows where training waits for them, more where it does not: the others are left to the
    /// devices' caches of features (section 4.1.3).
    fn adapt(&mut self, seconds: f64) {
        let Some(aside) = &mut self.aside else { return };
        if self.options.hot_split.0.is_none() && seconds > 0.0 {
            let idle = self.sums.waited_last / seconds;
            let by = if idle > IDLE { (1.0 - idle).max(0.5) } else { MORE };
            aside.split = (aside.split * by).clamp(0.01, 1.0);
        }
    }

    /// The super-batch that holds batch `epoch.from`, and after how many updates it begins or has
    /// begun: a new one, or after a resume the one that was in hand, which has begun already.
    fn first(&mut self, epoch: &Epoch, history: &History) -> Result<Option<(Super, u64, bool)>> {
        let (from, to, step) = (epoch.from, epoch.to, epoch.learner.step);
        let place = history.place();
        let next = from..(from + place.length).min(to);
        let length = |batches: &Range<u64>| batches.end - batches.start;
        let (batches, start, made, begun) = match place.span.filter(|span| span.epoch == epoch.number) {
            Some(Span { batches, start, made, .. }) if batches.contains(&from) => {
                (batches, start, made, true)
            }
            Some(Span { batches, start, .. }) if batches.end == from && self.is_ahead() => {
                (next, step, self.versions(start, length(&batches)), false)
            }
            _ => (next, step, vec![step], false),
        };
        let bound = self.bound(self.length, length(&batches));
        let links = self.inner.links();
        let Some(aside) = &mut self.aside else { return Ok(None) };
        let job = SuperBatchContext::of(epoch, history, bound);
        let made = aside.make(job, &epoch.learner.passes, batches, &made, &|bytes| deliver(&links, bytes))?;
        Ok(made.map(|made| (made, start, begun)))
    }

    /// Super-batch after super-batch.
    fn run_supers(&mut self, epoch: &mut Epoch) -> Result<Flow> {
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
                let next_length = self.length_at(history.place().change);
                history.begin(Span { start, ..now.span.clone() }, next_length);
            }
            let next = end..(end + history.place().length).min(to);
            let bound = self.bound(length, next.end - next.start);
            let made = if self.is_ahead() && end < to { self.versions(start, length) } else { Vec::new() };
            let updates = self.updates(length);
            let Some(aside) = &mut self.aside else { return Ok(Flow::Stop) };
            let links = self.inner.links();
            let deliver = |bytes| deliver(&links, bytes);

            let clock = Instant::now();
            let (ahead, rows) = (now.ahead.clone(), now.rows.clone());
            epoch.learner.passes.reuse = Some(Reuse { ahead, rows });
            let reading = Loader { ahead: Some(now.ahead.clone()), ..epoch.loader.clone() };
            let job = SuperBatchContext::of(epoch, &history, bound);
            let passes = epoch.learner.passes.apart();
            let mut train = || train(&mut *self.inner, epoch, &reading, end, &history, updates);
            let (flow, early, waited) = if made.is_empty() {
                (train(), Ok(None), 0.0)
            } else {
                let pool = aside.pool.clone();
                let make = || aside.make(job, &passes, next.clone(), &made, &deliver);
                side_by_side(&history, pool.as_deref(), train, make)
            };
            epoch.learner.passes.reuse = None;
            drop(reading);
            self.sums.add(&now, length);
            self.sums.wait(waited);
            if flow? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            if end >= to {
                break;
            }
            aside.recycle(now);
            let mut made = early?;
            if made.is_none() {
                made = aside.make(job, &passes, next, &[epoch.learner.step], &deliver)?;
            }
            let Some(made) = made else { return Ok(Flow::Stop) };
            (now, start) = (made, epoch.learner.step);
            self.adapt(clock.elapsed().as_secs_f64());
        }
        Ok(Flow::Continue)
    }
}

/// Trains on this thread while another makes the next super-batch on those of `pool`. Returns what
/// both came to, and for how many seconds this one waited for the other.
fn side_by_side(
    history: &History,
    pool: Option<&ThreadPool>,
    train: impl FnOnce() -> Result<Flow>,
    make: impl FnOnce() -> Result<Option<Super>> + Send,
) -> (Result<Flow>, Result<Option<Super>>, f64) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || match pool {
            Some(pool) => pool.install(make),
            None => make(),
        });
        let flow = {
            // whatever becomes of training, nobody waits for updates that will not be
            let _closing = Closing(history);
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
    let told = &mut *epoch.after;
    let mut after = |learner: &Learner<'a>, done: &[Done]| {
        history.publish(learner.step, &learner.model, updates);
        told(learner, done)
    };
    epoch.from = to;
    let learner = &mut *epoch.learner;
    inner.run(Epoch { number, order, from, to, loader, learner, lr, after: &mut after, timeline })
}

/// Rows go to every device.
fn deliver(links: &[Arc<Link>], bytes: u64) {
    links.iter().for_each(|link| link.transfer(bytes, Instant::now()));
}

/// Nothing more is published when this is dropped.
struct Closing<'h>(&'h History);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Strategy for Layered<'_> {
    fn prepare(&mut self, loader: &Loader, learner: &Learner) -> Result<()> {
        let config = self.with.config;
        let place = learner.history.place();
        if place.length > 0 && place.round != self.round() {
            return Err(Error::usage(format!(
                "--devices {}: updates would be of {} batches, and those of this run are of {}; rows would be of other ages, so go on with as \
                 many devices as before",
                config.devices,
                self.round(),
                place.round
            )));
        }
        let mut aside = Aside::new(&self.with, loader, learner)?;
        let length =
            if self.options.super_batch > 0 { self.options.super_batch as u64 } else { aside.length(loader) };
        self.length = length.max(1).next_multiple_of(self.round());
        if place.length == 0 {
            learner.history.settle(self.length, self.round(), aside.most());
        }
        // those of the next super-batch are made while those of this one are read
        let rows = aside.most() as u64 * if self.is_ahead() { 2 } else { 1 };
        let bytes = rows.saturating_mul(aside.row_bytes());
        self.aside = Some(aside);
        if self.reuses() {
            self.inner.reserve("rows to be reused", bytes);
            let (n, bound) = (self.length, self.bound(self.length, self.length));
            self.note = Some(format!(
                "super-batches of {n} batches reuse bottom-layer rows that are {bound} updates old at most"
            ));
        } else {
            self.note = Some("nothing is reused: every batch computes all its rows".into());
        }
        self.inner.prepare(loader, learner)
    }

    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        self.sums = SuperBatchTotals::default();
        if self.aside.is_none() {
            self.prepare(epoch.loader, epoch.learner)?;
        }
        if !self.reuses() || epoch.from >= epoch.to {
            return self.inner.run(epoch);
        }
        let flow = self.run_supers(&mut epoch);
        epoch.learner.passes.reuse = None;
        flow
    }

    fn reuse(&mut self) -> Option<ReuseRecord> {
        let split = self.aside.as_ref()?.split;
        let SuperBatchTotals { supers, batches, counts, waited, .. } = std::mem::take(&mut self.sums);
        let each = |sum: u64| sum as f64 / supers.max(1) as f64;
        Some(ReuseRecord {
            super_batch: batches as f64 / supers.max(1) as f64,
            hot_nodes: each(counts.made),
            asked_rows: counts.asked,
            reused_rows: counts.reused,
            made_rows: counts.made,
            made_edges: counts.edges,
            waited_seconds: waited,
            split,
            variation: 0.0,
        })
        .filter(|_| supers > 0)
    }

    fn staleness_bound(&self) -> u64 {
        if self.reuses() { self.bound(self.length, self.length) } else { 0 }
    }

    fn devices(&mut self) -> Vec<DeviceRecord> {
        self.inner.devices()
    }

    fn note(&mut self) -> Option<String> {
        self.note.take().or_else(|| self.inner.note())
    }
}
