//! Records of measurements: `benchmarks/record/NAME.json`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    definition::{Better, Definition, Parameters, Statistic, Variant, root},
    threads::cores,
};

/// Results of a definition with all that is necessary to print or draw them again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) claim: String,
    pub(crate) fairness: Vec<String>,
    /// Command that made the record.
    pub(crate) command: String,
    /// Commit of the working tree, with `-dirty` if it had changes other than records and charts.
    pub(crate) commit: String,
    /// Date and time, UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    /// Versions that the sides reported.
    pub(crate) versions: BTreeMap<String, Value>,
    pub(crate) variant: Variant,
    pub(crate) rounds: usize,
    pub(crate) statistic: Statistic,
    pub(crate) ratio: Option<String>,
    /// Parameters in the table; all that vary if empty.
    #[serde(default)]
    pub(crate) columns: Vec<String>,
    pub(crate) measures: Vec<MeasureRecord>,
    pub(crate) points: Vec<PointRecord>,
    /// Speed-ups over threads, beside those of a model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) speedup: Vec<CurveRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MeasureRecord {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) series: bool,
    pub(crate) minus: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PointRecord {
    pub(crate) parameters: Parameters,
    pub(crate) sides: Vec<SideRecord>,
}

/// Results of one side at one point.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SideRecord {
    pub(crate) name: String,
    /// Command of the first round.
    pub(crate) command: String,
    /// Values by measure and round; a round of a series has several, and one in which a score was
    /// never reached has none.
    pub(crate) values: BTreeMap<String, Vec<Vec<f64>>>,
    /// Reasons for missing values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<String>,
}

/// Speed-ups of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurveRecord {
    pub(crate) case: String,
    /// By number of threads.
    pub(crate) rows: Vec<CurveRow>,
}

/// Speed-up of a case with a number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurveRow {
    pub(crate) threads: usize,
    /// Measured milliseconds; none beyond the machine, where the row is a simulation.
    pub(crate) time: Option<f64>,
    /// Time of one thread over this time.
    pub(crate) speedup: Option<f64>,
    /// Speed-up over the number of threads.
    pub(crate) efficiency: Option<f64>,
    /// Milliseconds of the model.
    pub(crate) predicted: f64,
    /// Speed-up of the model.
    pub(crate) predicted_speedup: f64,
}

/// Machine and its state at the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    /// Family and model, which the name may hide; empty in older records.
    #[serde(default)]
    pub(crate) model: String,
    /// Widest vector instructions; empty in older records.
    #[serde(default)]
    pub(crate) vectors: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) governor: String,
    pub(crate) transparent_hugepage: String,
    /// Load average of the last minute: more than 0.1 means that other work ran.
    pub(crate) load: f64,
}

impl Machine {
    /// Describes this machine; what it does not report is `unknown`.
    pub(crate) fn read() -> Self {
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let or_unknown =
            |text: &str| if text.is_empty() { "unknown".into() } else { text.trim().to_string() };
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, value)| value.trim().into())
        };
        let kilobytes = field(&file("/proc/meminfo"), "MemTotal");
        let kilobytes = kilobytes.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let load = file("/proc/loadavg");
        let cpu = file("/proc/cpuinfo");
        Self {
            cpu: or_unknown(&field(&cpu, "model name")),
            model: match (field(&cpu, "cpu family"), field(&cpu, "model\t")) {
                (family, model) if family.is_empty() || model.is_empty() => String::new(),
                (family, model) => format!("family {family}, model {model}"),
            },
            vectors: vectors(&field(&cpu, "flags")),
            cores: cores(),
            memory_bytes: 1024 * kilobytes.unwrap_or(0),
            kernel: or_unknown(version(&file("/proc/sys/kernel/osrelease"))),
            governor: or_unknown(&file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            transparent_hugepage: or_unknown(&file("/sys/kernel/mm/transparent_hugepage/enabled")),
            load: load.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0),
        }
    }

    /// One line for captions.
    pub(crate) fn brief(&self) -> String {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let known = [&self.model, &self.vectors].map(String::as_str);
        let known: Vec<&str> = known.into_iter().filter(|text| !text.is_empty()).collect();
        let of = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
        format!("{} cores of {}{of}, {gib:.0} GiB, Linux {}", self.cores, self.cpu, self.kernel)
    }
}

