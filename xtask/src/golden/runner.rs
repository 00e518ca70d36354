//! Rows of `golden.toml` as commands in directories, and their fields.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    Fields,
    spec::{Row, Spec},
};

/// Longest time of one command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs rows in directories of a work directory.
pub(super) struct Runner<'a> {
    pub(super) binary: &'a Path,
    pub(super) work: &'a Path,
    pub(super) spec: &'a Spec,
}

impl Runner<'_> {
    /// Runs the commands of a row and returns its fields.
    pub(super) fn run(&self, row: &Row) -> Result<Fields> {
        let dir = self.work.join(&row.name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let trains = row.follow && row.commands.iter().any(|command| command.starts_with("train"));
        let follow = if trains { &self.spec.follow[..] } else { &[] };
        let mut fields = Fields::new();
        let mut labels = BTreeMap::new();
        for command in row.commands.iter().chain(follow) {
            let words = self.expand(command)?;
            let count = labels.entry(words[0].clone()).or_insert(0);
            *count += 1;
            let label = if *count == 1 { words[0].clone() } else { format!("{}-{count}", words[0]) };
            let document = self.execute(row, &dir, &words)?;
            self.collect(row, &label, &document, &mut fields);
        }
        self.collect_files(row, &dir, &dir, &mut fields)?;
        Ok(fields)
    }

    /// The words of a command: those given, with `{NAME}` replaced, and those appended to its
    /// subcommand.
    fn expand(&self, command: &str) -> Result<Vec<String>> {
        let subcommand = command.split(' ').next().unwrap_or_default();
        let appended = self.spec.append.get(subcommand);
        let appended = appended.with_context(|| format!("golden.toml: [append] has no {subcommand}"))?;
        let mut text = format!("{command} {appended}");
        for (name, value) in &self.spec.words {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        text = text.replace("{threads}", &self.spec.threads.to_string());
        ensure!(!text.contains('{'), "golden.toml: {text}: unknown word in braces");
        Ok(text.split_whitespace().map(str::to_string).collect())
    }

    /// Runs a command to its end and returns the JSON document that it prints.
    fn execute(&self, row: &Row, dir: &Path, words: &[String]) -> Result<Value> {
        let mut command = if row.ranks > 0 && words[0] == "train" {
            let mut command = Command::new("mpirun");
            command.args(["--oversubscribe", "-n", &row.ranks.to_string()]).arg(self.binary);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command
        } else {
            Command::new(self.binary)
        };
        // beside the directories of rows: these files are not results
        let [out, err] = ["stdout", "stderr"].map(|name| self.work.join(format!("{name}.txt")));
        command.args(words).current_dir(dir).stdin(Stdio::null());
        command.stdout(File::create(&out)?).stderr(File::create(&err)?);
        command.env_remove("RAYON_NUM_THREADS").env("RUST_BACKTRACE", "0");
        let line = format!("graphmill {}", words.join(" "));
        let mut child = command.spawn().with_context(|| line.clone())?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if began.elapsed() > TIMEOUT {
                child.kill()?;
                child.wait()?;
                bail!("{line}: no end after {} s", TIMEOUT.as_secs());
            }
            thread::sleep(Duration::from_millis(1));
        };
        if !status.success() {
            bail!("{line}: {status}\n{}", String::from_utf8_lossy(&fs::read(&err)?).trim_end());
        }
        let bytes = fs::read(&out)?;
        serde_json::from_slice(&bytes).with_context(|| format!("{line}: the output is not a JSON document"))
    }

    /// Adds the leaves of a document that are not ignored.
    fn collect(&self, row: &Row, path: &str, value: &Value, fields: &mut Fields) {
        if self.spec.is_ignored(&row.name, path) {
            return;
        }
        match value {
            Value::Object(map) if !map.is_empty() => {
                map.iter().for_each(|(name, value)| {
                    self.collect(row, &format!("{path}.{name}"), value, fields);
                });
            }
            Value::Array(values) if !values.is_empty() => {
                values.iter().enumerate().for_each(|(index, value)| {
                    self.collect(row, &format!("{path}.{index}"), value, fields);
                });
            }
            _ => {
                fields.insert(path.to_string(), value.clone());
            }
        }
    }

    /// Adds a checksum of each file below `dir`. Of JSON files it covers the fields that are not
    /// ignored.
    fn collect_files(&self, row: &Row, top: &Path, dir: &Path, fields: &mut Fields) -> Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.collect_files(row, top, &entry.path(), fields)?;
                continue;
            }
            let name = entry.path().strip_prefix(top)?.display().to_string();
            let path = format!("files.{name}");
            if self.spec.is_ignored(&row.name, &path) {
                continue;
            }
            let mut bytes = fs::read(entry.path())?;
            if name.ends_with(".json") || name.ends_with(".jsonl") {
                let values = serde_json::Deserializer::from_slice(&bytes).into_iter();
                let values = values.collect::<Result<Vec<Value>, _>>().with_context(|| name.clone())?;
                let mut leaves = Fields::new();
                for (index, value) in values.iter().enumerate() {
                    self.collect(row, &format!("{path}.{index}"), value, &mut leaves);
                }
                bytes = serde_json::to_vec(&leaves)?;
            }
            fields.insert(path, format!("xxh3:{:032x}", xxh3_128(&bytes)).into());
        }
        Ok(())
    }
}

/// Reports whether rows with several ranks can run: the binary links MPI, and `mpirun` is on the
/// path.
pub(super) fn can_run_ranks(binary: &Path) -> Result<bool> {
    let path = env::var_os("PATH").unwrap_or_default();
    let has_mpirun = env::split_paths(&path).any(|dir| dir.join("mpirun").is_file());
    Ok(has_mpirun && fs::read(binary)?.windows(9).any(|bytes| bytes == b"libmpi.so"))
}
