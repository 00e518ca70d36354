//! Processes of the sides: their programs, outputs, wall time and memory.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Seek},
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{definition::root, network, peers::Peer};

/// Interval at which the memory of a process is read.
const INTERVAL: Duration = Duration::from_millis(20);

/// Our programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) graphmill: PathBuf,
    pub(crate) kernels: PathBuf,
}

/// Result of a process that could run.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Its JSON document. Lines of several objects become a list. `/runner/wall_seconds` and
    /// `/runner/peak_bytes` are added to an object.
    Document(Value),
    /// Reason why this side cannot take part.
    Skipped(String),
}

impl Programs {
    /// Resolves the first word of a command line. `Err` holds the reason to skip the side.
    fn command(&self, words: &[&str], link: Option<&network::Link>) -> Result<Result<Command, String>> {
        let [program, arguments @ ..] = words else { bail!("an empty command") };
        let mut command = match *program {
            "graphmill" => Command::new(&self.graphmill),
            "kernels" => Command::new(&self.kernels),
            "mpirun" => {
                let [count, arguments @ ..] = arguments else { bail!("mpirun wants a number of processes") };
                let mut command = Command::new("mpirun");
                match link {
                    Some(link) => command.args(link.arguments(count)),
                    None => command.args(["--oversubscribe", "-n", count]),
                };
                let arguments = arguments.strip_prefix(&["graphmill"]).context("mpirun N graphmill ...")?;
                command.arg(fs::canonicalize(&self.graphmill)?).args(arguments);
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                return Ok(Ok(command));
            }
            name => {
                let peer = Peer::named(name).with_context(|| format!("{name}: no such program"))?;
                let Some(python) = peer.python() else {
                    return Ok(Err(format!("{name} is not installed; run `cargo xtask bench setup`")));
                };
                let [script, ..] = arguments else { bail!("{name}: a script is missing") };
                let mut command = Command::new(python);
                command.arg("-B").arg(root().join("benchmarks/peers").join(script));
                command.args(&arguments[1..]).env("DGLBACKEND", "pytorch");
                return Ok(Ok(command));
            }
        };
        command.args(arguments);
        Ok(Ok(command))
    }

    /// Runs a command line to its end.
    ///
    /// # Errors
    /// The process fails, or its output is not JSON.
    pub(crate) fn run(
        &self,
        line: &str,
        environment: &BTreeMap<String, String>,
        link: Option<&network::Link>,
    ) -> Result<Outcome> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = match self.command(&words, link)? {
            Ok(command) => command,
            Err(reason) => return Ok(Outcome::Skipped(reason)),
        };
        let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command.current_dir(root()).envs(environment).stdout(output.try_clone()?).stderr(errors.try_clone()?);
        let clock = Instant::now();
        let mut child = command.spawn().with_context(|| format!("{line}: cannot be started"))?;
        let (status, peak) = wait(&mut child)?;
        let seconds = clock.elapsed().as_secs_f64();
        if !status.success() {
            let errors = text(&mut errors)?;
            let last: Vec<&str> = errors.trim().lines().rev().take(3).collect();
            bail!("{line}: {status}: {}", last.into_iter().rev().collect::<Vec<_>>().join(" / "));
        }
        let document = document(&text(&mut output)?).with_context(|| line.to_string())?;
        if let Some(reason) = document["skipped"].as_str() {
            return Ok(Outcome::Skipped(reason.to_string()));
        }
        Ok(Outcome::Document(with_runner(document, seconds, peak)))
    }
}

/// Waits for a process and returns the largest resident set that was seen, in bytes.
fn wait(child: &mut Child) -> Result<(ExitStatus, u64)> {
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let status = fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        peak = peak.max(1024 * kilobytes.unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            return Ok((status, peak));
        }
        thread::sleep(INTERVAL);
    }
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// One JSON document, or a list of the lines that are objects. A program without output has an
/// empty object.
fn document(text: &str) -> Result<Value> {
    if let Ok(document) = serde_json::from_str(text) {
        return Ok(document);
    }
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let mut lines = lines.map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    Ok(match lines.len() {
        0 => json!({}),
        1 => lines.remove(0),
        _ => Value::Array(lines),
    })
}

/// Adds the figures that the runner measures itself.
fn with_runner(mut document: Value, seconds: f64, peak: u64) -> Value {
    if let Value::Object(fields) = &mut document {
        fields.insert("runner".into(), json!({ "wall_seconds": seconds, "peak_bytes": peak }));
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_documents_or_lists_of_lines() {
        assert_eq!(document("{\n \"a\": 1\n}\n").unwrap()["a"], 1);
        assert_eq!(document("warning\n{\"a\": 1}\n").unwrap()["a"], 1);
        assert_eq!(document("{\"a\": 1}\n{\"a\": 2}\n").unwrap()[1]["a"], 2);
        assert_eq!(document("").unwrap(), json!({}));
        assert!(document("{\"a\": \n").is_err());
        assert_eq!(with_runner(json!({}), 2.0, 7)["runner"]["peak_bytes"], 7);
    }

    #[test]
    fn memory_of_a_process_is_seen() {
        let (status, peak) = wait(&mut Command::new("sleep").arg("0.05").spawn().unwrap()).unwrap();
        assert!(status.success() && peak > 10_000);
    }

    #[test]
    fn unknown_programs_are_refused() {
        let programs = Programs { graphmill: "graphmill".into(), kernels: "kernels".into() };
        assert!(programs.command(&["sed", "x"], None).is_err());
        let command = programs.command(&["graphmill", "info"], None).unwrap().unwrap();
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["info"]);
    }
}
