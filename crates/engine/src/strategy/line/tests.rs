use std::sync::Arc;

use graphmill_graph::keyed;

use super::*;

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

/// Crews of all kinds: one that does all in turns, workers apart, several of a kind, several trainers.
fn crew(dice: &mut Dice) -> (Vec<Can>, usize) {
    let can = |sample, extract, train| Can { sample, extract, train };
    match dice.below(6) {
        0 => (vec![can(1 + dice.below(4), Some(0), Some(0))], 1),
        1 => (vec![can(1 + dice.below(3), None, Some(0)), can(0, Some(0), None)], 1),
        2 => (vec![can(1, None, None), can(1, None, None), can(0, Some(0), None), can(0, None, Some(0))], 1),
        3 => (vec![can(2, Some(0), None), can(0, Some(0), None), can(0, None, Some(0))], 1),
        4 => (vec![can(1, None, None), can(0, Some(0), Some(0)), can(0, Some(1), Some(1))], 2),
        _ => {
            let (extract, train) = (|t| can(0, Some(t), None), |t| can(0, None, Some(t)));
            (vec![can(1, None, None), can(1, None, None), extract(0), train(0), extract(1), train(1)], 2)
        }
    }
}

/// In whatever order the workers get their turns: every batch goes all the way once, reaches its trainer in order, no slot is lost,
/// and nobody is left waiting. Where batches fail, all before the first that failed go all the way and none behind it.
#[test]
fn any_schedule_brings_every_batch_to_its_end() {
    for seed in 0..3000 {
        let dice = &mut Dice { seed, thrown: 0 };
        let (crew, trainers) = crew(dice);
        let (from, count, slots) = (dice.below(3) as u64, dice.below(12) as u64, 1 + dice.below(7));
        let (chance, mut lowest) = ([0, 0, 30][dice.below(3)], from + count);
        let mut state = State::new(from, from + count, (0..slots).collect(), trainers);
        let mut hands: Vec<Option<Task<usize>>> = crew.iter().map(|_| None).collect();
        let mut ended = vec![false; crew.len()];
        let mut trained = vec![Vec::new(); trainers];
        let mut sampled = Vec::new();
        let mut waited = 0;
        while ended.iter().any(|&ended| !ended) {
            let who = dice.below(crew.len());
            let line = Line(Alone(std::cell::RefCell::new(state)));
            let mut fails = |number: u64| {
                let fails = chance > 0 && dice.below(chance) == 0;
                lowest = lowest.min(if fails { number } else { u64::MAX });
                fails
            };
            let error = || Error::usage("injected");
            waited += 1;
            match hands[who].take() {
                Some(Task::Sample(gang)) => {
                    waited = 0;
                    for (number, slot) in gang {
                        sampled.push(number);
                        if fails(number) {
                            line.fail(number, slot, error());
                        } else {
                            line.sampled(number, slot);
                        }
                    }
                }
                Some(Task::Extract(number, slot)) => {
                    waited = 0;
                    if fails(number) {
                        line.fail(number, slot, error());
                    } else {
                        line.extracted(number, slot);
                    }
                }
                Some(Task::Train(number, slot)) => {
                    waited = 0;
                    trained[crew[who].train.unwrap()].push(number);
                    line.trained(slot);
                }
                None => {}
            }
            state = line.into_inner().0.into_inner();
            if !ended[who] {
                match state.step(crew[who]) {
                    Next::Task(task) => {
                        hands[who] = Some(task);
                        waited = 0;
                    }
                    Next::End => ended[who] = true,
                    Next::Wait => {}
                }
            }
            assert!(waited < 2000, "seed {seed}: everyone waits: {state:?}");
        }
        for numbers in &trained {
            assert!(numbers.is_sorted(), "seed {seed}: {numbers:?}");
        }
        let mut all = trained.concat();
        all.sort_unstable();
        assert_eq!(all, (from..lowest).collect::<Vec<_>>(), "seed {seed}");
        sampled.sort_unstable();
        sampled.dedup();
        assert!(sampled.len() >= all.len());
        let (failure, mut slots_back) = state.end();
        assert_eq!(failure.is_some(), lowest < from + count);
        slots_back.sort_unstable();
        assert_eq!(slots_back, (0..slots).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// A monitor for one thread, which never has to wait.
struct Alone<S>(std::cell::RefCell<S>);

// SAFETY: it is used by the thread that made it alone; `Sync` is asked for by the trait.
unsafe impl<S> Sync for Alone<S> {}

impl<S> Monitor<S> for Alone<S> {
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

/// The same with real waiting, under schedules that a model checker chooses: it finds any in which a thread waits for ever.
#[test]
fn no_schedule_of_threads_locks_up() {
    const BATCHES: u64 = 4;
    for kind in 0..6 {
        let model = move || {
            let dice = &mut Dice { seed: 0, thrown: 0 };
            while dice.below(6) != kind {}
            dice.thrown -= 1;
            let (crew, trainers) = crew(dice);
            let state = State::new(0, BATCHES, vec![(); 3], trainers);
            let (state, changed) = (shuttle::sync::Mutex::new(state), shuttle::sync::Condvar::new());
            let line = Arc::new(Line::new(Checked { state, changed }));
            let threads: Vec<_> = crew
                .into_iter()
                .map(|can| {
                    let line = line.clone();
                    shuttle::thread::spawn(move || {
                        let mut trained = 0_u64;
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
                                Task::Extract(number, slot) => drop(line.extracted(number, slot)),
                                Task::Train(_, slot) => {
                                    trained += 1;
                                    line.trained(slot);
                                }
                            }
                        }
                        trained
                    })
                })
                .collect();
            let trained: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert!(trained == BATCHES || trained == BATCHES - 1, "{trained}");
        };
        shuttle::check_random(model, 300);
        if kind > 0 {
            // it refuses a model of a single thread
            shuttle::check_pct(model, 300, 3);
        }
    }
}
