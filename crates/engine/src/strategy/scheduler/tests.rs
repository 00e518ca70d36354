use std::sync::Arc;

use graphmill_core::keyed;

use super::*;

/// Slots of one type in all states.
macro_rules! numbered {
    ($($slot:ty)*) => {$(
        impl Slots for $slot {
            type Free = $slot;
            type Sampled = $slot;
            type Extracted = $slot;
            type Trained = $slot;
        }
    )*};
}

numbered!(usize u64);

/// Choices for a schedule: a stream of keyed numbers.
struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.thrown += 1;
        (keyed::key(&[self.seed, self.thrown]) % n.max(1) as u64) as usize
    }
}

/// Crews of all kinds: one that does all in turns, workers apart, several of a kind, several
/// trainers, trainers on standby; and the rules they work by.
fn crew(kind: usize, dice: &mut Dice) -> (Vec<WorkerRole>, Rules) {
    let can = |sample, extract, train| WorkerRole { sample, extract, train, ..WorkerRole::default() };
    let update = WorkerRole { update: true, ..WorkerRole::default() };
    let standby = |sample, trainer| WorkerRole { standby: true, ..can(sample, Some(trainer), None) };
    let lent = |trainer| WorkerRole { standby: true, ..can(0, None, Some(trainer)) };
    let (group, bound) = (1 + dice.below(3) as u64, dice.below(3) as u64);
    let (ahead, one) = (1 + dice.below(2), Rules::ONE);
    let many = |trainers, normal| Rules { trainers, normal, ahead, group, bound, dealt: false };
    match kind {
        0 => (vec![can(1 + dice.below(4), Some(0), Some(0))], one),
        1 => (vec![can(1 + dice.below(3), None, Some(0)), can(0, Some(0), None)], one),
        2 => {
            (vec![can(1, None, None), can(1, None, None), can(0, Some(0), None), can(0, None, Some(0))], one)
        }
        3 => (vec![can(2, Some(0), None), can(0, Some(0), None), can(0, None, Some(0))], one),
        // time-sharing
        4 => (vec![can(1, Some(0), Some(0)), can(2, Some(1), Some(1)), update], many(2, 2)),
        // the same, with rounds that are dealt
        9 => {
            let rules = Rules { dealt: true, ..many(2, 2) };
            (vec![can(1, Some(0), Some(0)), can(2, Some(1), Some(1)), update], rules)
        }
        // factored
        5 => {
            let (extract, train) = (|t| can(0, Some(t), None), |t| can(0, None, Some(t)));
            let workers = [can(1, None, None), extract(0), train(0), extract(1), train(1), update];
            (workers.into(), many(2, 2))
        }
        // with a Trainer on standby
        6 => {
            let normal = [can(0, Some(0), None), can(0, None, Some(0)), update];
            let workers = [&[standby(1, 1), lent(1), standby(2, 2), lent(2)][..], &normal[..]];
            (workers.concat(), many(3, 1))
        }
        // nobody but devices that sample
        7 => {
            let workers = vec![standby(1, 0), lent(0), standby(2, 1), lent(1), update];
            (workers, many(2, 0))
        }
        // a lone device
        _ => (vec![standby(1 + dice.below(2), 0), lent(0), update], many(1, 0)),
    }
}

const KINDS: usize = 10;
/// Random schedules, and those of a soak (`GRAPHMILL_SOAK`).
const SCHEDULES: [u64; 2] = [1000, 8000];

