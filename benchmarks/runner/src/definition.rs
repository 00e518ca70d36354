//! Definitions of benchmarks: one TOML file each in `benchmarks/definitions`.
//!
//! ```toml
//! title = "Epochs"
//! claim = "what the figures are meant to show"
//! ratio = "graphmill / side"      # of the first measure: how many times as good
//! set = { batch = 1024 }          # values of {batch} in all texts
//! quick = { batch = 64 }          # overrides of `set` and of sweeps with --quick
//! data.w1 = "graphmill generate kronecker {out} --scale 20"
//!
//! [[sweep]]                       # the product of its lists; several tables are concatenated
//! threads = [1, 2]
//!
//! [[measure]]                     # `benchmarks/runner/src/figure.rs` describes values
//! name = "epoch"
//! unit = "s"
//! better = "lower"
//! value = "median /epochs/1:/seconds"
//!
//! [[side]]                        # graphmill, kernels, mpirun N graphmill, dgl or pyg
//! name = "graphmill"
//! command = "graphmill train {w1} --out {run} --threads {threads} --json --quiet"
//!
//! [speedup]                       # speed-ups over threads, beside a model (`speedup.rs`)
//! side = "graphmill"
//! machine = "machine"
//! simulated = [4, 8, 16]
//! ```
//!
//! A sweep over `"cores"` has the values 1, 2, 4, ... up to the cores of the machine.
//!
//! `{name}` stands for a parameter of the point, a dataset of `data` (its directory, made if it is
//! missing), `{round}` (from 0), `{run}` (a new directory, removed afterwards), `{datasets}` (the
//! directory of `--datasets`) or `{out}` (within `data`, the directory to write). A parameter
//! `runs` limits the rounds of its point.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::threads::{cores, powers};

/// Values of a sweep that depend on the machine: the powers of two up to its cores, and its cores.
const CORES: &str = "cores";
/// Names of the parameters of a point with speed-ups: the case, its number of threads, its parallel
/// operations; the bytes that it moves or nothing, if they are counted from its edges; the widths
/// of features and hidden rows; the rate of the memory of a larger machine in GB/s, or 0.
pub(crate) const PARAMETERS: [&str; 7] =
    ["case", "threads", "joins", "bytes", "features", "hidden", "larger"];
/// Names of its measures: milliseconds of a batch and of its stages, edges of all blocks and of the
/// bottom block; microseconds of an empty parallel operation, and GB/s of the memory.
pub(crate) const MEASURES: [&str; 6] = ["time", "stages", "edges", "bottom edges", "fork-join", "memory"];
/// Directory of the definitions, relative to the workspace.
const DIRECTORY: &str = "benchmarks/definitions";

/// Parameters of a point by name.
pub(crate) type Parameters = BTreeMap<String, String>;

/// Contents of a file of [`DIRECTORY`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// Name of the file without its extension.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) title: String,
    /// Statement that the figures support or refute.
    pub(crate) claim: String,
    /// Known differences between the sides, such as N5 of the results pages, or a sentence.
    #[serde(default)]
    pub(crate) fairness: Vec<String>,
    /// Names under which several definitions run together.
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    #[serde(default = "default_rounds")]
    pub(crate) rounds: usize,
    /// True if figures do not depend on time: as many rounds at once as there are cores.
    #[serde(default)]
    pub(crate) concurrent: bool,
    #[serde(default)]
    pub(crate) statistic: Statistic,
    /// Parameters in the table, instead of all that vary.
    #[serde(default)]
    pub(crate) columns: Vec<String>,
    /// Column of ratios of the first measure: `A / B`, where one of them may be `side`.
    #[serde(default)]
    pub(crate) ratio: Option<String>,
    /// Cargo features of the `graphmill` command.
    #[serde(default)]
    pub(crate) features: Vec<String>,
    #[serde(default)]
    set: Table,
    #[serde(default)]
    quick: Table,
    #[serde(default)]
    short: Table,
    /// Datasets: the command that makes each.
    #[serde(default)]
    pub(crate) data: BTreeMap<String, String>,
    #[serde(default)]
    sweep: Vec<Table>,
    /// Further points: an array of tables in another TOML file.
    #[serde(default)]
    points: Option<PointFile>,
    pub(crate) measure: Vec<Measure>,
    pub(crate) side: Vec<Side>,
    #[serde(default)]
    pub(crate) chart: Vec<Chart>,
    #[serde(default)]
    pub(crate) speedup: Option<Speedup>,
}

