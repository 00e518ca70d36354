//! Faults of the program: panics that no boundary of a library turned into an error. The tasks of a
//! parallel loop may all panic at the same place, so the message of the first is printed. The
//! command then ends with one `error:` line and status 101.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Exit status of a command that panicked, as without a handler.
pub(crate) const STATUS: u8 = 101;

/// Time in which panics at one place are one fault. A service goes on after a panic, so later ones
/// are printed again.
const ONE_FAULT: Duration = Duration::from_secs(1);

/// Place and time of a panic.
type Seen = (String, Instant);

/// Prints the first of several panics at the same place.
pub(crate) fn install() {
    let print = take_hook();
    let last: Mutex<Option<Seen>> = Mutex::new(None);
    set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if is_new(&mut last, (place, Instant::now())) {
            print(panic);
        }
    }));
}

/// Returns true if a panic is not a repetition of the last one, and remembers it.
fn is_new(last: &mut Option<Seen>, panic: Seen) -> bool {
    let is_same =
        |before: &Seen| before.0 == panic.0 && panic.1.saturating_duration_since(before.1) < ONE_FAULT;
    let is_new = !last.as_ref().is_some_and(is_same);
    *last = Some(panic);
    is_new
}

/// Runs a command. A panic becomes the text of an error.
///
/// # Errors
/// The command panicked.
pub(crate) fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let message = message(&*payload);
        format!("a fault of the program: {message}; please report it with the command and its output")
    })
}

/// Message of a panic.
fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it has no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_at_one_place_are_printed_once() {
        let (mut last, began) = (None, Instant::now());
        let mut printed = |place: &str, millis| {
            is_new(&mut last, (place.to_string(), began + Duration::from_millis(millis)))
        };
        assert!(printed("a.rs:1:1", 0));
        // those of the tasks of a loop, as long as they last
        assert!(!printed("a.rs:1:1", 1) && !printed("a.rs:1:1", 900) && !printed("a.rs:1:1", 1800));
        assert!(printed("b.rs:1:1", 1801) && printed("a.rs:1:1", 1802));
        assert!(printed("a.rs:1:1", 5000));
    }

    #[test]
    fn a_panic_is_reported_as_a_fault_of_the_program() {
        assert_eq!(caught(|| 7), Ok(7));
        let fault = caught::<()>(|| panic!("index {} of 3", 5)).unwrap_err();
        assert_eq!(
            fault,
            "a fault of the program: index 5 of 3; please report it with the command and its output"
        );
        assert!(caught::<()>(|| panic!("no values")).unwrap_err().contains("program: no values; please"));
    }
}
