//! Model of one machine in simulated time: for each strategy the memory of its devices, their
//! roles, and the duration of an epoch.

use graphmill_engine::{
    allocate::{Cost, samplers::num_samplers, solve},
    device::Device,
    strategy::{RoundOptions, TimeSharingOptions, Toggle, UpdateOptions},
    tiers::CacheBytes,
};

use graphmill_loader::feature::cached::Placement;

use crate::{
    hardware::Hardware,
    memory::{cache_ratio, gb, left},
    prediction::{Busy, Prediction, TypeRows},
    profile::Profile,
    request::Request,
    sim::{Batches, Epoch, Factored, Sharing, Trainer, Updates, factored, sharing},
};

/// Costs of the profile's minibatches on a machine.
#[derive(Clone, Copy)]
pub(crate) struct Costs<'a> {
    /// Machine of the plan.
    pub(crate) hardware: &'a Hardware,
    /// Seconds and bytes of a minibatch on the profiled machine.
    pub(crate) profile: &'a Profile,
    /// Speed of a device relative to the profile's executor.
    pub(crate) speed: f64,
    /// Options of the run.
    pub(crate) request: &'a Request,
    /// Spread of cached rows over the devices.
    pub(crate) placement: Placement,
}

impl Costs<'_> {
    /// Rejects a dataset that exceeds the host's memory, and rows on a disk of unknown speed.
    pub(crate) fn check_host(&self) -> Result<(), String> {
        if self.host_ratio() < 1.0 && self.hardware.host.disk.is_none() {
            return Err(format!(
                "--host-budget leaves {} of the features on a disk, whose speed is unknown; set host.disk in \
                 the file of the machine, or a larger budget",
                gb((1.0 - self.host_ratio()) * self.profile.bytes.features)
            ));
        }
        self.host_left().map(|_| ())
    }

    /// Host memory left by the dataset, in bytes.
    fn host_left(&self) -> Result<f64, String> {
        let bytes = &self.profile.bytes;
        let parts = [("features", self.host_ratio() * bytes.features), ("topology", bytes.topology)];
        left("the host", self.hardware.host.memory, &parts)
    }

    /// Share of the feature rows in the host's memory, by `--host-budget`.
    fn host_ratio(&self) -> f64 {
        let (bytes, budget) = (&self.profile.bytes, self.request.config.host_budget.0 as f64);
        if budget == 0.0 || bytes.features <= budget {
            return 1.0;
        }
        bytes.host_cache().rows_within(budget).unwrap_or(0.0).min(1.0)
    }

    /// Seconds of reading the rows from a disk that neither the devices nor the host cache, if
    /// devices cache the share `cached` together. The hottest rows are in both caches.
    fn disk(&self, cached: f64) -> f64 {
        let misses = 1.0 - self.profile.byte_rate(cached.max(self.host_ratio()));
        let disk = self.hardware.host.disk.as_ref().filter(|_| self.host_ratio() < 1.0);
        disk.map_or(0.0, |disk| disk.seconds(misses * self.profile.bytes.batch_rows))
    }

    /// Cores of the machine's host per core of the profile's.
    fn cores(&self) -> f64 {
        self.hardware.host.cores as f64 / self.profile.cores
    }

    /// Seconds of sampling on a device.
    fn sample(&self) -> f64 {
        self.profile.seconds.sample / self.speed
    }

    /// Seconds of sampling on the host, on all cores.
    fn sample_on_host(&self) -> f64 {
        let seconds = &self.profile.seconds;
        seconds.sample_host.unwrap_or(seconds.sample / self.cores())
    }

    /// Durations of a device with this cache and a copy of the model, one of `trainers`: those of
    /// [`Costs::trainer`], with the exchange of parameters, gradients and learned rows.
    fn replica(&self, ratio: f64, trainers: usize, updates: Updates) -> Trainer {
        let alone = self.trainer(ratio, trainers);
        let replica = Trainer { train: alone.train + self.exchange(trainers, updates), ..alone };
        self.with_learned_rows(replica, trainers)
    }

    /// Durations of a device with this cache that trains beside others, `trainers` in all.
    fn trainer(&self, ratio: f64, trainers: usize) -> Trainer {
        let (seconds, link) = (&self.profile.seconds, &self.hardware.link);
        let (own, peers) = self.hits(ratio, trainers, |held| self.profile.byte_rate(held));
        let hits = own + peers;
        let misses = 1.0 - hits;
        let disk = self.disk(self.cached(ratio, trainers));
        // Each of several concurrent gathers has its share of the cores.
        let gather = misses * seconds.gather * self.hardware.host.gathers / self.cores() + disk;
        // Rows of other devices' caches cross a link without a gather by the host.
        let moved = self.profile.reuse.map_or(0.0, |rows| rows.moved);
        let rows = self.profile.bytes.batch_rows;
        let peer_copy = self.peer_transfer(peers * rows);
        if self.hardware.devices.shared {
            // Only the link and the disk work concurrently with the cores. As in a run, missed rows
            // leave as they are gathered, so a batch waits for the link only as long as it is
            // slower.
            let missed = misses * seconds.gather / self.speed;
            let crossing = (link.seconds(misses * rows) - missed).max(0.0);
            let copy = crossing + link.seconds(moved) + peer_copy;
            let cores = seconds.train / self.speed + self.gather_on_cores(hits);
            let train = cores * self.hardware.waits(trainers);
            return Trainer { gather: 0.0, copy: copy + disk, train };
        }
        let copy = link.seconds(misses * rows + moved) + peer_copy;
        Trainer {
            gather,
            copy: copy + own * seconds.near / self.speed,
            train: seconds.train / self.speed * self.hardware.waits(trainers),
        }
    }

    /// Seconds of gathering rows, of which caches serve the share `hits`, on cores that the devices
    /// share.
    fn gather_on_cores(&self, hits: f64) -> f64 {
        let seconds = &self.profile.seconds;
        (hits * seconds.near + (1.0 - hits) * seconds.gather) / self.speed
    }

    /// Seconds of `bytes` from the caches of other devices.
    fn peer_transfer(&self, bytes: f64) -> f64 {
        match &self.hardware.peer_link {
            Some(link) => link.seconds(bytes),
            None if self.hardware.devices.shared => 0.0,
            None => self.hardware.link.seconds(bytes),
        }
    }

    /// Share of each cache that all devices hold.
    fn replicated(&self) -> f64 {
        match self.placement {
            Placement::Private => 1.0,
            Placement::Replicate(share) => share,
            Placement::Shard | Placement::Interleave | Placement::Blocked => 0.0,
        }
    }

    /// Share of the rows that the caches of `devices` devices hold together.
    fn cached(&self, ratio: f64, devices: usize) -> f64 {
        let replicated = self.replicated() * ratio;
        (replicated + (ratio - replicated) * devices.max(1) as f64).min(1.0)
    }

    /// Shares of the requests for rows, or for their bytes, that a device's own cache and those of
    /// the others serve, where the placement spreads rows over `devices` caches. `served` gives the
    /// share of a single cache of its size.
    fn hits(&self, ratio: f64, devices: usize, served: impl Fn(f64) -> f64) -> (f64, f64) {
        let everywhere = served(self.replicated() * ratio);
        let all = served(self.cached(ratio, devices));
        let own = everywhere + (all - everywhere) / devices.max(1) as f64;
        (own, all - own)
    }

    /// For devices that share the host's cores, the single device made of all cores.
    fn on_all_cores(&self) -> Option<Costs<'_>> {
        let devices = &self.hardware.devices;
        let parted = devices.shared && self.speed != self.cores();
        parted.then(|| Costs { speed: self.cores(), ..*self })
    }

    fn batches(&self) -> Batches {
        Batches { count: self.profile.batches, last: self.profile.last_batch }
    }

    /// Share of the rows that a device caches beside these parts: that of `--cache-ratio`, or all
    /// that fit.
    fn device_cache(&self, owner: &str, parts: &[(&str, f64)]) -> Result<f64, String> {
        let most = self.largest_cache(owner, parts)?;
        match self.request.config.cache_ratio.0 {
            Some(ratio) if ratio > most => Err(format!(
                "--cache-ratio {ratio}: {owner} has memory for {:.1} % of the rows; use a smaller ratio",
                100.0 * most
            )),
            given => Ok(given.unwrap_or(most)),
        }
    }

    /// The same of a device that trains only at times, whose cache may be smaller than
    /// `--cache-ratio`.
    fn standby_cache(&self, owner: &str, parts: &[(&str, f64)]) -> Result<f64, String> {
        let most = self.largest_cache(owner, parts)?;
        Ok(self.request.config.cache_ratio.0.map_or(most, |ratio| ratio.min(most)))
    }

    /// Share of the rows that fit a device beside these parts.
    fn largest_cache(&self, owner: &str, parts: &[(&str, f64)]) -> Result<f64, String> {
        let rows = self.profile.reuse.map(|rows| ("reused rows", rows.table));
        let parts: Vec<(&str, f64)> = parts.iter().copied().chain(rows).collect();
        cache_ratio(owner, self.hardware.devices.memory, self.cache(), &parts)
    }

    /// Memory of a device's cache.
    fn cache(&self) -> CacheBytes {
        match self.hardware.devices.shared {
            true => self.profile.bytes.host_cache(),
            false => self.profile.bytes.device_cache(),
        }
    }

    /// Epoch of the sequential strategy: the host samples, then one device trains.
    pub(crate) fn sequential(&self) -> Result<Prediction, String> {
        if let Some(all) = self.on_all_cores() {
            return all.sequential();
        }
        let ratio = self.device_cache("a device", &[("a training step", self.profile.bytes.train)])?;
        let trainer = self.trainer(ratio, 1);
        let sample = self.sample_on_host();
        let setting = Sharing { devices: 1, sample, trainer, gathers: 1.0, updates: Updates::UNBOUNDED };
        let epoch = sharing(self.batches(), setting);
        Ok(self.prediction(epoch, trainer, [1, 1, 0], ratio))
    }

    /// Epoch of the pipelined strategy: the host samples and gathers on separate cores, divided for
    /// the best balance (the pair's minimum of `bgl_stages` in benchmarks/papers, for arbitrarily
    /// divisible cores), while one device trains.
    pub(crate) fn pipelined(&self) -> Result<Prediction, String> {
        if self.hardware.devices.shared {
            return self.on_all_cores().unwrap_or(*self).pipelined_on_shared_cores();
        }
        let ratio = self.device_cache("a device", &[("a training step", self.profile.bytes.train)])?;
        let (sample, alone) = (self.sample_on_host(), self.trainer(ratio, 1));
        let gathers = self.hardware.host.gathers;
        // A gather reaches full speed with a `gathers`-th of the cores, and is slower with fewer.
        let on_all = alone.gather / gathers;
        let wanted = if on_all > 0.0 { on_all / (sample + on_all) } else { 0.0 };
        let part = wanted.min(1.0 / gathers.max(1.0));
        let part = if sample > 0.0 { part } else { 1.0 / gathers.max(1.0) };
        let gather = if on_all > 0.0 { on_all / part } else { 0.0 };
        let sample = if part < 1.0 { sample / (1.0 - part) } else { sample };
        let trainer = Trainer { gather, ..alone };
        let queue = self.queue()?.min(2 * self.hardware.host.cores as u64).max(1);
        let setting = Factored {
            samplers: 1,
            sample,
            trainers: 1,
            trainer,
            standby: None,
            queue,
            gathers: 1.0,
            updates: Updates::UNBOUNDED,
        };
        Ok(self.prediction(factored(self.batches(), setting), trainer, [1, 1, 0], ratio))
    }

    /// Epoch of the pipelined strategy on cores that sampling, gathering and training share. As in
    /// a run, extraction works beside them if the allocation of [`solve`] has groups of stages;
    /// else all stages take turns.
    fn pipelined_on_shared_cores(&self) -> Result<Prediction, String> {
        let ratio = self.device_cache("a device", &[("a training step", self.profile.bytes.train)])?;
        let (alone, sample) = (self.trainer(ratio, 1), self.sample_on_host());
        let gather = self.gather_on_cores(self.profile.byte_rate(ratio));
        let cores = self.hardware.host.cores;
        let computed = |seconds: f64| {
            let divided = seconds * cores as f64;
            Cost { divided, fixed: 0.0, busy: divided }
        };
        let extract = Cost { fixed: alone.copy, ..computed(gather) };
        let costs = [computed(sample), extract, computed((alone.train - gather).max(0.0))];
        if solve(&costs, cores).groups.len() == 1 {
            return self.sequential();
        }
        // a batch takes the longer of its extraction and of the work of all stages on the cores
        let trainer = Trainer { gather: 0.0, copy: alone.copy + gather, train: alone.train + sample };
        let queue = self.queue()?.max(1);
        let setting = Factored { queue, ..Factored::turns(1, trainer, 1.0, Updates::UNBOUNDED) };
        Ok(self.prediction(factored(self.batches(), setting), trainer, [1, 1, 0], ratio))
    }

    /// Epoch of the time-sharing strategy: every device samples and trains, one after the other, or
    /// with `--overlap on` beside the extraction of its next batch.
    pub(crate) fn time_sharing(&self) -> Result<Prediction, String> {
        let devices = self.hardware.devices.count;
        if self.request.config.own.get::<TimeSharingOptions>().overlap == Toggle::On {
            return self.overlapping(devices);
        }
        self.in_turns(devices)
    }

    /// Epoch of `devices` devices that sample and train, one after the other.
    fn in_turns(&self, devices: usize) -> Result<Prediction, String> {
        let ratio = self.device_cache("a device", &self.both(devices, devices))?;
        let updates = self.updates(devices);
        let trainer = self.replica(ratio, devices, updates);
        let (sample, gathers) = (self.sample(), self.hardware.host.gathers);
        let setting = Sharing { devices, sample, trainer, gathers, updates };
        let epoch = sharing(self.batches(), setting);
        Ok(self.prediction(epoch, trainer, [devices, devices, 0], ratio))
    }

    /// Epoch of devices that sample and train in turns beside the extraction of their next batch:
    /// Trainers whose training includes the sampling of a batch.
    fn overlapping(&self, devices: usize) -> Result<Prediction, String> {
        let next = ("the rows of the next", self.profile.bytes.next_rows());
        let [topology, step, sampling] = self.both(devices, devices);
        let ratio = self.device_cache("a device", &[topology, step, sampling, next])?;
        let (gathers, updates) = (self.hardware.host.gathers, self.updates(devices));
        let (alone, sample) = (self.replica(ratio, devices, updates), self.sample());
        let trainer = Trainer { train: sample + alone.train, ..alone };
        let epoch = factored(self.batches(), Factored::turns(devices, trainer, gathers, updates));
        let part = sample / trainer.train.max(f64::MIN_POSITIVE);
        let epoch = Epoch { sample: part * epoch.train, train: (1.0 - part) * epoch.train, ..epoch };
        Ok(self.prediction(epoch, trainer, [devices, devices, 0], ratio))
    }

    /// Epoch of the factored strategy: some devices sample, the others train; a Sampler that has
    /// finished is a standby Trainer, except on several types.
    pub(crate) fn factored(&self) -> Result<Prediction, String> {
        let (devices, bytes) = (self.hardware.devices.count, &self.profile.bytes);
        let of_types = !self.profile.types.is_empty();
        if of_types && devices == 1 {
            return self.in_turns(1);
        }
        let most = (devices - 1).max(1);
        let given = match self.request.num_samplers {
            0 => of_types.then_some(most),
            given if given <= most => Some(given),
            given => {
                return Err(format!("--num-samplers {given} leaves none of {devices} devices to train"));
            }
        };
        // a Trainer extracts the rows of a batch while it trains on another
        let next = ("the rows of the next", bytes.next_rows());
        let step = ("a training step", self.step(given.map_or(1, |samplers| devices - samplers)));
        let own = self.device_cache("a Trainer", &[step, next])?;
        // Durations as measured in an epoch in advance, with one Trainer.
        let alone = || self.trainer(own, 1).overlapped();
        let samplers = given.unwrap_or_else(|| num_samplers(devices, self.sample(), alone()).min(most));
        let trainers = devices - samplers;
        let [topology, step, sample] = self.both(samplers, trainers);
        let maps = ("maps", if of_types { 0.0 } else { self.cache().of_table });
        left("a Sampler", self.hardware.devices.memory, &[topology, sample, maps])?;
        let standby = self.standby_cache("a Sampler that trains", &[topology, step, sample, next]);
        let switching = self.request.switching && !of_types;
        let standby = if trainers == 0 { Some(standby?) } else { standby.ok().filter(|_| switching) };
        if trainers == 0 && !switching {
            return Err("with --switching off a single device cannot sample and train".into());
        }
        // the run has as many batches in a round as there are devices beside its Samplers
        let updates = self.updates(devices - given.unwrap_or(1).min(devices - 1));
        // blocks cross the link from the Sampler to the host, and from there to the Trainer
        let of_blocks = |trainer: Trainer| Trainer { copy: trainer.copy + self.blocks(), ..trainer };
        let trainer = of_blocks(self.replica(own, trainers, updates));
        let beside = trainers.max(samplers);
        let standby_trainer = standby.map(|ratio| of_blocks(self.replica(ratio, beside, updates)));
        let setting = Factored {
            samplers,
            sample: self.sample() + self.blocks(),
            trainers,
            trainer,
            standby: standby_trainer,
            queue: self.queue()?,
            gathers: self.hardware.host.gathers,
            updates,
        };
        if trainers == 0 && setting.queue < self.profile.batches {
            return Err(format!(
                "the host has {} left for a queue of {} batches of {}, as where devices first sample and \
                 then train",
                gb(self.host_left()?),
                self.profile.batches,
                gb(bytes.batch)
            ));
        }
        let epoch = factored(self.batches(), setting);
        let (of, ratio) = match (trainers, standby_trainer, standby) {
            (0, Some(trainer), Some(ratio)) => (trainer, ratio),
            _ => (trainer, own),
        };
        let standbys = if standby.is_some() { samplers } else { 0 };
        let predicted = self.prediction(epoch, of, [samplers, trainers, standbys], ratio);
        // a standby Trainer has its own batches, and a cache beside the topology
        let own_batches = epoch.switched as f64 / self.profile.batches.max(1) as f64;
        let (own, peers) = self.hits(standby.unwrap_or(0.0), beside, |held| self.profile.hit_rate(held));
        let hit_rate = predicted.hit_rate + own_batches * (own + peers - predicted.hit_rate);
        Ok(Prediction { hit_rate, ..predicted })
    }

    /// Rule of the updates of `trainers` devices, unless the options give the batches of a round.
    pub(crate) fn updates(&self, trainers: usize) -> Updates {
        let options = self.request.config.own.get::<UpdateOptions>();
        if options.is_asynchronous() {
            return Updates { round: 1, staleness: options.bound() };
        }
        let given = self.request.config.own.get::<RoundOptions>().batches_per_update;
        let round = if given > 0 { given } else { trainers.max(1) };
        Updates { round: round as u64, staleness: 0 }
    }

    /// Memory of a training step on one of `trainers` devices that train.
    fn step(&self, trainers: usize) -> f64 {
        let bytes = &self.profile.bytes;
        if self.computes_gradients(trainers) { bytes.train_gradients() } else { bytes.train }
    }

    /// Memory of a device that samples and trains, except its cache, if the first `samplers`
    /// devices sample and `trainers` train.
    fn both(&self, samplers: usize, trainers: usize) -> [(&'static str, f64); 3] {
        let step = ("a training step", self.step(trainers));
        [("the topology", self.profile.bytes.topology), step, ("sampling", self.sampling(samplers))]
    }

    /// Memory of sampling on one of the first `samplers` devices, as a run reserves it: that of
    /// each of its threads if it has a part of the host's cores. The device with the most counts.
    fn sampling(&self, samplers: usize) -> f64 {
        let (bytes, Hardware { devices, host, .. }) = (&self.profile.bytes, self.hardware);
        let threads = |i| Device::threads_of(i, devices.count.max(1), host.cores);
        match bytes.sample_thread {
            Some(each) if devices.shared => each * (0..samplers).map(threads).max().unwrap_or(1) as f64,
            _ => bytes.sample,
        }
    }

    /// Number of batches that fit a queue in the host's memory, at most all.
    fn queue(&self) -> Result<u64, String> {
        let (left, batch) = (self.host_left()?, self.profile.bytes.batch);
        Ok(if batch > 0.0 { ((left / batch) as u64).min(self.profile.batches) } else { self.profile.batches })
    }

    /// Converts an epoch to a prediction.
    fn prediction(&self, epoch: Epoch, trainer: Trainer, executors: [usize; 3], ratio: f64) -> Prediction {
        let [samplers, trainers, standby] = executors;
        let extract = epoch.gather + epoch.copy;
        let way = if epoch.gather >= epoch.copy { "extract (host)" } else { "extract (link)" };
        let (hits, peers) = self.hits(ratio, trainers, |held| self.profile.hit_rate(held));
        // Rows gathered within the device's memory cross no link.
        let near = hits * self.profile.seconds.near / self.speed;
        let way =
            if epoch.gather < epoch.copy && near > 0.5 * trainer.copy { "extract (device)" } else { way };
        let stages = [("train", epoch.train), (way, extract), ("sample", epoch.sample)];
        let (bottleneck, _) = stages
            .into_iter()
            .fold(("train", 0.0), |most, stage| if stage.1 > most.1 { stage } else { most });
        // the host makes rows for reuse beside the devices, or between their super-batches
        let made = self.profile.reuse.map_or(0.0, |rows| rows.make * self.batches().sum() / self.cores());
        let is_beside = self.profile.reuse.is_none_or(|rows| rows.ahead);
        let seconds = if is_beside { epoch.seconds.max(made) } else { epoch.seconds + made };
        let bottleneck = if made > epoch.seconds { "reused rows (host)" } else { bottleneck };
        let part = if made > 0.0 { epoch.seconds / seconds } else { 1.0 };
        Prediction {
            name: "",
            reuse: self.profile.reuse_name(),
            epoch_seconds: Some(seconds),
            samplers,
            trainers,
            standby,
            cache_ratio: ratio,
            hit_rate: hits + peers,
            bottleneck,
            busy: Busy { sample: part * epoch.sample, extract: part * extract, train: part * epoch.train },
            switched: epoch.switched,
            fits: true,
            reason: None,
            types: self.rows_by_type(ratio, trainers),
        }
    }

    /// Rows of each type with features on one of `trainers` devices that train.
    fn rows_by_type(&self, ratio: f64, trainers: usize) -> Vec<TypeRows> {
        let with_features = self.profile.types.iter().filter(|of| of.row_bytes > 0.0);
        let rows = with_features.map(|of| {
            let (own, peers) = self.hits(ratio, trainers, |held| self.profile.type_rate(of, held));
            let hit_rate = own + peers;
            TypeRows { name: of.name.clone(), hit_rate, link_bytes: (1.0 - hit_rate) * of.bytes() }
        });
        rows.collect()
    }
}