/// Speed-ups over numbers of threads, beside those of a model. The points have the parameters
/// [`PARAMETERS`] and the measures [`MEASURES`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Speedup {
    /// Side whose times are modelled.
    pub(crate) side: String,
    /// Side that measures the machine.
    pub(crate) machine: String,
    /// Numbers of threads that are only predicted if the machine has fewer.
    pub(crate) simulated: Vec<usize>,
}

/// Array of tables that are points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PointFile {
    /// Path, relative to the workspace.
    file: String,
    table: String,
}

/// Summary of a measure over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Statistic {
    /// Median with the smallest and the largest value.
    #[default]
    Median,
    /// Mean with the standard deviation.
    Mean,
    /// Smallest value: the run that other load disturbed least.
    Min,
}

/// Direction of a measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    #[default]
    Lower,
    Higher,
}

/// Figure of every side.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measure {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) unit: String,
    #[serde(default)]
    pub(crate) better: Better,
    /// Expression of the figure; empty if only some sides have one, in [`Side::values`].
    #[serde(default)]
    pub(crate) value: String,
    #[serde(default = "one")]
    pub(crate) scale: f64,
    /// True if some documents do not have the figure.
    #[serde(default)]
    pub(crate) optional: bool,
    /// True for one value for each step: not in the table, only in charts.
    #[serde(default)]
    pub(crate) series: bool,
    /// Side whose value of the same round is subtracted, in a column of its own.
    #[serde(default)]
    pub(crate) minus: Option<String>,
    /// Seconds until a score is reached, instead of `value`.
    #[serde(default)]
    pub(crate) reach: Option<Reach>,
}

/// Target score, and the paths of scores and of seconds, with one value for each epoch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reach {
    pub(crate) scores: String,
    /// Paths whose values are added up.
    pub(crate) seconds: Vec<String>,
    /// Fixed target, or else the best score of some sides in the same round.
    #[serde(default)]
    pub(crate) target: Option<String>,
    #[serde(default)]
    pub(crate) best_of: Vec<String>,
    /// Subtracted from the best score.
    #[serde(default)]
    pub(crate) below: f64,
}

/// Program to compare.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) command: String,
    /// Environment variables of the process.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Expressions of measures that differ from [`Measure::value`].
    #[serde(default)]
    pub(crate) values: BTreeMap<String, String>,
    /// Restriction to points whose parameters have one of these values.
    #[serde(default)]
    pub(crate) when: BTreeMap<String, Vec<String>>,
    /// Megabits a second of the link between two processes (`network.rs`).
    #[serde(default)]
    pub(crate) network: Option<String>,
}

/// Chart drawn from a record.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chart {
    /// Name of the file in `book/src/figures`, without its extension.
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) kind: ChartKind,
    /// Parameter on the x axis (`line`), or of the panels (`bars`).
    #[serde(default)]
    pub(crate) x: String,
    /// Label of the x axis.
    #[serde(default)]
    pub(crate) label: String,
    pub(crate) y: String,
    /// `line`: measure drawn as a dashed line, or `fit` for a least-squares line.
    #[serde(default)]
    pub(crate) line: Option<String>,
    /// `line`: measures stacked as bars.
    #[serde(default)]
    pub(crate) parts: Vec<String>,
    /// True for a logarithmic x axis.
    #[serde(default)]
    pub(crate) log: bool,
    /// Restriction to points with these parameters.
    #[serde(default, rename = "where")]
    pub(crate) only: Parameters,
    /// Restriction to these sides, in this order.
    #[serde(default)]
    pub(crate) sides: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChartKind {
    /// Bar of each side, one panel for each value of x.
    Bars,
    /// Points with ranges over x.
    Line,
    /// Series of each side by step.
    Curves,
    /// Speed-ups over threads with those of the model.
    Speedup,
}

