#![allow(unsafe_code, reason = "models of tests")]

use std::sync::Arc;

use graphmill_core::keyed;

use super::*;

/// Batches of one type in all states.
macro_rules! numbered {
    ($($slot:ty)*) => {$(
        impl BatchStates for $slot {
            type Free = $slot;
            type Sampled = $slot;
            type Extracted = $slot;
            type Trained = $slot;
        }
    )*};
}

numbered!(usize u64);

/// Random choices of a schedule: a stream of keyed numbers.
struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.drawn += 1;
        (keyed::key(&[self.seed, self.drawn]) % n.max(1) as u64) as usize
    }
}

/// Workers of every kind, with their rules: one worker for all stages, one worker per stage,
/// several workers for a stage, several trainers, standby trainers.
fn workers(kind: usize, dice: &mut Dice) -> (Vec<WorkerRole>, SchedulerRules) {
    let role = |sample, extract, train| WorkerRole { sample, extract, train, ..WorkerRole::default() };
    let update = WorkerRole { update: true, ..WorkerRole::default() };
    let standby = |sample, trainer| WorkerRole { standby: true, ..role(sample, Some(trainer), None) };
    let standby_trainer = |trainer| WorkerRole { standby: true, ..role(0, None, Some(trainer)) };
    let (round_size, max_staleness) = (1 + dice.below(3) as u64, dice.below(3) as u64);
    let (max_claims, one) = (1 + dice.below(2), SchedulerRules::ONE);
    let many = |trainers, dedicated| SchedulerRules {
        trainers,
        dedicated,
        max_claims,
        round_size,
        max_staleness,
        round_robin: false,
    };
    match kind {
        0 => (vec![role(1 + dice.below(4), Some(0), Some(0))], one),
        1 => (vec![role(1 + dice.below(3), None, Some(0)), role(0, Some(0), None)], one),
        2 => (
            vec![role(1, None, None), role(1, None, None), role(0, Some(0), None), role(0, None, Some(0))],
            one,
        ),
        3 => (vec![role(2, Some(0), None), role(0, Some(0), None), role(0, None, Some(0))], one),
        // time-sharing
        4 => (vec![role(1, Some(0), Some(0)), role(2, Some(1), Some(1)), update], many(2, 2)),
        // time-sharing with round-robin trainers
        9 => {
            let rules = SchedulerRules { round_robin: true, ..many(2, 2) };
            (vec![role(1, Some(0), Some(0)), role(2, Some(1), Some(1)), update], rules)
        }
        // factored
        5 => {
            let (extract, train) = (|t| role(0, Some(t), None), |t| role(0, None, Some(t)));
            let workers = [role(1, None, None), extract(0), train(0), extract(1), train(1), update];
            (workers.into(), many(2, 2))
        }
        // with standby trainers
        6 => {
            let dedicated = [role(0, Some(0), None), role(0, None, Some(0)), update];
            let workers =
                [&[standby(1, 1), standby_trainer(1), standby(2, 2), standby_trainer(2)][..], &dedicated[..]];
            (workers.concat(), many(3, 1))
        }
        // only devices that sample
        7 => {
            let workers = vec![standby(1, 0), standby_trainer(0), standby(2, 1), standby_trainer(1), update];
            (workers, many(2, 0))
        }
        // a single device
        _ => (vec![standby(1 + dice.below(2), 0), standby_trainer(0), update], many(1, 0)),
    }
}

const KINDS: usize = 10;
/// Number of random schedules, without and with `GRAPHMILL_SOAK`.
const SCHEDULES: [u64; 2] = [1000, 8000];

