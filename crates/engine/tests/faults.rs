//! Every kind of fault in every strategy, and a thousand faults with `GRAPHMILL_SOAK`. If any stage
//! of any batch fails, every strategy ends with one error, after training on all batches before it
//! and on none after it, and leaves no thread.
//!
//! This file has one test, because it counts the threads of the process.

use std::{sync::Arc, time::Instant};

use graphmill_core::keyed;
use graphmill_engine::{Error, TrainConfig, config::Fanout, strategy::UpdateOptions};
use rayon::ThreadPoolBuilder;

use crate::common;
use crate::common::{Fault, Kind};
use crate::run::{BATCH, BATCHES, EPOCHS, Outcome, TIME_LIMIT, data, watched};
use crate::set::set;

/// Number of faults with `GRAPHMILL_SOAK`.
const FAULTS: u64 = 1000;

/// Strategy with its options.
struct Case {
    name: &'static str,
    config: TrainConfig,
    /// Batches per update.
    group: u64,
    /// True if training and updating are one stage, so that a panic there may leave the model half
    /// updated.
    trains_in_place: bool,
}

fn cases() -> Vec<Case> {
    let base = TrainConfig {
        hidden: 8,
        batch_size: BATCH,
        fanout: Fanout(vec![3, 2]),
        dropout: 0.2,
        lr: 0.01,
        cache: "degree".into(),
        ..TrainConfig::default()
    };
    let mut cases = Vec::new();
    let mut add = |name, strategy: &str, group, change: &dyn Fn(&mut TrainConfig)| {
        let mut config = TrainConfig { strategy: strategy.into(), ..base.clone() };
        change(&mut config);
        let in_place = config.devices == "cpu";
        cases.push(Case {
            name,
            config,
            group,
            trains_in_place: matches!(strategy, "sequential" | "pipelined" | "layered") && in_place,
        });
    };
    add("sequential", "sequential", 1, &|_| {});
    add("profiled", "pipelined", 1, &|_| {});
    add("naive", "pipelined", 1, &|c| set(c, "allocation=naive"));
    add("1,1,1", "pipelined", 1, &|c| set(c, "allocation=1,1,1"));
    add("2,1,1 in a queue of 2", "pipelined", 1, &|c| set(c, "allocation=2,1,1 queue=2"));
    let devices = |n: usize| {
        move |c: &mut TrainConfig| {
            set(c, &format!("devices=virtual:{n} num_samplers=1 cache_ratio=0.2"));
        }
    };
    let asynchronous = |c: &mut TrainConfig| {
        devices(3)(c);
        set(c, "updates=asynchronous staleness=2");
    };
    add("factored on cores", "factored", 1, &|c| set(c, "num_samplers=1"));
    add("factored, one device", "factored", 1, &devices(1));
    add("factored, two devices", "factored", 1, &devices(2));
    add("factored, two Trainers", "factored", 2, &devices(3));
    add("factored, rounds of 3", "factored", 3, &|c| {
        devices(3)(c);
        set(c, "batches_per_update=3 queue=4");
    });
    add("factored, asynchronous", "factored", 1, &asynchronous);
    add("time-sharing", "time-sharing", 2, &devices(2));
    let supers = |n: usize, ahead: &'static str| {
        move |c: &mut TrainConfig| set(c, &format!("super_batch={n} hot_prefetch={ahead}"))
    };
    add("layered", "layered", 1, &supers(4, "off"));
    add("layered, ahead", "layered", 1, &supers(3, "on"));
    add("layered, one device", "layered", 1, &|c| {
        devices(1)(c);
        supers(4, "on")(c);
    });
    add("layered, two devices", "layered", 2, &|c| {
        devices(2)(c);
        supers(6, "on")(c);
    });
    add("time-sharing, asynchronous", "time-sharing", 1, &asynchronous);
    add("layered, asynchronous", "layered", 1, &|c| {
        asynchronous(c);
        supers(4, "on")(c);
    });
    cases
}

