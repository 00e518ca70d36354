//! Measurement of a definition: all its sides at all its points, in alternation.
//!
//! Rounds are outermost and sides innermost, and odd rounds run the sides in reverse order, so that
//! a slowdown of the machine affects all points and sides alike.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{
    definition::{Definition, Measure, Parameters, Side, Variant, fill, root},
    figure,
    network::Link,
    process::{Outcome, Programs},
    record::{PointRecord, Record, SideRecord},
    speedup,
    threads::cores,
};

/// Stands for the directory of a run in a command line, until it is started.
const RUN: &str = "RUN-DIRECTORY";
/// Stands for the directory that a dataset's command writes.
const OUT: &str = "DATASET-DIRECTORY";

/// Options of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) variant: Variant,
    pub(crate) rounds: Option<usize>,
    /// Raw datasets.
    pub(crate) datasets: Option<PathBuf>,
    /// Points to measure: those whose parameter contains the text.
    pub(crate) only: Vec<(String, String)>,
    /// Values of constants instead of the definition's.
    pub(crate) set: Vec<(String, String)>,
    /// Sides to measure; all if empty.
    pub(crate) sides: Vec<String>,
    /// File to write, if any.
    pub(crate) out: Option<PathBuf>,
    pub(crate) programs: Programs,
}

/// Measurement at work.
struct Session<'d> {
    definition: &'d Definition,
    options: &'d Options,
    points: Vec<Parameters>,
    rounds: usize,
    record: Mutex<Record>,
    /// Outcomes of the current round by command line: several points may read the same output.
    outcomes: Mutex<HashMap<String, Outcome>>,
    /// Locked while a dataset is made.
    datasets: Mutex<()>,
    /// Number of the next temporary directory.
    runs: AtomicUsize,
}

/// Measures a definition and returns its record.
///
/// # Errors
/// The definition cannot be expanded, or its record cannot be written. Failed runs are in the
/// record.
pub(crate) fn measure(definition: &Definition, options: &Options) -> Result<Record> {
    let mut points = definition.points(options.variant, &options.set)?;
    points.retain(|point| {
        options.only.iter().all(|(name, text)| point.get(name).is_some_and(|value| value.contains(text)))
    });
    if points.is_empty() {
        bail!("{}: --only leaves no point", definition.name);
    }
    let rounds = if options.variant == Variant::Quick { 1 } else { definition.rounds };
    let rounds = options.rounds.unwrap_or(rounds);
    let mut record = Record::new(definition, options.variant, rounds)?;
    for point in &points {
        let chosen = |side: &&Side| options.sides.is_empty() || options.sides.contains(&side.name);
        let sides = definition.side.iter().filter(|side| side.is_at(point)).filter(chosen);
        let sides = sides.map(|side| SideRecord { name: side.name.clone(), ..SideRecord::default() });
        record.points.push(PointRecord { parameters: point.clone(), sides: sides.collect() });
    }
    let session = Session {
        definition,
        options,
        points,
        rounds,
        record: Mutex::new(record),
        outcomes: Mutex::new(HashMap::new()),
        datasets: Mutex::new(()),
        runs: AtomicUsize::new(0),
    };
    session.all()?;
    let mut record = session.record.into_inner().expect("the workers are gone");
    if let Some(of) = &definition.speedup {
        match speedup::curves(&record, of) {
            Ok(curves) => record.speedup = curves,
            // the table has what was measured
            Err(error) => eprintln!("{}: no speed-ups: {error:#}", definition.name),
        }
        options.out.iter().try_for_each(|out| record.write(out))?;
    }
    Ok(record)
}

/// Locks a mutex that no worker poisons.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no worker panics while it holds the lock")
}

/// Directory of datasets and runs.
fn work() -> Result<PathBuf> {
    let work = root().join("target/bench");
    fs::create_dir_all(&work)?;
    Ok(work)
}