/// In any order of the workers' turns, every batch is completed once and reaches its trainer in
/// order, no slot is lost, no gradient is staler than the bound, and no worker waits for ever. If
/// batches fail, all rounds before the first failed one are completed, and no later round is.
#[test]
fn every_schedule_completes_every_batch_before_a_failure() {
    let mut latest = 0;
    for seed in 0..SCHEDULES[usize::from(std::env::var_os("GRAPHMILL_SOAK").is_some())] {
        let dice = &mut Dice { seed, drawn: 0 };
        let (roles, rules) = workers(seed as usize % KINDS, dice);
        let updates = roles.iter().any(|role| role.update);
        let (from, count) = (dice.below(3) as u64, dice.below(12) as u64);
        let slots = rules.round_size as usize + dice.below(7);
        let (chance, mut lowest) = ([0, 0, 30][dice.below(3)], from + count);
        let mut state = SchedulerState::<usize>::new(from, from + count, (0..slots).collect(), rules);
        let mut tasks: Vec<Option<Task<usize>>> = roles.iter().map(|_| None).collect();
        let mut ended = vec![false; roles.len()];
        let mut trained = vec![Vec::new(); rules.trainers];
        let mut begun_at = std::collections::HashMap::new();
        let (mut done, mut waited) = (Vec::new(), 0);
        while ended.iter().any(|&ended| !ended) {
            let who = dice.below(roles.len());
            let scheduler = BatchScheduler(Alone(std::cell::RefCell::new(state)));
            let mut fails = |number: u64| {
                let fails = chance > 0 && dice.below(chance) == 0;
                let round = from + (number - from) / rules.round_size * rules.round_size;
                lowest = lowest.min(if fails { round } else { u64::MAX });
                fails
            };
            let error = || Error::usage("injected");
            waited = if tasks[who].is_some() { 0 } else { waited + 1 };
            match tasks[who].take() {
                Some(Task::Sample(batches)) => {
                    for (number, slot) in batches {
                        if fails(number) {
                            scheduler.fail(number, slot, error());
                        } else {
                            scheduler.sampled(number, slot);
                        }
                    }
                }
                Some(Task::Extract(number, slot)) => {
                    if fails(number) {
                        scheduler.fail(number, slot, error());
                    } else {
                        scheduler.extracted(number, slot);
                    }
                }
                Some(Task::Train(number, slot)) => {
                    trained[roles[who].train.unwrap()].push(number);
                    if !updates {
                        done.push(number);
                        scheduler.free(slot);
                    } else if fails(number) {
                        scheduler.fail(number, slot, error());
                    } else {
                        scheduler.trained(number, slot, 1.0 + number as f64 / 8.0, roles[who].standby);
                    }
                }
                Some(Task::Update(round)) => {
                    let version = scheduler.inspect(SchedulerState::version);
                    for (number, slot) in round {
                        let late = version - begun_at[&number];
                        assert!(
                            late <= rules.max_staleness,
                            "seed {seed}: batch {number} is {late} updates stale"
                        );
                        latest = latest.max(late);
                        done.push(number);
                        scheduler.free(slot);
                    }
                    scheduler.updated();
                }
                None => {}
            }
            state = scheduler.into_inner().0.into_inner();
            if !ended[who] {
                match state.step(roles[who]) {
                    NextStep::Task(task) => {
                        if let Task::Train(number, _) = &task {
                            begun_at.insert(*number, state.version());
                        }
                        tasks[who] = Some(task);
                        waited = 0;
                    }
                    NextStep::End => ended[who] = true,
                    NextStep::Wait => {}
                }
            }
            assert!(waited < 2000, "seed {seed}: all workers wait: {:?}", state.depths());
        }
        for (trainer, numbers) in trained.iter().enumerate() {
            assert!(numbers.is_sorted(), "seed {seed}: {numbers:?}");
            let own =
                |&number: &u64| (number - from) % rules.round_size % rules.trainers as u64 == trainer as u64;
            assert!(
                !rules.round_robin || numbers.iter().all(own),
                "seed {seed}: {numbers:?} of trainer {trainer}"
            );
        }
        assert_eq!(done, (from..lowest).collect::<Vec<_>>(), "seed {seed}");
        let (failure, mut slots_back) = state.end();
        assert_eq!(failure.is_some(), lowest < from + count, "seed {seed}");
        slots_back.sort_unstable();
        assert_eq!(slots_back, (0..slots).collect::<Vec<_>>(), "seed {seed}");
    }
    assert_eq!(latest, 2, "no schedule reaches the bound");
}

/// Monitor for one thread, which never waits.
struct Alone<S>(std::cell::RefCell<S>);

// SAFETY: only the thread that made it uses it; the trait requires `Sync`.
unsafe impl<S> Sync for Alone<S> {}

impl<S> Monitor<S> for Alone<S> {
    fn look<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.0.borrow())
    }

    fn until<R>(&self, mut step: impl FnMut(&mut S) -> Option<R>) -> R {
        step(&mut self.0.borrow_mut()).expect("a single thread never waits")
    }
}

/// Monitor whose lock and condition belong to the model checker.
struct Checked<S> {
    state: shuttle::sync::Mutex<S>,
    changed: shuttle::sync::Condvar,
}

impl<S: Send> Monitor<S> for Checked<S> {
    fn look<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.state.lock().unwrap())
    }

    fn until<R>(&self, mut step: impl FnMut(&mut S) -> Option<R>) -> R {
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(result) = step(&mut state) {
                drop(state);
                self.changed.notify_all();
                return result;
            }
            state = self.changed.wait(state).unwrap();
        }
    }
}