/// In whatever order the workers get their turns: every batch goes all the way once, reaches its
/// trainer in order, no slot is lost, no gradient is later than it may be, and nobody is left
/// waiting. Where batches fail, all rounds before the first that failed go all the way and none
/// behind it.
#[test]
fn any_schedule_brings_every_batch_to_its_end() {
    let mut latest = 0;
    for seed in 0..SCHEDULES[usize::from(std::env::var_os("GRAPHMILL_SOAK").is_some())] {
        let dice = &mut Dice { seed, thrown: 0 };
        let (crew, rules) = crew(seed as usize % KINDS, dice);
        let updates = crew.iter().any(|can| can.update);
        let (from, count) = (dice.below(3) as u64, dice.below(12) as u64);
        let slots = rules.group as usize + dice.below(7);
        let (chance, mut lowest) = ([0, 0, 30][dice.below(3)], from + count);
        let mut state = SchedulerState::<usize>::new(from, from + count, (0..slots).collect(), rules);
        let mut hands: Vec<Option<Task<usize>>> = crew.iter().map(|_| None).collect();
        let mut ended = vec![false; crew.len()];
        let mut trained = vec![Vec::new(); rules.trainers];
        let mut begun_at = std::collections::HashMap::new();
        let (mut done, mut waited) = (Vec::new(), 0);
        while ended.iter().any(|&ended| !ended) {
            let who = dice.below(crew.len());
            let line = BatchScheduler(Alone(std::cell::RefCell::new(state)));
            let mut fails = |number: u64| {
                let fails = chance > 0 && dice.below(chance) == 0;
                let round = from + (number - from) / rules.group * rules.group;
                lowest = lowest.min(if fails { round } else { u64::MAX });
                fails
            };
            let error = || Error::usage("injected");
            waited = if hands[who].is_some() { 0 } else { waited + 1 };
            match hands[who].take() {
                Some(Task::Sample(gang)) => {
                    for (number, slot) in gang {
                        if fails(number) {
                            line.fail(number, slot, error());
                        } else {
                            line.sampled(number, slot);
                        }
                    }
                }
                Some(Task::Extract(number, slot)) => {
                    if fails(number) {
                        line.fail(number, slot, error());
                    } else {
                        line.extracted(number, slot);
                    }
                }
                Some(Task::Train(number, slot)) => {
                    trained[crew[who].train.unwrap()].push(number);
                    if !updates {
                        done.push(number);
                        line.free(slot);
                    } else if fails(number) {
                        line.fail(number, slot, error());
                    } else {
                        line.trained(number, slot, 1.0 + number as f64 / 8.0, crew[who].standby);
                    }
                }
                Some(Task::Update(round)) => {
                    let version = line.see(SchedulerState::version);
                    for (number, slot) in round {
                        let late = version - begun_at[&number];
                        assert!(late <= rules.bound, "seed {seed}: {number} is {late} late");
                        latest = latest.max(late);
                        done.push(number);
                        line.free(slot);
                    }
                    line.updated();
                }
                None => {}
            }
            state = line.into_inner().0.into_inner();
            if !ended[who] {
                match state.step(crew[who]) {
                    Next::Task(task) => {
                        if let Task::Train(number, _) = &task {
                            begun_at.insert(*number, state.version());
                        }
                        hands[who] = Some(task);
                        waited = 0;
                    }
                    Next::End => ended[who] = true,
                    Next::Wait => {}
                }
            }
            assert!(waited < 2000, "seed {seed}: everyone waits: {:?}", state.depths());
        }
        for (trainer, numbers) in trained.iter().enumerate() {
            assert!(numbers.is_sorted(), "seed {seed}: {numbers:?}");
            let own = |&number: &u64| (number - from) % rules.group % rules.trainers as u64 == trainer as u64;
            assert!(!rules.dealt || numbers.iter().all(own), "seed {seed}: {numbers:?} of trainer {trainer}");
        }
        assert_eq!(done, (from..lowest).collect::<Vec<_>>(), "seed {seed}");
        let (failure, mut slots_back) = state.end();
        assert_eq!(failure.is_some(), lowest < from + count, "seed {seed}");
        slots_back.sort_unstable();
        assert_eq!(slots_back, (0..slots).collect::<Vec<_>>(), "seed {seed}");
    }
    assert_eq!(latest, 2, "the bound is reached");
}

/// A monitor for one thread, which never has to wait.
struct Alone<S>(std::cell::RefCell<S>);

// SAFETY: it is used by the thread that made it alone; `Sync` is asked for by the trait.
unsafe impl<S> Sync for Alone<S> {}

impl<S> Monitor<S> for Alone<S> {
    fn look<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.0.borrow())
    }

    fn until<R>(&self, mut step: impl FnMut(&mut S) -> Option<R>) -> R {
        step(&mut self.0.borrow_mut()).expect("nothing waits here")
    }
}

/// A monitor whose lock and condition belong to the model checker.
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

/// The same with real waiting, under schedules that a model checker chooses: it finds any in which
/// a thread waits for ever, and any in which a gradient is too late.
#[test]
fn no_schedule_of_threads_locks_up() {
    const BATCHES: u64 = 4;
    for kind in 0..KINDS {
        let model = move || {
            let (crew, rules) = crew(kind, &mut Dice { seed: kind as u64, thrown: 0 });
            let updates = crew.iter().any(|can| can.update);
            let state = SchedulerState::<u64>::new(0, BATCHES, vec![0; 4], rules);
            let (state, changed) = (shuttle::sync::Mutex::new(state), shuttle::sync::Condvar::new());
            let line = Arc::new(BatchScheduler::new(Checked { state, changed }));
            let threads: Vec<_> = crew
                .into_iter()
                .map(|can| {
                    let line = line.clone();
                    shuttle::thread::spawn(move || {
                        let mut done = 0_u64;
                        while let Some(task) = line.next(can) {
                            match task {
                                Task::Sample(gang) => {
                                    for (number, slot) in gang {
                                        line.sampled(number, slot);
                                    }
                                }
                                Task::Extract(3, slot) if can.train.is_none() => {
                                    line.fail(3, slot, Error::usage("injected"));
                                }
                                Task::Extract(number, slot) => line.extracted(number, slot),
                                Task::Train(number, _) if updates => {
                                    // what it begins from is read later than it was let to begin
                                    let version = line.see(SchedulerState::version);
                                    line.trained(number, version, 1.0, can.standby);
                                }
                                Task::Train(_, slot) => {
                                    done += 1;
                                    line.free(slot);
                                }
                                Task::Update(round) => {
                                    let version = line.see(SchedulerState::version);
                                    line.updated();
                                    for (_, began_at) in round {
                                        assert!(version - began_at <= rules.bound);
                                        done += 1;
                                        line.free(began_at);
                                    }
                                }
                            }
                        }
                        done
                    })
                })
                .collect();
            let done: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert!(done == BATCHES || done == 3 / rules.group * rules.group, "{done}");
        };
        shuttle::check_random(model, 200);
        if kind > 0 {
            // it refuses a model of a single thread
            shuttle::check_pct(model, 200, 3);
        }
    }
}