impl Session<'_> {
    /// Runs every point in every round: one after the other, or as many at once as there are cores.
    fn all(&self) -> Result<()> {
        let workers = if self.definition.concurrent { cores() } else { 1 };
        let next = AtomicUsize::new(0);
        let worker = || -> Result<()> {
            loop {
                let job = next.fetch_add(1, Ordering::Relaxed);
                if job >= self.rounds * self.points.len() {
                    return Ok(());
                }
                let (round, point) = (job / self.points.len(), job % self.points.len());
                let limit = self.points[point].get("runs").and_then(|runs| runs.parse().ok());
                if limit.is_some_and(|limit: usize| round >= limit) {
                    continue;
                }
                if point == 0 {
                    lock(&self.outcomes).clear();
                }
                self.point(round, point)?;
                if let Some(out) = &self.options.out {
                    lock(&self.record).write(out)?;
                }
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker returns its errors"))
        })
    }

    /// Runs all sides of a point, then reads their figures.
    fn point(&self, round: usize, point: usize) -> Result<()> {
        let names: Vec<String> =
            lock(&self.record).points[point].sides.iter().map(|side| side.name.clone()).collect();
        let mut order: Vec<usize> = (0..names.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let mut documents: HashMap<&str, Value> = HashMap::new();
        for at in order {
            let side =
                self.definition.side.iter().find(|side| side.name == names[at]).expect("it has a record");
            if lock(&self.record).points[point].sides[at].skipped.is_some() {
                continue;
            }
            let (command, outcome) = self.side(round, point, side);
            let mut record = lock(&self.record);
            let kept = &mut record.points[point].sides[at];
            if kept.command.is_empty() {
                kept.command = self.portable(&command);
            }
            match outcome {
                Ok(Outcome::Document(document)) => {
                    versions(&mut record, &side.name, &document);
                    documents.insert(&side.name, document);
                }
                Ok(Outcome::Skipped(reason)) => {
                    eprintln!("  {}: skipped: {reason}", side.name);
                    kept.skipped = Some(reason);
                }
                Err(error) => {
                    eprintln!("  {}: {error:#}", side.name);
                    kept.errors.push(self.portable(&format!("round {round}: {error:#}")));
                }
            }
        }
        let mut record = lock(&self.record);
        for kept in &mut record.points[point].sides {
            let Some(document) = documents.get(kept.name.as_str()) else { continue };
            let side =
                self.definition.side.iter().find(|side| side.name == kept.name).expect("it has a record");
            for measure in &self.definition.measure {
                match self.value(measure, side, point, document, &documents) {
                    Ok(None) => {}
                    Ok(Some(values)) => kept.values.entry(measure.name.clone()).or_default().push(values),
                    Err(error) => kept.errors.push(format!("round {round}: {}: {error:#}", measure.name)),
                }
            }
        }
        Ok(())
    }

    /// Text without the directories of this machine.
    fn portable(&self, text: &str) -> String {
        let text = text.replace(&format!("{}/", root().display()), "");
        match &self.options.datasets {
            Some(datasets) => text.replace(&datasets.display().to_string(), "DATASETS"),
            None => text,
        }
    }

    /// Value of a measure, or values of a series: `None` if this side lacks the measure, and
    /// nothing if a score was never reached.
    fn value(
        &self,
        measure: &Measure,
        side: &Side,
        point: usize,
        document: &Value,
        documents: &HashMap<&str, Value>,
    ) -> Result<Option<Vec<f64>>> {
        let value = side.values.get(&measure.name).unwrap_or(&measure.value);
        let mut parameter = |name: &str| {
            self.points[point].get(name).cloned().with_context(|| format!("no parameter {name}"))
        };
        if let Some(rule) = &measure.reach {
            let target =
                rule.target.as_ref().map(|text| fill(text, &mut parameter)?.parse().context("target"));
            let others: Vec<&Value> =
                rule.best_of.iter().filter_map(|name| documents.get(name.as_str())).collect();
            let seconds = figure::reach(rule, document, target.transpose()?, &others);
            return Ok(Some(seconds.into_iter().collect()));
        }
        let value = fill(value, &mut parameter)?;
        if value.is_empty() {
            return Ok(None);
        }
        if measure.series {
            let values = figure::numbers(&value, document);
            return Ok(Some(values.iter().map(|value| measure.scale * value).collect()));
        }
        match figure::evaluate(&value, document) {
            Err(_) if measure.optional => Ok(None),
            value => Ok(Some(vec![measure.scale * value?])),
        }
    }

    /// Runs a side and returns its command line.
    fn side(&self, round: usize, point: usize, side: &Side) -> (String, Result<Outcome>) {
        let run = match work() {
            Ok(work) => {
                let number = self.runs.fetch_add(1, Ordering::Relaxed);
                work.join(format!("run-{}-{number}", std::process::id()))
            }
            Err(error) => return (side.command.clone(), Err(error)),
        };
        let mut skipped = None;
        let filled = fill(&side.command, &mut |name| match name {
            "run" => Ok(RUN.into()),
            name => self.named(name, round, point, &mut skipped),
        });
        let line = match filled {
            Ok(line) => words(&line),
            Err(error) => return (side.command.clone(), Err(error)),
        };
        if let Some(reason) = skipped {
            return (side.command.clone(), Ok(Outcome::Skipped(reason)));
        }
        let key = format!("{round} {line} {:?} {:?}", side.env, side.network);
        if let Some(outcome) = lock(&self.outcomes).get(&key) {
            return (line, Ok(outcome.clone()));
        }
        eprintln!("{} {}/{}: {line}", self.definition.name, round + 1, self.rounds);
        let outcome = self.execute(&line.replace(RUN, &run.display().to_string()), side, round, point);
        let _ = fs::remove_dir_all(&run);
        if let Some(outcome) = outcome.as_ref().ok().filter(|_| !self.definition.concurrent) {
            lock(&self.outcomes).insert(key, outcome.clone());
        }
        (line, outcome)
    }

    /// Runs a command line with the side's environment and network.
    fn execute(&self, line: &str, side: &Side, round: usize, point: usize) -> Result<Outcome> {
        let mut environment = side.env.clone();
        for value in environment.values_mut() {
            *value = fill(value, &mut |name| self.named(name, round, point, &mut None))?;
        }
        let link = match &side.network {
            Some(megabits) => {
                Link::check(line)?;
                let megabits = fill(megabits, &mut |name| self.named(name, round, point, &mut None))?;
                Some(Link::new(&megabits, &work()?)?)
            }
            None => None,
        };
        self.options.programs.run(line, &environment, link.as_ref())
    }

    /// Text of a placeholder. A dataset that cannot be made sets the reason to skip.
    fn named(&self, name: &str, round: usize, point: usize, skipped: &mut Option<String>) -> Result<String> {
        if let Some(value) = self.points[point].get(name) {
            return Ok(value.clone());
        }
        match name {
            "round" => Ok(round.to_string()),
            "datasets" => {
                if self.options.datasets.is_none() {
                    *skipped = Some("needs raw datasets: pass --datasets DIR".into());
                }
                let datasets = self.options.datasets.clone().unwrap_or_default();
                Ok(datasets.display().to_string())
            }
            // The dataset's command replaces it.
            "out" => Ok(OUT.into()),
            name => {
                let make = self.definition.data.get(name);
                let make = make.with_context(|| {
                    format!("{{{name}}}: neither a parameter nor a dataset of {}", self.definition.name)
                })?;
                let line = words(&fill(make, &mut |name| self.named(name, round, point, skipped))?);
                if skipped.is_some() {
                    return Ok(String::new());
                }
                Ok(self.dataset(name, &line)?.display().to_string())
            }
        }
    }

    /// Directory of a dataset, made by `line` if it is missing.
    fn dataset(&self, name: &str, line: &str) -> Result<PathBuf> {
        let _one = lock(&self.datasets);
        let directory = work()?.join(format!("{name}-{:016x}", hash(line)));
        if !directory.exists() {
            let partial = directory.with_extension("partial");
            let _ = fs::remove_dir_all(&partial);
            let line = line.replace(OUT, &partial.display().to_string());
            eprintln!("{name}: {line}");
            let outcome = self.options.programs.run(&line, &Default::default(), None)?;
            if let Outcome::Skipped(reason) = outcome {
                bail!("{name}: {reason}");
            }
            fs::rename(&partial, &directory)
                .with_context(|| format!("{line} has no {}", partial.display()))?;
        }
        Ok(directory)
    }
}