/// Number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[test]
fn every_fault_ends_the_run_with_one_error_and_no_thread_left() {
    common::hush();
    let data = Arc::new(data());
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(2).build().unwrap());
    let cases = cases();
    let kinds = [
        Kind::SampleError,
        Kind::SamplePanic,
        Kind::ExtractError,
        Kind::ExtractPanic,
        Kind::TrainError,
        Kind::TrainPanic,
        Kind::UpdatePanic,
        Kind::RecordError,
        Kind::RecordPanic,
    ];
    // without a fault
    let none = |case: &Case| Arc::new(Fault::new(Kind::None, 0, 0, BATCHES, case.group));
    let whole: Vec<Outcome> =
        cases.iter().map(|case| watched(&data, &pool, &case.config, none(case), case.name)).collect();
    for (case, outcome) in cases.iter().zip(&whole) {
        assert!(outcome.end.is_ok(), "{}: {:?}", case.name, outcome.end);
        assert_eq!(outcome.recorded, (0..EPOCHS * BATCHES).collect::<Vec<_>>(), "{}", case.name);
        let exact = case.config.strategy != "layered";
        if exact && case.group == 1 && case.config.own.get::<UpdateOptions>().bound() == 0 {
            assert_eq!(outcome.updates, whole[0].updates, "{} is not sequential", case.name);
        }
    }
    let at_rest = threads();
    let soak = std::env::var_os("GRAPHMILL_SOAK").is_some();
    for i in 0..if soak { FAULTS } else { (cases.len() * kinds.len()) as u64 } {
        let case = &cases[i as usize % cases.len()];
        let kind = kinds[i as usize / cases.len() % kinds.len()];
        let epoch = keyed::key(&[i, 0]) % EPOCHS;
        let batch = keyed::key(&[i, 1]) % BATCHES;
        let fault = Arc::new(Fault::new(kind, epoch, batch, BATCHES, case.group));
        let what = format!("{}, {kind:?} in epoch {epoch}, batch {batch}", case.name);
        let outcome = watched(&data, &pool, &case.config, fault.clone(), &what);
        check(case, &fault, &outcome, &whole[i as usize % cases.len()], &what);

        // the threads of a pool end asynchronously
        let deadline = Instant::now() + TIME_LIMIT;
        while threads() > at_rest {
            assert!(Instant::now() < deadline, "{what}: {} threads, {at_rest} before", threads());
            std::thread::yield_now();
        }
    }
}

/// Asserts the outcome of a run with the fault; `whole` is the outcome without a fault.
fn check(case: &Case, fault: &Fault, outcome: &Outcome, whole: &Outcome, what: &str) {
    let Fault { kind, epoch, batch, group, .. } = *fault;
    let first = batch / group * group;
    let last = (first + group).min(BATCHES) - 1;
    let panicked = |stage: &str, named: u64| match &outcome.end {
        Err(Ok(Error::Panicked { stage: at, batch, .. })) => *at == stage && *batch == named + 1,
        _ => false,
    };
    let update = if case.trains_in_place { "train" } else { "update" };
    let layered = case.config.strategy == "layered";
    let as_expected = match kind {
        Kind::None => outcome.end.is_ok(),
        // reused rows are drawn and read under the number of the first batch that reuses them
        Kind::SamplePanic => panicked("sample", batch) || (layered && panicked("embed", batch)),
        Kind::ExtractPanic => panicked("extract", batch) || (layered && panicked("embed", batch)),
        Kind::TrainPanic => panicked("train", batch),
        // the error names the last batch of the round
        Kind::UpdatePanic => panicked(update, last),
        Kind::SampleError | Kind::ExtractError | Kind::TrainError | Kind::RecordError => {
            matches!(&outcome.end, Err(Ok(error)) if error.to_string().contains(&fault.message()))
        }
        Kind::RecordPanic => matches!(&outcome.end, Err(Err(message)) if *message == fault.message()),
    };
    assert!(as_expected, "{what}: {:?}", outcome.end);

    // a failure of recording leaves the earlier batches of its round recorded
    let recorded = match kind {
        Kind::RecordError | Kind::RecordPanic => batch,
        // earlier batches of the same round may be recorded, or none if the mean loss is not finite
        Kind::TrainError => {
            outcome.recorded.last().map_or(0, |last| (last + 1).saturating_sub(epoch * BATCHES))
        }
        _ => first,
    };
    assert!((first..=batch).contains(&recorded), "{what}: {:?}", outcome.recorded);
    assert_eq!(outcome.recorded, (0..epoch * BATCHES + recorded).collect::<Vec<_>>(), "{what}");
    let done = (epoch * BATCHES.div_ceil(group) + batch / group) as usize;
    assert_eq!(outcome.updates.len(), done, "{what}");
    assert!(outcome.finite, "{what}");
    assert_eq!(outcome.updates, whole.updates[..done], "{what}");
    assert!(outcome.staleness <= whole.staleness, "{what}: {}", outcome.staleness);
    let half_done = kind == Kind::UpdatePanic || (kind == Kind::TrainPanic && case.trains_in_place);
    assert_eq!(outcome.is_whole, !half_done, "{what}");
    // an update that is made and not recorded is complete, but not counted
    if outcome.is_whole && !matches!(kind, Kind::RecordError | Kind::RecordPanic) && done > 0 {
        assert_eq!(Some(&outcome.bits), outcome.updates.last(), "{what}");
    }
}
