//! Helpers for the tests of the command line: a temporary directory per test in which the program
//! runs, and small datasets.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use graphmill_core::{Features, Labels, SparseRows, features::FeatureData};
use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
    npy,
};
use serde_json::Value;

/// Temporary directory in which a test runs the program, deleted when the test ends.
pub(crate) struct Sandbox(tempfile::TempDir);

/// Exit status and output of a run of the program.
pub(crate) struct Outcome {
    pub(crate) args: String,
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    /// Creates an empty directory.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// Path of a file in the sandbox.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file of the sandbox and its parent directories.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a name")).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Bytes of a file of the sandbox.
    pub(crate) fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Contents of a JSON file of the sandbox.
    pub(crate) fn json(&self, name: impl AsRef<Path>) -> Value {
        serde_json::from_slice(&self.read(name)).expect("JSON")
    }

    /// Names and bytes of all files below a directory of the sandbox, by name; not the records of
    /// verified files, which have the times of the files.
    pub(crate) fn tree(&self, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let (root, mut files, mut dirs) = (self.path(name), Vec::new(), vec![self.path(name)]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => dirs.push(path),
                    false if path.ends_with("verified.json") => {}
                    false => files.push((path.strip_prefix(&root).unwrap().into(), fs::read(&path).unwrap())),
                }
            }
        }
        files.sort();
        files
    }

    /// The program with arguments separated by spaces; `''` stands for an empty one.
    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graphmill"));
        command.args(args.split_whitespace().map(|word| if word == "''" { "" } else { word }));
        command.current_dir(self.0.path()).stdin(Stdio::null()).env("RUST_BACKTRACE", "0");
        // errors are compared without the progress before them
        command.env("GRAPHMILL_PROGRESS", "none");
        // the tests' own servers run on this machine, so no proxy may be used for them
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, args: &str) -> Outcome {
        let output = self.command(args).output().expect("the program starts");
        Outcome {
            args: args.to_string(),
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Runs the program, which must succeed; returns its standard output.
    pub(crate) fn ok(&self, args: &str) -> String {
        self.run(args).succeeded().stdout
    }

    /// Runs the program with `--json`, which must succeed; returns the document.
    pub(crate) fn ok_json(&self, args: &str) -> Value {
        self.run(&format!("{args} --json")).succeeded().json()
    }

    /// Saves a small block model: 5 classes, 24 features, 1500 training nodes.
    pub(crate) fn dataset(&self, name: &str) -> Dataset {
        let dataset = small();
        dataset.save(self.path(name)).unwrap();
        dataset
    }

    /// Saves the same graph with an eighth of the feature values, stored as sparse rows.
    pub(crate) fn sparse_dataset(&self, name: &str) -> Dataset {
        let mut dataset = small();
        let FeatureData::F32(rows) = &dataset.features.data else { unreachable!() };
        let some: Vec<f32> = rows.iter().map(|&x| if x < 1.2 { 0.0 } else { x }).collect();
        dataset.features = Features::csr(SparseRows::from_dense(24, &some).unwrap());
        dataset.save(self.path(name)).unwrap();
        dataset
    }

    /// Saves the same graph with two or three labels per node.
    pub(crate) fn multi_label_dataset(&self, name: &str) -> Dataset {
        let mut dataset = small();
        let Labels::Single { class, classes } = &dataset.labels else { unreachable!() };
        let mut member = vec![0; class.len() * classes];
        for (v, &c) in class.iter().enumerate() {
            for label in [c as usize, (c as usize + 1) % classes, v % classes] {
                member[v * classes + label] = 1;
            }
        }
        dataset.metric = None;
        dataset.labels = Labels::Multi { member: member.into(), classes: *classes };
        dataset.save(self.path(name)).unwrap();
        dataset
    }

    /// Recorded epochs of a run, without the fields that depend on the clock.
    pub(crate) fn epochs(&self, run: &str) -> Vec<Value> {
        let text = String::from_utf8(self.read(format!("{run}/metrics.jsonl"))).unwrap();
        text.lines().map(|line| timeless(serde_json::from_str(line).expect("a line of JSON"))).collect()
    }

    /// Results of a finished run that must not depend on threads, kills or the clock.
    pub(crate) fn results(&self, run: &str) -> Results {
        let summary = self.json(format!("{run}/summary.json"));
        let files = ["best.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"];
        Results {
            epochs: self.epochs(run),
            of_summary: summary["epochs"].as_array().unwrap().iter().cloned().map(timeless).collect(),
            best: summary["best"].clone(),
            test: summary["test"].clone(),
            weights: files.map(|file| self.read(format!("{run}/{file}"))),
        }
    }

    /// Shape and values of a `.npy` file of 32-bit floats.
    pub(crate) fn floats(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let array = npy::open(self.path(name)).unwrap();
        (array.shape.clone(), array.read_as::<f32>().unwrap())
    }
}

/// Results of a run that must not depend on threads, kills or the clock.
#[derive(PartialEq)]
pub(crate) struct Results {
    pub(crate) epochs: Vec<Value>,
    pub(crate) of_summary: Vec<Value>,
    pub(crate) best: Value,
    pub(crate) test: Value,
    pub(crate) weights: [Vec<u8>; 3],
}

impl Results {
    /// Asserts equality part by part, so that a failure does not print the weights.
    pub(crate) fn assert_same(&self, other: &Self, what: &str) {
        assert_eq!(self.epochs, other.epochs, "metrics.jsonl: {what}");
        assert_eq!(self.of_summary, other.of_summary, "epochs of summary.json: {what}");
        assert_eq!(self.best, other.best, "best epoch: {what}");
        assert_eq!(self.test, other.test, "test score: {what}");
        for (part, (a, b)) in
            ["best", "last", "optimiser"].iter().zip(self.weights.iter().zip(&other.weights))
        {
            assert!(a == b, "the bytes of the {part} weights: {what}");
        }
    }
}

impl Outcome {
    /// Panics with the output unless the program succeeded.
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.status, Some(0), "graphmill {}\n{}{}", self.args, self.stdout, self.stderr);
        self
    }

    /// Standard output as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("graphmill {}: {e} in:\n{}", self.args, self.stdout))
    }
}

