//! Strategies by device over several machines, whose devices are their cores, divide them, or are
//! NVIDIA devices.
//!
//! # Algorithm
//!
//! A core samples, extracts and trains on a machine's share of a whole minibatch: its work takes as
//! many times as long as on all cores together. It also waits for the hops of its sampling, for the
//! rows of other machines, beside which own rows are read, and with its update for the sum of the
//! gradients of all machines. The [simulations](crate::sim) of one machine give the epoch. All
//! cores share the link of their machine, so an epoch takes at least the time of its bytes, and
//! that of the work of a graph store, if there are some.
//!
//! NVIDIA devices train at their own speed, each beside the others, on rows that cross a link of
//! their own. The cores of the host still sample and gather for all of them.
//!
//! # Source
//!
//! Ours; the strategies are those of [`crate::sim`].
//!
//! # Cost
//!
//! O(B log B) for B batches.
//!
//! # Deviations
//!
//! Stages of different cores do not slow each other down.

use graphmill_engine::allocate::samplers::num_samplers;

use crate::{
    cores::Cores,
    network::{Epoch, GRAPH_STORES, Machines},
    sim::{self, Batches, Factored, Sharing, Trainer, Updates, factored, sharing},
};

impl Machines {
    /// Seconds of a core to sample its machine's share of a batch, and those of its other stages,
    /// with these updates.
    fn of_core(&self, updates: Updates) -> (f64, Trainer) {
        let [hops, rows, sums] = self.waits();
        let cores = self.cores.count as f64;
        let [sample, extract, on_cores] = self.share.map(|seconds| cores * seconds);
        let train = match &self.accelerators {
            None => on_cores,
            Some(on) => on.step(self.share[2], on.count),
        };
        let talk = if self.count > 1 { cores * self.talk } else { 0.0 };
        // all cores copy rows at the same time, each its own
        let copy = match self.stores {
            None => extract.max(rows),
            Some(_) => extract + rows,
        } + self.copied();
        let train = train + talk + sums / updates.round as f64;
        (sample + hops, Trainer { gather: 0.0, copy, train })
    }

    fn all_batches(&self) -> Batches {
        Batches { count: self.batches, last: 1.0 }
    }

    /// Epoch of `time-sharing`: every core samples and trains, with `--overlap on` beside the
    /// extraction of its next batch.
    pub fn time_sharing(&self) -> Epoch {
        let devices = self.cores.count;
        let updates = self.cores.updates_of(devices);
        let (sample, trainer) = self.of_core(updates);
        let gathers = devices as f64;
        let epoch = if self.cores.overlap {
            let trainer = Trainer { train: sample + trainer.train, ..trainer };
            factored(self.all_batches(), Factored::turns(devices, trainer, gathers, updates))
        } else {
            sharing(self.all_batches(), Sharing { devices, sample, trainer, gathers, updates })
        };
        self.simulated(epoch)
    }

    /// Epoch of `factored`: some cores sample, the others train.
    ///
    /// # Errors
    /// The reason why the cores cannot be divided like that.
    pub fn factored(&self) -> Result<Epoch, String> {
        let Cores { count, num_samplers: given, switching, .. } = self.cores;
        let most = (count - 1).max(1);
        if given > count {
            return Err(format!("--num-samplers {given}: there are {count} cores"));
        }
        if self.caches_on_devices && count > 1 {
            let why = "devices that only sample hold no rows, so a prediction does not know the rows that \
                       the others cache; use --cache-ratio 0";
            return Err(why.into());
        }
        // a run has as many batches in a round as there are devices beside its Samplers
        let updates = self.cores.updates_of(count - given.max(1).min(count - 1));
        let (sample, trainer) = self.of_core(updates);
        if (given == count || count == 1) && !switching {
            return Err(format!(
                "with --switching off {count} Samplers of {count} cores leave none to train"
            ));
        }
        let balanced = || num_samplers(count, sample, trainer.overlapped()).min(most);
        let samplers = if given == 0 { balanced() } else { given };
        let setting = Factored {
            samplers,
            sample,
            trainers: count - samplers,
            trainer,
            standby: switching.then_some(trainer),
            queue: self.batches,
            gathers: count as f64,
            updates,
        };
        Ok(self.simulated(factored(self.all_batches(), setting)))
    }