/// Widest vector instructions among the flags of a processor.
fn vectors(flags: &str) -> String {
    let has = |flag: &str| flags.split(' ').any(|word| word == flag);
    let named = [("avx512f", "AVX-512"), ("avx2", "AVX2"), ("asimd", "NEON")];
    let widest = named.iter().find(|(flag, _)| has(flag)).map_or("", |(_, name)| name);
    if has("avx512_bf16") { format!("{widest} with bf16") } else { widest.to_owned() }
}

/// Version of a kernel release, without the name of the build: `6.1.0-25-amd64` is `6.1.0`.
fn version(release: &str) -> &str {
    release.split('-').next().unwrap_or(release)
}

impl Record {
    /// Record of a definition without any values.
    ///
    /// # Errors
    /// A point of the definition is malformed.
    pub(crate) fn new(definition: &Definition, variant: Variant, rounds: usize) -> Result<Self> {
        let measures = definition.measure.iter().map(|measure| MeasureRecord {
            name: measure.name.clone(),
            unit: measure.unit.clone(),
            better: measure.better,
            series: measure.series,
            minus: measure.minus.clone(),
        });
        Ok(Self {
            name: definition.name.clone(),
            title: definition.title.clone(),
            claim: definition.claim.clone(),
            fairness: definition.fairness.clone(),
            command: command(std::env::args().skip(1)),
            commit: commit(),
            date: output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
            machine: Machine::read(),
            versions: BTreeMap::from([("rustc".into(), output("rustc", &["--version"]).into())]),
            variant,
            rounds,
            statistic: definition.statistic,
            ratio: definition.ratio.clone(),
            columns: definition.columns.clone(),
            measures: measures.collect(),
            points: Vec::new(),
            speedup: Vec::new(),
        })
    }

    /// Default path of a definition's record.
    pub(crate) fn path(name: &str) -> PathBuf {
        root().join("benchmarks/record").join(format!("{name}.json"))
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The file is missing or is not a record.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Writes the record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| path.display().to_string())
    }

    /// One line for captions: machine, commit and date.
    pub(crate) fn caption(&self) -> String {
        let date = self.date.split('T').next().unwrap_or_default();
        format!("{}; commit {}, {date}", self.machine.brief(), self.commit)
    }
}

impl SideRecord {
    /// Values of a measure that is not a series, one for each round.
    pub(crate) fn values(&self, measure: &str) -> Vec<f64> {
        self.values.get(measure).into_iter().flatten().flatten().copied().collect()
    }
}

fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
    let changes = ["status", "--porcelain", "-uno", "--", ".", ":!benchmarks/record", ":!book/src/figures"];
    let is_clean = matches!(output("git", &changes).as_str(), "" | "unknown");
    if is_clean { commit } else { commit + "-dirty" }
}

/// Command line without the directories of this machine.
fn command(mut words: impl Iterator<Item = String>) -> String {
    let mut line = "cargo xtask bench".to_string();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" | "--binary" => _ = words.next(),
            "--datasets" => {
                words.next();
                line += " --datasets DIR";
            }
            word => line += &format!(" {word}"),
        }
    }
    line
}

/// First line of a program's output, or `unknown`.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let text = output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.lines().next().unwrap_or("unknown").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_commands_do_not_name_directories() {
        let words = "epochs --rounds 3 --out x.json --datasets /data --binary y".split(' ').map(String::from);
        assert_eq!(command(words), "cargo xtask bench epochs --rounds 3 --datasets DIR");
    }

    #[test]
    fn machines_are_described() {
        let machine = Machine::read();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20);
        assert!(machine.brief().contains(&machine.cpu));
        assert_eq!(vectors("fpu avx avx2 avx512f avx512_bf16 avx512vl"), "AVX-512 with bf16");
        assert_eq!((vectors("fpu avx2").as_str(), vectors("fpu").as_str()), ("AVX2", ""));
    }
}