/// The block model of [`Sandbox::dataset`].
fn small() -> Dataset {
    let options = GenerateOptions {
        nodes: 3000,
        degree: Some(8.0),
        classes: 5,
        dim: 24,
        signal: 0.3,
        p_in: 0.7,
        ..GenerateOptions::default()
    };
    generate("sbm", &options).unwrap()
}

/// Removes the fields of an epoch's record that depend on the clock.
fn timeless(mut epoch: Value) -> Value {
    let fields = epoch.as_object_mut().expect("an object");
    let of_the_clock =
        ["seconds", "eval_seconds", "stages", "seeds_per_second", "workers", "bottleneck", "memory_bytes"];
    fields.remove("memory");
    for name in of_the_clock {
        fields.remove(name).unwrap_or_else(|| panic!("'{name}' is missing"));
    }
    for of_type in fields.get_mut("type_traffic").and_then(Value::as_array_mut).into_iter().flatten() {
        for tier in of_type["traffic"].as_object_mut().expect("an object").values_mut() {
            tier.as_object_mut().expect("an object").remove("seconds").expect("seconds of a type's tier");
        }
    }
    // devices compete for batches, so their shares vary
    fields.remove("devices");
    let traffic = fields["traffic"].as_object_mut().expect("an object");
    for (name, tier) in &mut *traffic {
        let tier = tier.as_object_mut().expect("an object");
        tier.remove("seconds").unwrap_or_else(|| panic!("seconds of {name} are missing"));
    }
    // which device of a pool reads a row varies with them: one number for the whole pool
    let peer = traffic.remove("peer").expect("a tier");
    for (name, value) in traffic["device"].as_object_mut().expect("an object") {
        *value = (value.as_u64().unwrap() + peer[name.as_str()].as_u64().unwrap()).into();
    }
    epoch
}

/// Copies a directory recursively.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
