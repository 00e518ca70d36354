//! Values that a sweep tries: lists and ranges of options, and the trials drawn from them.

use graphmill_core::{
    keyed::{Stream, key as fold},
    options::{Kind, Values},
};
use serde_json::Value as Json;

use crate::{
    Error, Result,
    options::{self, by_flag},
};

/// Largest number of trials.
pub const MAX_TRIALS: usize = 10_000;

/// Options that a sweep cannot vary, with the reason.
const FIXED: &[(&str, &str)] = &[
    ("dataset", "scores on different datasets do not compare"),
    ("epochs", "the sweep itself chooses the epochs of each trial; set --epochs to the most of one"),
    ("metric", "different metrics do not compare"),
    ("task", "scores of different tasks do not compare"),
    ("select_by", "trials are compared by one criterion"),
];

/// An option with the values to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name of the option, with underscores.
    pub name: &'static str,
    /// Specification, as given.
    pub spec: String,
    choices: Choices,
}

/// Values of an option.
#[derive(Clone, Debug, PartialEq)]
enum Choices {
    /// Each of these words.
    List(Vec<String>),
    /// A number from a range, ends included.
    Range { low: f64, high: f64, is_log: bool, is_integer: bool },
}

impl Axis {
    /// Parses `NAME=VALUES`: a list (`0.001,0.01`; values with commas are separated by `|`), a
    /// range (`0..0.5`) or a range by the logarithm (`log:1e-4..1e-1`).
    ///
    /// # Errors
    /// The option is unknown or cannot be varied, or the values are not a list or a range.
    pub fn parse(word: &str) -> Result<Self> {
        let refuse = |message: String| Error::usage(format!("--try {word}: {message}"));
        let Some((name, spec)) = word.split_once('=') else {
            return Err(refuse("write NAME=VALUES, such as lr=0.001,0.01 or lr=log:1e-4..1e-1".into()));
        };
        let Some(key) = options::key(name.trim_start_matches('-')) else {
            let known = options::names();
            return Err(refuse(format!("no such option{}", options::suggestion(name, &known))));
        };
        if let Some((_, reason)) = FIXED.iter().find(|(fixed, _)| *fixed == key.name) {
            return Err(refuse((*reason).to_string()));
        }
        let is_list_option = matches!(key.write(&crate::TrainConfig::default()), Json::Array(_));
        let choices = match spec.strip_prefix("log:") {
            Some(range) => Choices::range(range, true, key.kind()),
            None if is_range(spec) => Choices::range(spec, false, key.kind()),
            None => Choices::list(spec, is_list_option),
        };
        Ok(Self { name: key.name, spec: spec.to_string(), choices: choices.map_err(refuse)? })
    }

    /// Number of values, if it is finite.
    fn len(&self) -> Option<usize> {
        match &self.choices {
            Choices::List(words) => Some(words.len()),
            Choices::Range { .. } => None,
        }
    }

    /// Value of the list at `at`.
    fn at(&self, at: usize) -> Json {
        match &self.choices {
            Choices::List(words) => words[at].as_str().into(),
            Choices::Range { low, .. } => (*low).into(),
        }
    }

    /// Draws a value.
    fn draw(&self, stream: &mut Stream) -> Json {
        match &self.choices {
            Choices::List(words) => words[stream.below(words.len() as u64) as usize].as_str().into(),
            Choices::Range { low, high, is_log, is_integer } => {
                let (low, high) = (*low, *high);
                let x = stream.uniform();
                let value = match (is_integer, is_log) {
                    // every whole number has the same share
                    (true, false) => (low + x * (high - low + 1.0)).floor().min(high),
                    (true, true) => (low.ln() + x * (high.ln() - low.ln())).exp().round(),
                    (false, false) => rounded(low + x * (high - low)),
                    (false, true) => rounded((low.ln() + x * (high.ln() - low.ln())).exp()),
                };
                let value = value.clamp(low, high);
                if *is_integer { (value as u64).into() } else { value.into() }
            }
        }
    }
}

