//! Threads that make numbered values ahead of the consumer, in order.
//!
//! At most `ahead` values from the next one on are finished or in progress; a value does not depend
//! on the thread that makes it. The threads end after the last value, after an error, or when the
//! [`Prefetch`] is dropped. Dropping waits for them, but only up to a second: a thread that is
//! busy with a huge value ends after finishing it. A forked process has no such threads: there,
//! taking a value is an error, and dropping does not wait.

#![forbid(unsafe_code)]

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use graphmill_core::memory;

use crate::fault::Fault;

/// Time limit of dropping a prefetcher, which waits for its threads.
const GRACE: Duration = Duration::from_secs(1);

/// Makes the value of a number. Each thread owns one.
pub type Make<T> = Box<dyn FnMut(u64) -> Result<T, Fault> + Send>;

/// Consumer's end of the threads that make values ahead of time.
pub struct Prefetch<T> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
    /// Process that started the threads.
    process: u32,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Signals that a value is finished.
    made: Condvar,
    /// Signals that one more value may be started.
    has_capacity: Condvar,
    /// Signals that a thread has ended.
    ended: Condvar,
}

struct State<T> {
    /// Values from `next` on, `None` while in progress.
    window: VecDeque<Option<Result<T, Fault>>>,
    /// Number of the value taken next.
    next: u64,
    /// Number of the value started next.
    begun: u64,
    end: u64,
    /// Maximum number of values finished or in progress.
    ahead: u64,
    stop: bool,
    /// Number of running threads.
    alive: usize,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result of [`Prefetch::take`].
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// The next value.
    Value(T),
    /// The next value is not finished yet.
    NotYet,
    /// All values have been taken.
    End,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts making the values of `numbers` with one thread per maker, at most `ahead` of them (at
    /// least 1) before they are taken.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(numbers: std::ops::Range<u64>, makers: Vec<Make<T>>, ahead: usize) -> Result<Self, String> {
        let state = State {
            window: VecDeque::new(),
            next: numbers.start,
            begun: numbers.start,
            end: numbers.end,
            ahead: ahead.max(1) as u64,
            stop: false,
            alive: 0,
        };
        let [made, has_capacity, ended] = std::array::from_fn(|_| Condvar::new());
        let shared = Arc::new(Shared { state: Mutex::new(state), made, has_capacity, ended });
        let mut this = Self { shared, threads: Vec::new(), process: process::id() };
        for make in makers {
            let shared = this.shared.clone();
            this.shared.lock().alive += 1;
            let thread = thread::Builder::new().name("graphmill-loader".into()).spawn(move || {
                work(&shared, make);
                shared.lock().alive -= 1;
                shared.ended.notify_all();
            });
            match thread {
                Ok(thread) => this.threads.push(thread),
                Err(error) => {
                    this.shared.lock().alive -= 1;
                    return Err(format!("cannot start a thread: {error}; use fewer num_threads"));
                }
            }
        }
        Ok(this)
    }

    /// Takes the next value, waiting at most `timeout`.
    ///
    /// # Errors
    /// The value's maker failed, and no values follow; or this is a forked process.
    pub fn take(&self, timeout: Duration) -> Result<Taken<T>, Fault> {
        if self.process != process::id() {
            let message =
                "this process was forked from the one that makes the batches; start a new iterator here";
            return Err(Fault::Value(message.into()));
        }
        let mut state = self.shared.lock();
        if state.next == state.end {
            return Ok(Taken::End);
        }
        if !matches!(state.window.front(), Some(Some(_))) {
            let wait = |state: &mut State<T>| !matches!(state.window.front(), Some(Some(_)));
            let (waited, _) = self
                .shared
                .made
                .wait_timeout_while(state, timeout, wait)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited;
        }
        let Some(Some(value)) = state.window.front_mut().map(Option::take) else { return Ok(Taken::NotYet) };
        state.window.pop_front();
        state.next += 1;
        if value.is_err() {
            state.next = state.end;
            state.begun = state.end;
        }
        drop(state);
        self.shared.has_capacity.notify_all();
        value.map(Taken::Value)
    }

    /// Number of the value taken next.
    pub fn next(&self) -> u64 {
        self.shared.lock().next
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            // the threads do not exist here, and the lock may never be released
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        let mut state = self.shared.lock();
        state.stop = true;
        self.shared.has_capacity.notify_all();
        let wait = |state: &mut State<T>| state.alive > 0;
        let (state, waited) =
            self.shared.ended.wait_timeout_while(state, GRACE, wait).unwrap_or_else(PoisonError::into_inner);
        drop(state);
        if !waited.timed_out() {
            for thread in self.threads.drain(..) {
                // panics of makers are caught, so join cannot fail
                let _ = thread.join();
            }
        }
    }
}