/// Words separated by one space each.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// FNV-1a hash: the same directory names in every build.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Adds the versions that a side reports.
fn versions(record: &mut Record, side: &str, document: &Value) {
    let first = if document.is_array() { &document[0] } else { document };
    if !first["versions"].is_null() {
        record.versions.insert(side.to_string(), first["versions"].clone());
    } else if let Some(version) = first["graphmill"].as_str() {
        record.versions.insert("graphmill".into(), json!(version));
    }
}

/// Path that a run writes to: `--out`, or the record unless the figures are meaningless.
pub(crate) fn output(out: Option<&Path>, name: &str, variant: Variant, partial: bool) -> Option<PathBuf> {
    let default = || (variant != Variant::Quick && !partial).then(|| Record::path(name));
    out.map(Path::to_path_buf).or_else(default)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, process::Command};

    use super::*;
    use crate::definition::load;

    /// Command lines of all sides and datasets at all points, with placeholders for paths.
    fn command_lines(definition: &Definition, variant: Variant) -> Result<Vec<String>> {
        fn named(
            definition: &Definition,
            point: &Parameters,
            name: &str,
            lines: &mut Vec<String>,
        ) -> Result<String> {
            if let Some(value) = point.get(name) {
                return Ok(value.clone());
            }
            if let Some(make) = definition.data.get(name) {
                let line = fill(make, &mut |name| named(definition, point, name, lines))?;
                lines.push(line);
                return Ok(format!("DATA-{name}"));
            }
            match name {
                "run" | "out" => Ok(name.to_uppercase()),
                "round" => Ok("0".into()),
                "datasets" => Ok("DATASETS".into()),
                other => bail!("{{{other}}} is unknown"),
            }
        }
        let mut lines = Vec::new();
        for point in definition.points(variant, &[])? {
            for side in definition.side.iter().filter(|side| side.is_at(&point)) {
                let texts = side.env.values().chain(&side.network).chain([&side.command]);
                let mut filled = String::new();
                for text in texts {
                    filled = fill(text, &mut |name| named(definition, &point, name, &mut lines))
                        .with_context(|| text.clone())?;
                }
                lines.push(filled);
            }
        }
        lines.sort();
        lines.dedup();
        Ok(lines)
    }

    #[test]
    fn command_lines_of_all_definitions_have_known_options() {
        // Beside the tests' own directory; a build of this package alone does not have it.
        let directory = std::env::current_exe().unwrap();
        let graphmill = directory.ancestors().nth(2).unwrap().join("graphmill");
        // Options of each subcommand that a line has been run with.
        let mut seen = BTreeSet::new();
        for definition in load(&[]).unwrap() {
            let variants = [Variant::Full, Variant::Short, Variant::Quick];
            let lines: Vec<String> = variants
                .into_iter()
                .flat_map(|variant| command_lines(&definition, variant).unwrap())
                .collect();
            assert!(!lines.is_empty(), "{}", definition.name);
            for line in lines {
                let words: Vec<&str> = line.split_whitespace().collect();
                let words = words.strip_prefix(&["mpirun"]).map_or(&words[..], |words| &words[1..]);
                match words[0] {
                    "dgl" | "pyg" => {
                        assert!(root().join("benchmarks/peers").join(words[1]).exists(), "{line}")
                    }
                    "graphmill" => {
                        let options = words[2..].iter().filter(|word| word.starts_with("--"));
                        let new = options.filter(|word| seen.insert(format!("{} {word}", words[1]))).count();
                        if new == 0 || !graphmill.exists() {
                            continue;
                        }
                        let output =
                            Command::new(&graphmill).args(&words[1..]).arg("--help").output().unwrap();
                        let error = String::from_utf8_lossy(&output.stderr);
                        assert!(output.status.success(), "{}: {line}: {error}", definition.name);
                    }
                    "kernels" => {}
                    other => panic!("{line}: no program {other}"),
                }
            }
        }
    }

    #[test]
    fn directories_of_datasets_depend_on_their_command() {
        assert_eq!(hash("a"), hash("a"));
        assert_ne!(hash("graphmill generate sbm"), hash("graphmill generate kronecker"));
        let quick = output(None, "epochs", Variant::Quick, false);
        assert!(quick.is_none() && output(None, "epochs", Variant::Full, true).is_none());
        assert!(output(None, "epochs", Variant::Full, false).is_some());
    }
}