/// Number with four significant digits, which is enough to try, and short to read.
fn rounded(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}

/// Returns true if the word has the form of a range of numbers.
fn is_range(spec: &str) -> bool {
    spec.split_once("..").is_some_and(|(a, b)| a.parse::<f64>().is_ok() && b.parse::<f64>().is_ok())
}

impl Choices {
    /// Parses `LOW..HIGH`.
    fn range(word: &str, is_log: bool, kind: Kind) -> Result<Self, String> {
        let ends = word.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let Some((low, high)) = ends else {
            return Err(format!("'{word}' is not a range; write LOW..HIGH, such as 1e-4..1e-1"));
        };
        let (low, high): (f64, f64) = (low, high);
        if !(low.is_finite() && high.is_finite() && low < high) {
            return Err(format!("'{word}' is an empty range; the first number must be the smaller one"));
        }
        if is_log && low <= 0.0 {
            return Err(format!("'{word}' has no logarithm; start it above 0"));
        }
        let is_integer = match kind {
            Kind::Integer => true,
            Kind::Number | Kind::Word => false,
            _ => return Err("only numbers have ranges; list the values, such as a,b".into()),
        };
        if is_integer && (low.fract() != 0.0 || high.fract() != 0.0 || low < 0.0) {
            return Err(format!("'{word}': the option takes whole numbers; use such ends"));
        }
        Ok(Self::Range { low, high, is_log, is_integer })
    }

    /// Parses values separated by commas, or by `|` if they contain commas.
    fn list(spec: &str, is_list_option: bool) -> Result<Self, String> {
        let separator = if is_list_option || spec.contains('|') { '|' } else { ',' };
        let words: Vec<String> = spec.split(separator).map(|word| word.trim().to_string()).collect();
        if words.iter().any(String::is_empty) {
            return Err("a value is empty; separate values by commas, and those with commas by |".into());
        }
        if let Some(twice) = (1..words.len()).find(|&i| words[..i].contains(&words[i])) {
            return Err(format!("{} is listed twice; remove one", words[twice]));
        }
        Ok(Self::List(words))
    }
}

/// Values of the options of each trial: the whole grid of lists, or `count` trials drawn with
/// `seed`; of lists alone without repetition.
///
/// # Errors
/// A range without `count`, or more trials than [`MAX_TRIALS`].
pub(super) fn trials(axes: &[Axis], count: usize, seed: u64) -> Result<Vec<Values>> {
    let grid = axes.iter().map(Axis::len).try_fold(1usize, |all, len| Some(all.saturating_mul(len?)));
    let (drawn, whole) = match (grid, count) {
        (None, 0) => {
            return Err(Error::usage(
                "a range has no end of values; set the number of trials with --trials N",
            ));
        }
        (None, count) => (count, None),
        (Some(grid), 0) => (grid, Some(grid)),
        (Some(grid), count) => (count.min(grid), Some(grid)),
    };
    if drawn > MAX_TRIALS {
        return Err(Error::usage(format!(
            "{drawn} trials are too many; try fewer values, or draw some of them with --trials N (at most \
             {MAX_TRIALS})"
        )));
    }
    let value = |axis: &Axis, value: Json| (axis.name.to_string(), value);
    Ok(match whole {
        Some(grid) => {
            let chosen = chosen(grid, drawn, seed);
            let of = |mut at: usize| {
                let mut values: Vec<_> = Vec::new();
                // the last option varies fastest
                for axis in axes.iter().rev() {
                    let len = axis.len().unwrap_or(1);
                    values.push(value(axis, axis.at(at % len)));
                    at /= len;
                }
                values.into_iter().rev().collect()
            };
            chosen.into_iter().map(of).collect()
        }
        None => {
            let draw = |trial: usize| {
                let stream = |i: usize| Stream::new(fold(&[seed, trial as u64, i as u64]));
                axes.iter().enumerate().map(|(i, axis)| value(axis, axis.draw(&mut stream(i)))).collect()
            };
            (0..drawn).map(draw).collect()
        }
    })
}

