//! What measurements on generated graphs share: where the graphs are, runs of the command on them, medians.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The generators of [`generated`].
const GENERATORS: [&str; 2] = ["kronecker", "uniform"];

/// Does `work` in `data`, or, where that is not given, in a directory of its own that is gone at the end.
pub(crate) fn in_room<T>(data: Option<&Path>, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let room = match data {
        Some(dir) => dir.to_path_buf(),
        None => std::env::temp_dir().join(format!("graphmill-graphs-{}", std::process::id())),
    };
    fs::create_dir_all(&room)?;
    let outcome = work(&room);
    if data.is_none() {
        fs::remove_dir_all(&room)?;
    }
    outcome
}

/// A generator's name.
pub(crate) fn generator(name: &str) -> Result<String> {
    if !GENERATORS.contains(&name) {
        bail!("no generator {name}; known: {}", GENERATORS.join(", "));
    }
    Ok(name.into())
}

/// The graph of 2^`scale` nodes in `room`, generated where it is missing. `kronecker` has the default initiator: hubs and nodes without
/// an edge, both the more the larger the graph. `uniform` has four equal initiator entries: the same distribution of degrees
/// at every size.
pub(crate) fn generated(
    room: &Path,
    generator: &str,
    scale: u32,
    degree: usize,
    dim: usize,
) -> Result<PathBuf> {
    let graph = room.join(format!("{generator}-{scale}-{degree}-{dim}"));
    if !graph.exists() {
        let initiator = if generator == "uniform" { "--initiator 1,1,1,1" } else { "" };
        let line = format!(
            "generate kronecker --scale {scale} --degree {degree} --feature-dim {dim} --split 0.5,0,0 {initiator}"
        );
        command(&line, &[&graph])?;
    }
    Ok(graph)
}

/// Trains on `graph` by the words of a line, in a directory that is gone afterwards, and gives the summary.
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

/// The stages of [`stage_times`].
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

/// The middle one of some values, or of the two in the middle the mean.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few() {
        assert_eq!([median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0])], [2.0, 2.5]);
    }
}