/// Under schedules of a model checker, which finds threads that wait for ever and stale gradients.
#[test]
fn no_schedule_of_threads_deadlocks() {
    const BATCHES: u64 = 4;
    for kind in 0..KINDS {
        let model = move || {
            let (roles, rules) = workers(kind, &mut Dice { seed: kind as u64, drawn: 0 });
            let updates = roles.iter().any(|role| role.update);
            let state = SchedulerState::<u64>::new(0, BATCHES, vec![0; 4], rules);
            let (state, changed) = (shuttle::sync::Mutex::new(state), shuttle::sync::Condvar::new());
            let scheduler = Arc::new(BatchScheduler::new(Checked { state, changed }));
            let threads: Vec<_> = roles
                .into_iter()
                .map(|role| {
                    let scheduler = scheduler.clone();
                    shuttle::thread::spawn(move || {
                        let mut done = 0_u64;
                        while let Some(task) = scheduler.next(role) {
                            match task {
                                Task::Sample(batches) => {
                                    for (number, slot) in batches {
                                        scheduler.sampled(number, slot);
                                    }
                                }
                                Task::Extract(3, slot) if role.train.is_none() => {
                                    scheduler.fail(3, slot, Error::usage("injected"));
                                }
                                Task::Extract(number, slot) => scheduler.extracted(number, slot),
                                Task::Train(number, _) if updates => {
                                    // parameters are read after the scheduler has checked the bound
                                    let version = scheduler.inspect(SchedulerState::version);
                                    scheduler.trained(number, version, 1.0, role.standby);
                                }
                                Task::Train(_, slot) => {
                                    done += 1;
                                    scheduler.free(slot);
                                }
                                Task::Update(round) => {
                                    let version = scheduler.inspect(SchedulerState::version);
                                    scheduler.updated();
                                    for (_, began_at) in round {
                                        assert!(version - began_at <= rules.max_staleness);
                                        done += 1;
                                        scheduler.free(began_at);
                                    }
                                }
                            }
                        }
                        done
                    })
                })
                .collect();
            let done: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert!(done == BATCHES || done == 3 / rules.round_size * rules.round_size, "{done}");
        };
        shuttle::check_random(model, 200);
        if kind > 0 {
            // the checker refuses a model of a single thread
            shuttle::check_pct(model, 200, 3);
        }
    }
}

/// Next task of a worker, in words.
fn next(state: &mut SchedulerState<usize>, role: WorkerRole) -> String {
    match state.step(role) {
        NextStep::Task(Task::Sample(batches)) => {
            format!("sample {:?}", batches.iter().map(|(number, _)| *number).collect::<Vec<_>>())
        }
        NextStep::Task(Task::Extract(number, _)) => format!("extract {number}"),
        NextStep::Task(Task::Train(number, _)) => format!("train on {number}"),
        NextStep::Task(Task::Update(round)) => format!("update by {}", round.len()),
        NextStep::Wait => "wait".into(),
        NextStep::End => "end".into(),
    }
}

#[test]
fn the_error_of_the_lowest_failed_batch_remains() {
    let rules = SchedulerRules { round_size: 3, ..SchedulerRules::ONE };
    // of two rounds, and of one
    for failed in [[9, 4], [4, 9], [5, 4], [4, 5]] {
        let mut state = SchedulerState::<usize>::new(0, 12, (0..12).collect(), rules);
        let role = WorkerRole { sample: 12, ..WorkerRole::default() };
        let NextStep::Task(Task::Sample(mut batches)) = state.step(role) else { panic!("slots are free") };
        let scheduler = BatchScheduler::new(Alone(std::cell::RefCell::new(state)));
        let late = batches.pop().unwrap();
        batches.retain(|&(number, slot)| {
            let fails = failed.contains(&number);
            if !fails {
                scheduler.sampled(number, slot);
            }
            fails
        });
        for number in failed {
            let (_, slot) = batches.iter().find(|(of, _)| *of == number).unwrap();
            scheduler.fail(number, *slot, Error::usage(format!("batch {number} failed")));
        }
        assert_eq!(scheduler.inspect(SchedulerState::depths), (3, 0), "batches 0, 1 and 2 are left");
        // a batch that ends its stage after the failure frees its slot
        scheduler.sampled(late.0, late.1);
        let (error, mut slots) = scheduler.into_inner().0.into_inner().end();
        assert_eq!(error.unwrap().to_string(), Error::usage("batch 4 failed").to_string());
        slots.sort_unstable();
        assert_eq!(slots, (0..12).collect::<Vec<_>>());
    }
}