/// `count` distinct numbers below `all`, in their order.
fn chosen(all: usize, count: usize, seed: u64) -> Vec<usize> {
    if count == all {
        return (0..all).collect();
    }
    // Floyd's algorithm: one draw for each number, whatever the size of the grid
    let mut stream = Stream::new(fold(&[seed]));
    let mut set = std::collections::BTreeSet::new();
    for last in all - count..all {
        let at = stream.below(last as u64 + 1) as usize;
        if !set.insert(at) {
            set.insert(last);
        }
    }
    set.into_iter().collect()
}

/// Error of a value that its option cannot have.
pub(super) fn refused(fault: &graphmill_core::options::Fault) -> Error {
    Error::usage(format!("--try: {}", by_flag(fault)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(words: &[&str]) -> Vec<Axis> {
        words.iter().map(|word| Axis::parse(word).unwrap()).collect()
    }

    #[test]
    fn lists_make_a_grid_whose_last_option_varies_fastest() {
        let trials = trials(&axes(&["lr=0.1,0.2", "fanout=5,5|3,3"]), 0, 1).unwrap();
        let words: Vec<_> = trials.iter().map(|t| format!("{} {}", t["lr"], t["fanout"])).collect();
        assert_eq!(words, [r#""0.1" "5,5""#, r#""0.1" "3,3""#, r#""0.2" "5,5""#, r#""0.2" "3,3""#]);
    }

    #[test]
    fn draws_from_a_grid_are_distinct_and_depend_on_the_seed() {
        let axes = axes(&["hidden=1,2,3,4,5,6,7,8", "layers=1,2,3,4"]);
        let draw = |seed| trials(&axes, 12, seed).unwrap();
        let first = draw(1);
        assert_eq!((first.len(), &first), (12, &draw(1)));
        assert!((1..12).all(|i| !first[..i].contains(&first[i])));
        assert_ne!(first, draw(2));
        assert_eq!(trials(&axes, 1000, 1).unwrap().len(), 32);
    }

    #[test]
    fn ranges_are_drawn_within_their_ends() {
        let axes = axes(&["lr=log:1e-4..1e-1", "dropout=0..0.5", "hidden=16..18"]);
        let all = trials(&axes, 300, 3).unwrap();
        let of = |name: &str| all.iter().map(|t| t[name].as_f64().unwrap()).collect::<Vec<_>>();
        assert!(of("lr").iter().all(|x| (1e-4..=1e-1).contains(x)));
        // a third of the draws lies in each decade
        let low = of("lr").iter().filter(|&&x| x < 1e-3).count();
        assert!((70..130).contains(&low), "{low}");
        assert!(of("dropout").iter().all(|x| (0.0..=0.5).contains(x)));
        for width in [16.0, 17.0, 18.0] {
            assert!(of("hidden").contains(&width) && all[0]["hidden"].is_u64());
        }
        assert_eq!(all[..5], trials(&axes, 5, 3).unwrap()[..], "more trials keep the first ones");
    }

    #[test]
    fn impossible_axes_are_refused_with_a_remedy() {
        for (word, says) in [
            ("lr", "write NAME=VALUES"),
            ("lrr=1,2", "did you mean 'lr'?"),
            ("epochs=1,2", "the sweep itself chooses the epochs"),
            ("lr=0.1..0.01", "is an empty range"),
            ("lr=log:0..1", "start it above 0"),
            ("model=log:1..2", "only numbers have ranges"),
            ("hidden=0.5..2", "the option takes whole numbers"),
            ("lr=0.1,,0.2", "a value is empty"),
            ("lr=0.1,0.1", "0.1 is listed twice"),
        ] {
            let message = Axis::parse(word).unwrap_err().to_string();
            assert!(message.contains(says), "{word}: {message}");
        }
        let message = trials(&axes(&["lr=0.1..0.2"]), 0, 0).unwrap_err().to_string();
        assert!(message.contains("--trials N"), "{message}");
    }
}
