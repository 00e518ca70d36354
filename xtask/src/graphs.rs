//! Helpers of measurements on generated graphs: their location, runs of the command, medians.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The generators of [`generated`].
const GENERATORS: [&str; 2] = ["kronecker", "uniform"];

/// Runs `work` in `data`, or in a temporary directory if `data` is not given.
pub(crate) fn with_directory<T>(data: Option<&Path>, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let dir = match data {
        Some(dir) => dir.to_path_buf(),
        None => std::env::temp_dir().join(format!("graphmill-graphs-{}", std::process::id())),
    };
    fs::create_dir_all(&dir)?;
    let outcome = work(&dir);
    if data.is_none() {
        fs::remove_dir_all(&dir)?;
    }
    outcome
}

/// Checks a generator's name.
pub(crate) fn generator(name: &str) -> Result<String> {
    if !GENERATORS.contains(&name) {
        bail!("no generator {name}; known: {}", GENERATORS.join(", "));
    }
    Ok(name.into())
}

/// Graph of 2^`scale` nodes in `dir`, generated if it is missing. `kronecker` has the default
/// initiator: hubs and isolated nodes, more of them in larger graphs. `uniform` has four equal
/// initiator entries: the same degree distribution at every size.
pub(crate) fn generated(
    dir: &Path,
    generator: &str,
    scale: u32,
    degree: usize,
    dim: usize,
) -> Result<PathBuf> {
    let graph = dir.join(format!("{generator}-{scale}-{degree}-{dim}"));
    if !graph.exists() {
        let initiator = if generator == "uniform" { "--initiator 1,1,1,1" } else { "" };
        let line = format!(
            "generate kronecker --scale {scale} --degree {degree} --feature-dim {dim} --split 0.5,0,0 \
             {initiator}"
        );
        command(&line, &[&graph])?;
    }
    Ok(graph)
}

/// Trains on `graph` with the options of a line, in a temporary directory, and returns the summary.
pub(crate) fn train(line: &str, graph: &Path) -> Result<Value> {
    let run = graph.with_extension("run");
    let _ = fs::remove_dir_all(&run);
    let text = command(&format!("train --json --quiet {line} --out"), &[&run, graph])?;
    fs::remove_dir_all(&run)?;
    Ok(serde_json::from_str(&text)?)
}

/// Runs `graphmill` with the words of a line and some paths.
pub(crate) fn command(line: &str, paths: &[&Path]) -> Result<String> {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    words.extend(paths.iter().map(|path| path.display().to_string()));
    eprintln!("graphmill {}", words.join(" "));
    super::graphmill(&words)
}

/// Stages of [`stage_times`].
pub(crate) const STAGES: [&str; 3] = ["sample", "extract", "train"];

/// Seconds that an epoch spent in each of [`STAGES`].
pub(crate) fn stage_times(epoch: &Value) -> Result<[f64; 3]> {
    let mut times = [0.0; 3];
    for (time, stage) in times.iter_mut().zip(STAGES) {
        *time = number(&epoch["stages"][stage])?;
    }
    Ok(times)
}

/// A number of a summary.
pub(crate) fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is not a number"))
}

/// Median: the middle value, or the mean of the two middle ones.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_few_values() {
        assert_eq!([median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])], [2.0, 2.5]);
    }
}