#[test]
fn no_worker_gets_a_task_after_close() {
    let state = SchedulerState::<usize>::new(0, 4, vec![0], SchedulerRules::ONE);
    let scheduler = BatchScheduler::new(Alone(std::cell::RefCell::new(state)));
    let role = WorkerRole { sample: 1, extract: Some(0), train: Some(0), ..WorkerRole::default() };
    assert!(matches!(scheduler.next(role), Some(Task::Sample(_))));
    scheduler.close();
    scheduler.sampled(0, 0);
    assert!(scheduler.next(role).is_none());
}

/// State of six sampled batches for a dedicated trainer and one on standby.
fn sampled(seconds: [&[f64]; 2]) -> SchedulerState<usize> {
    let rules = SchedulerRules { trainers: 2, ..SchedulerRules::ONE };
    let mut state = SchedulerState::new(0, 6, (0..6).collect(), rules);
    let sampler = WorkerRole { sample: 5, ..WorkerRole::default() };
    let standby = WorkerRole { extract: Some(1), standby: true, ..WorkerRole::default() };
    assert_eq!(next(&mut state, sampler), "sample [0, 1, 2, 3, 4]");
    assert_eq!(next(&mut state, standby), "wait", "a batch is not sampled yet");
    assert_eq!(next(&mut state, sampler), "sample [5]");
    let scheduler = BatchScheduler::new(Alone(std::cell::RefCell::new(state)));
    (0..6).for_each(|number| scheduler.sampled(number, number as usize));
    for (seconds, standby) in seconds.into_iter().zip([false, true]) {
        // batches of an earlier epoch
        seconds.iter().for_each(|&seconds| scheduler.trained(0, 0, seconds, standby));
    }
    scheduler.into_inner().0.into_inner()
}

#[test]
fn standby_trainers_take_batches_while_that_is_profitable() {
    let dedicated = WorkerRole { extract: Some(0), ..WorkerRole::default() };
    let standby = WorkerRole { extract: Some(1), standby: true, ..WorkerRole::default() };
    // trainers that were not timed are equally fast: it takes all but the last batch
    let mut state = sampled([&[], &[]]);
    let tasks: Vec<String> = (0..6).map(|_| next(&mut state, standby)).collect();
    let expected = ["extract 0", "extract 1", "extract 2", "extract 3", "extract 4", "end"];
    assert_eq!(tasks, expected);
    // four times as slow: it takes a batch if more than four are left, and none afterwards, even if
    // the dedicated trainer becomes slow
    let mut state = sampled([&[1.0], &[4.0]]);
    assert_eq!([(); 3].map(|()| next(&mut state, standby)), ["extract 0", "extract 1", "end"]);
    state.pace[0] = Some(100.0);
    assert_eq!(next(&mut state, standby), "end");
    assert_eq!([(); 2].map(|()| next(&mut state, dedicated)), ["extract 2", "extract 3"]);
    // the newest batch counts for a quarter: 1 and 5 seconds are a pace of 2
    for (seconds, task) in [(11.9, "extract 0"), (12.1, "end")] {
        let mut state = sampled([&[1.0, 5.0], &[seconds]]);
        assert_eq!(next(&mut state, standby), task, "{seconds} seconds");
    }
}

#[test]
fn devices_without_dedicated_trainers_train_until_no_batch_waits() {
    let rules = SchedulerRules { dedicated: 0, ..SchedulerRules::ONE };
    let mut state = SchedulerState::<usize>::new(0, 5, vec![0, 1], rules);
    let device = WorkerRole { sample: 1, extract: Some(0), standby: true, ..WorkerRole::default() };
    let trainer = WorkerRole { train: Some(0), standby: true, ..WorkerRole::default() };
    assert_eq!(next(&mut state, device), "sample [0]");
    state.put(0, 0, |state| &mut state.sampled);
    assert_eq!(next(&mut state, device), "sample [1]", "a slot is free");
    state.put(1, 1, |state| &mut state.sampled);
    assert_eq!(next(&mut state, device), "extract 0", "no slot is free");
    state.put(0, 0, |state| &mut state.extracted);
    assert_eq!(next(&mut state, trainer), "train on 0");
    state.free.push(0);
    // it goes on although a slot is free again
    assert_eq!(next(&mut state, device), "extract 1");
    state.put(1, 1, |state| &mut state.extracted);
    assert_eq!(next(&mut state, trainer), "train on 1");
    state.free.push(1);
    assert_eq!(next(&mut state, device), "sample [2]");
}