    /// Epoch of a simulation, or of the bytes that its machine's link carries or of the work of a
    /// graph store, if one of these is longer.
    fn simulated(&self, epoch: sim::Epoch) -> Epoch {
        let link = self.batches as f64 * self.link_seconds();
        let stores = self.batches as f64 * self.stores.map_or(0.0, |stores| stores.work);
        let seconds = epoch.seconds.max(link).max(stores);
        // a stage of the simulation is the bottleneck unless another part takes the whole epoch
        let whole = |part: f64| if part > epoch.seconds { part } else { 0.0 };
        let part = |share: f64| share * epoch.seconds;
        let extract = part(epoch.gather + epoch.copy);
        let parts = [
            ("sample", part(epoch.sample)),
            ("extract", extract),
            ("train", part(epoch.train)),
            ("network", whole(link)),
            (GRAPH_STORES, whole(stores)),
        ];
        self.epoch(seconds, &parts)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_loader::feature::LinkOptions;

    use super::*;
    use crate::network::{Stores, Wire};

    /// Two machines, over a link without bytes.
    fn machines(cores: Cores) -> Machines {
        let network = LinkOptions { bandwidth: 1e12, latency: 0.0, ..LinkOptions::default() };
        let wire = Wire { hops: vec![0.0], skew: 1.0, ..Wire::default() };
        Machines {
            count: 2,
            stores: None,
            batches: 100,
            alone: [0.02, 0.02, 0.16],
            share: [0.01, 0.01, 0.08],
            talk: 0.0,
            wire,
            network,
            cores,
            cached: 0.0,
            caches_on_devices: false,
            accelerators: None,
        }
    }

    #[test]
    fn cores_work_on_whole_shares_one_at_a_time() {
        let one = machines(Cores::default()).time_sharing();
        // a single core does what the machine does in turns
        let turns = machines(Cores::default()).sequential();
        assert!((one.epoch_seconds - turns.epoch_seconds).abs() < 1e-6, "{one:?} {turns:?}");
        // with rounds of one batch, cores train one after the other
        let four = Cores { count: 4, ..Cores::default() };
        let waiting = machines(four).time_sharing();
        assert!(waiting.epoch_seconds > 100.0 * 4.0 * 0.08, "{waiting:?}");
        let round = Cores { updates: Updates { round: 4, staleness: 0 }, ..four };
        let together = machines(round).time_sharing();
        assert!(together.epoch_seconds < 0.4 * waiting.epoch_seconds, "{together:?} {waiting:?}");
    }

    #[test]
    fn roles_follow_the_options() {
        let updates = Updates { round: 3, staleness: 0 };
        let four = Cores { count: 4, updates, ..Cores::default() };
        let seconds = |cores: Cores| machines(cores).factored().unwrap().epoch_seconds;
        let of_three = Cores { num_samplers: 3, switching: false, ..four };
        assert!(seconds(four) < seconds(of_three), "one core of four trains");
        // all cores sample first and then train
        assert!(machines(Cores { num_samplers: 4, ..four }).factored().is_ok());
        let none = machines(Cores { num_samplers: 4, switching: false, ..four }).factored().unwrap_err();
        assert!(none.contains("4 Samplers of 4 cores leave none"), "{none}");
        let many = machines(Cores { num_samplers: 5, ..four }).factored().unwrap_err();
        assert!(many.contains("--num-samplers 5: there are 4 cores"), "{many}");
        let single = machines(Cores { switching: false, ..Cores::default() }).factored().unwrap_err();
        assert!(single.contains("--switching off"), "{single}");
        let round = Cores { updates: Updates { round: 4, staleness: 0 }, ..four };
        let overlapping = machines(Cores { overlap: true, ..round }).time_sharing();
        let in_turns = machines(round).time_sharing();
        assert!(overlapping.epoch_seconds < in_turns.epoch_seconds, "{overlapping:?} {in_turns:?}");
    }

    #[test]
    fn the_bytes_of_all_cores_share_a_link() {
        let four = Cores { count: 4, updates: Updates { round: 4, staleness: 0 }, ..Cores::default() };
        let network = LinkOptions { bandwidth: 1e8, latency: 0.0, ..LinkOptions::default() };
        let wire = Wire { hops: vec![0.0], rows: 4e7, skew: 1.0, ..Wire::default() };
        let narrow = Machines { wire, network, ..machines(four) };
        let epoch = narrow.time_sharing();
        // each machine sends half of the bytes, at 95 MB/s
        let link = 100.0 * 2e7 / 9.5e7;
        assert!((epoch.epoch_seconds - link).abs() < 1e-6 * link, "{epoch:?} {link}");
        assert_eq!(epoch.bottleneck, "network");
    }

    #[test]
    fn an_epoch_takes_at_least_the_work_of_a_graph_store() {
        let four = Cores { count: 4, updates: Updates { round: 4, staleness: 0 }, ..Cores::default() };
        let of = |stores: Stores| Machines { stores: Some(stores), ..machines(four) };
        let idle = of(Stores { count: 1, ..Stores::default() });
        let waiting = of(Stores { count: 1, draws: 0.1, reads: 0.1, work: 0.0 });
        let working = of(Stores { count: 1, draws: 0.0, reads: 0.0, work: 1.0 });
        let seconds = |of: &Machines| of.time_sharing().epoch_seconds;
        // cores wait at the same time
        let more = seconds(&waiting) - seconds(&idle);
        assert!(more > 0.0 && more < 100.0 * 0.2, "{more}");
        for epoch in [working.time_sharing(), working.factored().unwrap()] {
            assert_eq!(epoch.bottleneck, "graph stores");
            assert!((epoch.epoch_seconds - 100.0).abs() < 1e-9, "{epoch:?}");
        }
    }

    #[test]
    fn a_round_of_simulated_devices_has_a_batch_for_each_that_trains() {
        let by_device = Cores { count: 4, rounds_by_device: true, ..Cores::default() };
        let round = |round| Cores { count: 4, updates: Updates { round, staleness: 0 }, ..Cores::default() };
        let shared = |cores| machines(cores).time_sharing();
        assert_eq!(shared(by_device), shared(round(4)));
        let factored = |cores: Cores| machines(Cores { num_samplers: 1, ..cores }).factored().unwrap();
        assert_eq!(factored(by_device), factored(round(3)));
        // which of them hold cached rows is known if all train
        let caching = Machines { caches_on_devices: true, ..machines(by_device) };
        assert!(caching.factored().unwrap_err().contains("use --cache-ratio 0"));
        assert_eq!(caching.time_sharing(), shared(by_device));
    }
}
