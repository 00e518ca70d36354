use proptest::prelude::*;

use super::*;

const TRAINER: Trainer = Trainer { gather: 1.0, copy: 1.0, train: 3.0 };

fn batches(count: u64) -> Batches {
    Batches { count, last: 1.0 }
}

fn shared(devices: usize, sample: f64, gathers: f64) -> Sharing {
    Sharing { devices, sample, trainer: TRAINER, gathers, updates: Updates::UNBOUNDED }
}

fn pair(sample: f64, trainer: Trainer) -> Factored {
    Factored {
        samplers: 1,
        sample,
        trainers: 1,
        trainer,
        standby: None,
        queue: 2,
        gathers: 1.0,
        updates: Updates::UNBOUNDED,
    }
}

#[test]
fn one_device_runs_stages_sequentially() {
    let epoch = sharing(Batches { count: 4, last: 0.5 }, shared(1, 1.0, 1.0));
    assert_eq!(epoch.seconds, 3.5 * 6.0);
    let parts = [epoch.sample, epoch.gather, epoch.copy, epoch.train];
    assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{parts:?}");
}

#[test]
fn devices_share_batches_and_gathers() {
    // Two rounds of four devices, with a host that serves all gathers at full speed.
    assert_eq!(sharing(batches(8), shared(4, 1.0, 4.0)).seconds, 12.0);
    // With a host that serves one gather at a time, the first batches wait.
    let narrow = sharing(batches(8), shared(4, 1.0, 1.0)).seconds;
    assert!(narrow > 12.0 && narrow <= 2.0 * (1.0 + 4.0 + 1.0 + 3.0), "{narrow}");
}

#[test]
fn pipelines_are_limited_by_their_slowest_stage() {
    // Filling the pipeline: sampling and extraction of the first batch.
    assert_eq!(factored(batches(10), pair(1.0, TRAINER)).seconds, 1.0 + 2.0 + 10.0 * 3.0);
    assert_eq!(factored(batches(10), pair(5.0, TRAINER)).seconds, 10.0 * 5.0 + 2.0 + 3.0);
    let slow = Trainer { copy: 6.0, ..TRAINER };
    assert_eq!(factored(batches(10), pair(1.0, slow)).seconds, 1.0 + 10.0 * 7.0 + 3.0);
}

#[test]
fn full_queues_block_samplers_and_lose_no_batches() {
    let quick = Factored { samplers: 3, queue: 1, ..pair(0.01, TRAINER) };
    assert_eq!(factored(batches(50), quick).seconds, 0.01 + 2.0 + 50.0 * 3.0);
}

#[test]
fn standby_trainers_help_few_trainers_and_never_hurt() {
    let standby = Trainer { gather: 2.0, ..TRAINER };
    for trainers in 1..8 {
        for count in 1..40 {
            let alone = Factored { trainers, gathers: 8.0, queue: 100, ..pair(0.5, TRAINER) };
            let without = factored(batches(count), alone);
            let with = factored(batches(count), Factored { standby: Some(standby), ..alone });
            assert!(with.seconds <= without.seconds + 1e-9, "{trainers} Trainers, {count} batches");
            assert_eq!(without.switched, 0);
            if trainers == 1 && count > 25 {
                assert!(with.seconds < 0.7 * without.seconds && with.switched > 0, "{with:?} {without:?}");
            }
        }
    }
}

#[test]
fn one_device_samples_everything_before_training() {
    let alone = Factored { trainers: 0, standby: Some(TRAINER), ..pair(1.0, TRAINER) };
    let epoch = factored(batches(10), alone);
    assert_eq!((epoch.seconds, epoch.switched), (10.0 + 2.0 + 10.0 * 3.0, 10));
}

/// With rounds of one batch only one device trains at a time, and standby Trainers do not help.
#[test]
fn synchronous_updates_wait_for_their_round() {
    let updates = Updates { round: 1, staleness: 0 };
    let alone = Factored { queue: 100, updates, ..pair(0.5, TRAINER) };
    let seconds = 0.5 + 2.0 + 30.0 * 3.0;
    assert_eq!(factored(batches(30), alone).seconds, seconds);
    let helped = factored(batches(30), Factored { standby: Some(TRAINER), ..alone });
    assert_eq!(helped.seconds, seconds);
    let wide = Factored { updates: Updates { round: 2, staleness: 0 }, standby: Some(TRAINER), ..alone };
    assert!(factored(batches(30), wide).seconds < 0.8 * seconds);
    assert_eq!(sharing(batches(8), Sharing { updates, ..shared(4, 1.0, 4.0) }).seconds, 3.0 + 8.0 * 3.0);
    let rounds = Updates { round: 4, staleness: 0 };
    assert_eq!(sharing(batches(8), Sharing { updates: rounds, ..shared(4, 1.0, 4.0) }).seconds, 12.0);
}

proptest! {
    /// No simulation is faster than the total work allows, or slower than sequential execution.
    #[test]
    fn seconds_lie_between_the_bounds(
        count in 1u64..60, last in 0.1..1.0f64, samplers in 1usize..5, trainers in 0usize..5,
        queue in 1u64..5,
        sample in 0.0..2.0f64, gather in 0.0..2.0f64, copy in 0.0..2.0f64, train in 0.0..2.0f64,
        gathers in 0.5..4.0f64,
        switches in any::<bool>(),
        round in 1u64..6, staleness in 0u64..4,
    ) {
        let batches = Batches { count, last };
        let work = (count - 1) as f64 + last;
        let trainer = Trainer { gather, copy, train };
        let updates = Updates { round, staleness };
        let standby = (switches || trainers == 0).then_some(trainer);
        let setting = Factored { samplers, sample, trainers, trainer, standby, queue, gathers, updates };
        let epoch = factored(batches, setting);
        let devices = (samplers + trainers) as f64;
        let trains = if standby.is_some() { devices } else { trainers as f64 };
        let least = [work * sample / samplers as f64, work * train / trains, work * gather / gathers];
        let most = work * (sample + gather / gathers.min(1.0) + copy + train);
        prop_assert!(epoch.seconds <= most * (1.0 + 1e-9), "{epoch:?} {most}");
        prop_assert!(least.iter().all(|&bound| bound <= epoch.seconds * (1.0 + 1e-9)), "{epoch:?} {least:?}");
        prop_assert_eq!(factored(batches, setting), epoch);
        let all = Sharing { devices: samplers, sample, trainer, gathers, updates };
        let shared = sharing(batches, all).seconds;
        let least = work * (sample + copy + train) / samplers as f64;
        prop_assert!(shared <= most * (1.0 + 1e-9) && least <= shared * (1.0 + 1e-9));
    }
}