/// Body of a thread: takes the next number within `ahead` and makes its value.
fn work<T>(shared: &Shared<T>, mut make: Make<T>) {
    loop {
        let mut state = shared.lock();
        while !state.stop && state.begun < state.end && state.begun >= state.next + state.ahead {
            state = shared.has_capacity.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop || state.begun >= state.end {
            return;
        }
        let number = state.begun;
        state.begun += 1;
        state.window.push_back(None);
        drop(state);
        let value = catch_unwind(AssertUnwindSafe(|| make(number))).unwrap_or_else(|panic| {
            if let Some(refused) = memory::refusal(&*panic) {
                return Err(Fault::Memory(format!("batch {number}: {refused}")));
            }
            let message =
                panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(Fault::Value(format!(
                "batch {number}: internal error: {}; please report it",
                message.unwrap_or("unknown")
            )))
        });
        let mut state = shared.lock();
        // earlier values may have been taken since; after an error no consumer waits for this one
        if number >= state.next {
            let index = (number - state.next) as usize;
            if let Some(slot) = state.window.get_mut(index) {
                *slot = Some(value);
            }
        }
        drop(state);
        shared.made.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn makers<T>(n: usize, make: impl Fn(u64) -> Result<T, Fault> + Send + Sync + 'static) -> Vec<Make<T>> {
        let make = Arc::new(make);
        let one = |_| {
            let make = make.clone();
            Box::new(move |number| make(number)) as Make<T>
        };
        (0..n).map(one).collect()
    }

    #[test]
    fn values_come_in_order_and_within_the_window() {
        for threads in [1, 2, 5] {
            let (taken, most) = (Arc::new(AtomicU64::new(3)), Arc::new(AtomicU64::new(0)));
            let (seen, far) = (taken.clone(), most.clone());
            let make = move |number: u64| {
                far.fetch_max(number - seen.load(SeqCst), SeqCst);
                if number.is_multiple_of(3) {
                    thread::sleep(Duration::from_micros(300));
                }
                Ok(number * number)
            };
            let values = Prefetch::start(3..200, makers(threads, make), 4).unwrap();
            for number in 3..200 {
                assert_eq!(values.take(LONG), Ok(Taken::Value(number * number)));
                taken.store(number + 1, SeqCst);
            }
            assert_eq!(values.take(LONG), Ok(Taken::End));
            // a maker may start before `taken` is updated, which allows one more
            assert!(most.load(SeqCst) <= 4, "{}", most.load(SeqCst));
        }
    }

    #[test]
    fn an_error_or_a_panic_is_the_last_value() {
        for bad in ["an error", "a panic"] {
            let make = move |number: u64| match number {
                7 if bad == "a panic" => panic!("a panic"),
                7 => Err(Fault::File("an error".into())),
                _ => Ok(number),
            };
            let values = Prefetch::start(0..1000, makers(3, make), 8).unwrap();
            for number in 0..7 {
                assert_eq!(values.take(LONG), Ok(Taken::Value(number)));
            }
            assert!(values.take(LONG).unwrap_err().to_string().contains(bad));
            assert_eq!(values.take(LONG), Ok(Taken::End));
        }
    }

    #[test]
    fn dropping_ends_the_threads_and_drops_the_values() {
        let alive = Arc::new(AtomicUsize::new(0));
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        for taken in 0..20 {
            let count = alive.clone();
            let make = move |_| {
                count.fetch_add(1, SeqCst);
                Ok(Counted(count.clone()))
            };
            let values = Prefetch::start(0..1 << 40, makers(3, make), 6).unwrap();
            for _ in 0..taken {
                assert!(matches!(values.take(LONG), Ok(Taken::Value(_))));
            }
            drop(values);
            assert_eq!(alive.load(SeqCst), 0);
        }
        let slow = |_| {
            thread::sleep(Duration::from_millis(200));
            Ok(())
        };
        let values = Prefetch::start(0..1, makers(1, slow), 1).unwrap();
        assert_eq!(values.take(Duration::from_millis(1)), Ok(Taken::NotYet));
        assert_eq!(values.take(LONG), Ok(Taken::Value(())));
        assert_eq!(Prefetch::start(5..5, makers(2, Ok), 1).unwrap().take(LONG), Ok(Taken::End));
    }
}