/// Size of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Variant {
    Full,
    /// Fewer or smaller cases: about half the time.
    Short,
    /// Tiny graphs as a smoke test; the figures are meaningless.
    Quick,
}

fn default_rounds() -> usize {
    3
}

fn one() -> f64 {
    1.0
}

/// Directory of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the runner lies in the workspace")
}

/// Sorted paths of all definitions.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn paths() -> Result<Vec<PathBuf>> {
    let directory = root().join(DIRECTORY);
    let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let mut found = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    found.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    found.sort();
    Ok(found)
}

/// Reads all definitions, or those that are named or belong to a named group.
///
/// # Errors
/// A file is not a definition, or a name is unknown.
pub(crate) fn load(names: &[String]) -> Result<Vec<Definition>> {
    let all = paths()?.iter().map(|path| Definition::read(path)).collect::<Result<Vec<_>>>()?;
    for name in names {
        let known = |definition: &Definition| definition.name == *name || definition.groups.contains(name);
        ensure!(
            all.iter().any(known),
            "{name}: no definition or group has this name; `cargo xtask bench list` lists them"
        );
    }
    let chosen = |definition: &Definition| {
        names.is_empty()
            || names.iter().any(|name| definition.name == *name || definition.groups.contains(name))
    };
    Ok(all.into_iter().filter(chosen).collect())
}

impl Definition {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read or contradicts itself.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let place = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(place)?;
        let mut this: Self = toml::from_str(&text).with_context(place)?;
        this.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        this.check().with_context(place)?;
        Ok(this)
    }

    fn check(&self) -> Result<()> {
        let side = |name: &str| self.side.iter().any(|side| side.name == name);
        let measure = |name: &str| self.measure.iter().any(|measure| measure.name == name);
        ensure!(self.rounds > 0 && !self.side.is_empty() && !self.measure.is_empty(), "nothing to measure");
        for name in self.ratio.iter().flat_map(|ratio| ratio.split(" / ")) {
            ensure!(name == "side" || side(name), "ratio: no side {name}");
        }
        for one in &self.measure {
            let reach = one.reach.iter().flat_map(|reach| &reach.best_of);
            for name in one.minus.iter().chain(reach) {
                ensure!(side(name), "measure {}: no side {name}", one.name);
            }
        }
        for one in &self.side {
            for name in one.values.keys() {
                ensure!(measure(name), "side {}: no measure {name}", one.name);
            }
        }
        if let Some(of) = &self.speedup {
            for name in [&of.side, &of.machine] {
                ensure!(side(name), "speedup: no side {name}");
            }
            for name in MEASURES {
                ensure!(measure(name), "speedup: no measure {name}");
            }
        }
        for chart in &self.chart {
            let line = chart.line.iter().filter(|line| *line != "fit");
            for name in line.chain(&chart.parts).chain([&chart.y]) {
                ensure!(measure(name), "chart {}: no measure {name}", chart.file);
            }
            for name in &chart.sides {
                ensure!(side(name), "chart {}: no side {name}", chart.file);
            }
        }
        self.points(Variant::Full, &[])?;
        Ok(())
    }

    /// Every point: the products of the sweeps, then those of the file, each with the constants.
    /// `set` replaces constants, and the values of sweeps by words separated by commas.
    ///
    /// # Errors
    /// A value is of the wrong type, a constant is unknown, or the file cannot be read.
    pub(crate) fn points(&self, variant: Variant, set: &[(String, String)]) -> Result<Vec<Parameters>> {
        let mut overrides = match variant {
            Variant::Full => Table::new(),
            Variant::Short => self.short.clone(),
            Variant::Quick => self.quick.clone(),
        };
        for (name, value) in set {
            let word = |word: &str| Value::String(word.into());
            let value = match self.sweep.iter().any(|sweep| sweep.contains_key(name)) {
                true => Value::Array(value.split(',').map(word).collect()),
                false => word(value),
            };
            let is_known = value.is_array() || self.set.contains_key(name);
            ensure!(is_known, "--set {name}: no constant and no sweep of {} has this name", self.name);
            overrides.insert(name.clone(), value);
        }
        let mut constants = Parameters::new();
        let values = self.set.iter().chain(overrides.iter().filter(|(name, _)| self.set.contains_key(*name)));
        for (name, value) in values {
            constants.insert(name.clone(), text(value)?);
        }
        let mut points = Vec::new();
        for sweep in &self.sweep {
            let mut product = vec![constants.clone()];
            for (name, values) in sweep {
                let values = match overrides.get(name).unwrap_or(values) {
                    Value::String(word) if word == CORES => &numbers(&powers(cores())),
                    values => values.as_array().with_context(|| format!("sweep: {name} is not a list"))?,
                };
                product = multiply(&product, name, values)?;
            }
            points.extend(product);
        }
        if let Some(PointFile { file, table }) = &self.points {
            let text = fs::read_to_string(root().join(file)).with_context(|| file.clone())?;
            let tables: Table = toml::from_str(&text).with_context(|| file.clone())?;
            let tables = tables.get(table).and_then(Value::as_array);
            let tables = tables.with_context(|| format!("{file} has no tables {table}"))?;
            points.extend(multiply(&[constants.clone()], table, tables)?);
        }
        if points.is_empty() {
            points.push(constants);
        }
        points.dedup();
        Ok(points)
    }
}

