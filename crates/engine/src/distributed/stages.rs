//! Stages of a batch over graph stores and training ranks, and the cores that they need.
//!
//! # Algorithm
//!
//! Seconds of the stages are counted where the work is done: by the services of the stores, by
//! waiting threads, and by the stages of a training rank. [`describe`] passes the stages of each
//! side to [`allocate::solve`], which divides the cores of a machine among them so that the
//! longest stage is as short as possible.
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing*,
//! NSDI 2023, Profiling-based Resource Allocation.
//!
//! # Cost
//!
//! A few additions a message; a solution a run, of eight stages.
//!
//! # Deviations
//!
//! The shares are a note for the user, not a setting: the services of a store take turns on all of
//! its cores, and `--strategy pipelined` measures a training rank with the waiting included.

use graphmill_loader::{Traffic, feature::LinkTraffic};

use crate::{
    allocate::{self, Allocation, Cost},
    record::{EpochRecord, EpochTotals, RankStages},
};

/// Counters of a rank's messenger, in bytes and nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Bytes sent for samples, features and sums.
    pub(super) bytes: [u64; 3],
    /// Time of the sampling services, and of writing their replies.
    pub(super) served: [u64; 2],
    /// Time of waiting for samples, and for rows.
    pub(super) waited: [u64; 2],
}

impl Counts {
    /// Counts since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            bytes: [0, 1, 2].map(|i| self.bytes[i] - before.bytes[i]),
            served: [0, 1].map(|i| self.served[i] - before.served[i]),
            waited: [0, 1].map(|i| self.waited[i] - before.waited[i]),
        }
    }

    /// Seconds of the stages of an epoch, whose totals on this rank are `sums`, and `resumed` at
    /// the point where it was resumed. `links` carried the copies of its devices.
    pub(super) fn stages(&self, sums: &EpochTotals, resumed: &EpochTotals, links: LinkTraffic) -> RankStages {
        let seconds = |nanos: u64| nanos as f64 * 1e-9;
        let ([served, built], [of_samples, of_rows]) = (self.served.map(seconds), self.waited.map(seconds));
        let near =
            |Traffic { device, peer, host, .. }: Traffic| device.seconds() + peer.seconds() + host.seconds();
        let rows = |Traffic { host, disk, remote, .. }: Traffic| host.bytes + disk.bytes + remote.bytes;
        let crossed = rows(sums.traffic).saturating_sub(rows(resumed.traffic)) as f64;
        let features = links.seconds * (crossed / links.bytes.max(1) as f64).min(1.0);
        RankStages {
            requests: (served - built).max(0.0),
            subgraphs: built,
            network: of_samples + of_rows,
            process: (sums.stages.sample - resumed.stages.sample - of_samples).max(0.0),
            structure: links.seconds - features,
            cache: (near(sums.traffic) - near(resumed.traffic)).max(0.0),
            features,
            compute: sums.stages.train - resumed.stages.train,
        }
    }
}

/// Describes the stages of a batch in an epoch of `batches` batches, of which the last `stores`
/// ranks trained on none, and the division of `cores` cores on each side.
pub(crate) fn describe(record: &EpochRecord, batches: u64, stores: usize, cores: usize) -> String {
    let trainers = record.ranks.len().saturating_sub(stores);
    let mean = |ranks: &[crate::record::RankRecord], stage: usize| {
        let sum: f64 = ranks.iter().map(|rank| rank.stages.seconds()[stage]).sum();
        sum / ranks.len().max(1) as f64 / batches.max(1) as f64
    };
    let (training, serving) = record.ranks.split_at(trainers);
    let seconds: [f64; 8] = std::array::from_fn(|i| mean(if i < 2 { serving } else { training }, i));
    let names = RankStages::NAMES;
    let each: Vec<String> =
        names.iter().zip(seconds).map(|(name, seconds)| format!("{name} {:.2}", 1e3 * seconds)).collect();
    let longest = (1..8).fold(0, |longest, i| if seconds[i] > seconds[longest] { i } else { longest });
    format!(
        "stages of a batch in ms, the first two on a graph store: {}; the longest is {}; {cores} cores of a \
         store: {}; of a training rank: {}",
        each.join(", "),
        names[longest],
        divided(&[0, 1], &seconds, cores),
        divided(&[3, 5, 7], &seconds, cores)
    )
}

/// Division of `cores` cores among these stages.
fn divided(stages: &[usize], seconds: &[f64; 8], cores: usize) -> String {
    let cost = |&i: &usize| Cost { divided: seconds[i], fixed: 0.0, busy: seconds[i] };
    let Allocation { groups, isolated, .. } =
        allocate::solve(&stages.iter().map(cost).collect::<Vec<_>>(), cores.max(1));
    let group = |group: &allocate::Group| {
        let names: Vec<&str> = group.stages.iter().map(|&i| RankStages::NAMES[stages[i]]).collect();
        let names = names.join(" and ");
        if isolated { format!("{} for {names}", group.cores) } else { names }
    };
    let text = groups.iter().map(group).collect::<Vec<_>>().join(", ");
    match (isolated, groups.len()) {
        (true, _) => text,
        (false, 1) => format!("{text} in turns"),
        (false, _) => format!("{text} side by side"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RankRecord;

    #[test]
    fn stages_are_divided_between_stores_and_trainers() {
        let of = |rank, seconds: [f64; 8]| RankRecord { rank, stages: seconds.into(), ..Default::default() };
        let record = EpochRecord {
            ranks: vec![
                of(0, [0.0, 0.0, 3.0, 1.0, 0.0, 0.5, 0.0, 2.0]),
                of(1, [0.0, 0.0, 1.0, 1.0, 0.0, 0.5, 0.0, 2.0]),
                of(2, [0.4, 0.2, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]),
            ],
            ..EpochRecord::default()
        };
        let text = describe(&record, 100, 1, 4);
        assert!(text.contains("requests 4.00, subgraphs 2.00, network 20.00, process 10.00"), "{text}");
        assert!(text.contains("the longest is network; 4 cores of a store: requests and subgraphs in turns"));
        assert!(text.ends_with("of a training rank: process and cache and compute in turns"), "{text}");
    }

    #[test]
    fn waiting_is_not_processing() {
        let mut sums = EpochTotals::default();
        (sums.stages.sample, sums.stages.train) = (5.0, 3.0);
        (sums.traffic.host.bytes, sums.traffic.host.nanos) = (600, 250_000_000);
        let mut resumed = EpochTotals::default();
        resumed.stages.train = 1.0;
        let counts =
            Counts { bytes: [0; 3], served: [2_000_000_000, 500_000_000], waited: [1_000_000_000, 7] };
        let links = LinkTraffic { transfers: 3, bytes: 800, seconds: 4.0 };
        let RankStages { requests, subgraphs, network, process, structure, cache, features, compute } =
            counts.stages(&sums, &resumed, links);
        assert_eq!((requests, subgraphs, process, compute), (1.5, 0.5, 4.0, 2.0));
        assert_eq!((structure, features, cache), (1.0, 3.0, 0.25));
        assert!((network - 1.0).abs() < 1e-6);
    }
}