/// Every point with every value of an axis. A value that is a table sets several parameters.
fn multiply(points: &[Parameters], name: &str, values: &[Value]) -> Result<Vec<Parameters>> {
    let mut product = Vec::new();
    for point in points {
        for value in values {
            let mut point = point.clone();
            match value {
                Value::Table(table) => {
                    for (name, value) in table {
                        point.insert(name.clone(), text(value)?);
                    }
                }
                value => _ = point.insert(name.to_string(), text(value)?),
            }
            product.push(point);
        }
    }
    Ok(product)
}

/// Numbers as values of a sweep.
fn numbers(of: &[usize]) -> Vec<Value> {
    of.iter().map(|&number| Value::Integer(number as i64)).collect()
}

/// Value as text; words of a list are separated by spaces.
fn text(value: &Value) -> Result<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Array(words) => words.iter().map(text).collect::<Result<Vec<_>>>()?.join(" "),
        Value::Datetime(_) | Value::Table(_) => bail!("{value} is not a number or a text"),
    })
}

impl Side {
    /// Returns true if this side takes part at a point.
    pub(crate) fn is_at(&self, point: &Parameters) -> bool {
        self.when.iter().all(|(name, values)| point.get(name).is_some_and(|value| values.contains(value)))
    }
}

/// Replaces every `{name}`, the innermost first: `{{workload}}` is the dataset that a parameter
/// names.
///
/// # Errors
/// `value` fails, braces do not match, or a value contains itself.
pub(crate) fn fill(text: &str, value: &mut dyn FnMut(&str) -> Result<String>) -> Result<String> {
    let mut text = text.to_string();
    let mut replaced = 0;
    while let Some(end) = text.find('}') {
        replaced += 1;
        ensure!(replaced < 1000, "{text}: a placeholder contains itself");
        let start = text[..end].rfind('{').with_context(|| format!("{text}: a brace is not closed"))?;
        let with = value(&text[start + 1..end])?;
        text.replace_range(start..=end, &with);
    }
    ensure!(!text.contains('{'), "{text}: a brace is not closed");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        title = "t"
        claim = "c"
        ratio = "b / side"
        set = { size = 10, dim = 4 }
        quick = { size = 1, threads = [2] }
        measure = [{ name = "m", value = "/m" }]
        side = [{ name = "a", command = "a {size}" }, { name = "b", command = "b", when = { model = ["gcn"] } }]
        [[sweep]]
        model = [{ model = "gcn", fanout = "5" }, { model = "sage", fanout = "10" }]
        threads = [1, 2]
        [[sweep]]
        model = ["gat"]
    "#;

    #[test]
    fn sweeps_are_products_and_variants_override_values() {
        let definition: Definition = toml::from_str(SMALL).unwrap();
        definition.check().unwrap();
        let points = definition.points(Variant::Full, &[]).unwrap();
        let brief: Vec<String> =
            points.iter().map(|p| p.values().cloned().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(brief, ["4 5 gcn 10 1", "4 5 gcn 10 2", "4 10 sage 10 1", "4 10 sage 10 2", "4 gat 10"]);
        let quick = definition.points(Variant::Quick, &[("dim".into(), "8".into())]).unwrap();
        assert_eq!(quick.len(), 3);
        assert!(quick.iter().all(|point| point["dim"] == "8"));
        assert!(definition.points(Variant::Full, &[("depth".into(), "1".into())]).is_err());
        let set = definition.points(Variant::Full, &[("threads".into(), "1,8".into())]).unwrap();
        let threads: Vec<&str> =
            set.iter().filter_map(|point| Some(point.get("threads")?.as_str())).collect();
        assert_eq!(threads, ["1", "8", "1", "8"]);
        assert!(quick.iter().all(|p| p["size"] == "1" && p.get("threads").is_none_or(|t| t == "2")));
        assert!(definition.side[1].is_at(&points[0]) && !definition.side[1].is_at(&points[4]));
    }

    #[test]
    fn a_sweep_over_cores_ends_at_those_of_the_machine() {
        let text = SMALL.replace("threads = [1, 2]", "threads = 'cores'");
        let definition: Definition = toml::from_str(&text).unwrap();
        let points = definition.points(Variant::Full, &[]).unwrap();
        let last = points.iter().filter_map(|point| point.get("threads")).next_back().unwrap();
        assert_eq!(*last, cores().to_string());
        assert!(toml::from_str::<Definition>(&text.replace("'cores'", "'all'")).unwrap().check().is_err());
    }

    #[test]
    fn placeholders_are_filled_from_the_inside() {
        let mut value = |name: &str| match name {
            "workload" => Ok("w1".to_string()),
            "w1" => Ok("/data/w1".to_string()),
            _ => bail!("no {name}"),
        };
        assert_eq!(fill("x {{workload}} {w1}", &mut value).unwrap(), "x /data/w1 /data/w1");
        assert!(fill("{y}", &mut value).is_err() && fill("{w1", &mut value).is_err());
        assert!(fill("{x}", &mut |_| Ok("{x}".into())).is_err());
    }

    #[test]
    fn groups_and_definitions_have_different_names() {
        let all = load(&[]).unwrap();
        let names: Vec<&String> = all.iter().map(|definition| &definition.name).collect();
        assert!(all.iter().flat_map(|definition| &definition.groups).all(|group| !names.contains(&group)));
        let published = load(&["publish".into()]).unwrap();
        assert!(published.len() > 5 && published.len() < all.len());
    }

    #[test]
    fn unknown_sides_and_measures_are_refused() {
        for (from, to) in [("b / side", "c / side"), ("\"m\", value", "\"m\", minus = \"c\", value")] {
            let definition: Definition = toml::from_str(&SMALL.replace(from, to)).unwrap();
            assert!(definition.check().is_err(), "{to}");
        }
        assert!(toml::from_str::<Definition>(&SMALL.replace("title", "titel")).is_err());
    }
}
