//! Runs on features that are verified when their rows are first read.

use std::{fs, path::Path};

use graphmill_data::generate::{FeatureType, GenerateOptions, generate, generate_typed};
use graphmill_engine::{
    Result, RunContext, RunDir, TrainConfig,
    build::open_dataset,
    observer::{Observer, Quiet},
    record::{Summary, VerificationRecord},
    train, typed,
};

use crate::set::with;

const MIB: usize = 1 << 20;

/// Datasets with feature files of several chunks, of either format, and the file.
fn datasets(root: &Path) -> [(String, std::path::PathBuf, TrainConfig); 3] {
    let one = |name: &str, is_half| {
        let path = root.join(name);
        let feature_type = if is_half { FeatureType::F16 } else { FeatureType::F32 };
        let options = GenerateOptions { nodes: 1200, dim: 500, feature_type, ..GenerateOptions::default() };
        generate("sbm", &options).unwrap().save(&path).unwrap();
        (name.to_string(), path.join("features.npy"), config(&path, "hidden=8"))
    };
    let several = root.join("types");
    let options =
        GenerateOptions { nodes: 2400, classes: 4, dim: 500, p_in: 0.9, ..GenerateOptions::default() };
    generate_typed("typed", &options).unwrap().save(&several).unwrap();
    [
        one("whole", false),
        one("half", true),
        ("types".into(), several.join("nodes/paper/features.npy"), config(&several, "model=rsage hidden=8")),
    ]
}

fn config(dataset: &Path, options: &str) -> TrainConfig {
    let config = TrainConfig { dataset: dataset.to_str().unwrap().into(), ..TrainConfig::default() };
    let common = "verify=first-read host_budget=1M fanout=4,2 batch_size=64 epochs=1 lr=0.01";
    with(config, &format!("{common} {options}"))
}

/// Trains on the dataset that the options name, on some threads.
fn run(config: &TrainConfig, out: &Path, resume: bool, threads: usize) -> (Result<Summary>, Vec<String>) {
    #[derive(Default)]
    struct Notes(Vec<String>);
    impl Observer for Notes {
        fn note(&mut self, message: &str) {
            self.0.push(message.into());
        }
    }
    let mut notes = Notes::default();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let outcome = pool.install(|| {
        let run = if resume { RunDir::reopen(out)? } else { RunDir::create(out)? };
        let context = RunContext { run: Some(&run), resume, observer: &mut notes, stop: &|| false };
        match typed::open_dataset(config)? {
            Some(data) => typed::train(config, &data, context),
            None => train(config, &open_dataset(config)?, context),
        }
    });
    (outcome, notes.0)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Parts of a summary that do not depend on times.
fn results(summary: &Summary) -> impl PartialEq + std::fmt::Debug + use<> {
    let losses: Vec<u64> = summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect();
    (losses, summary.test.clone(), summary.best)
}

#[test]
fn a_damaged_chunk_ends_the_run_and_leaves_its_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    for (name, file, config) in datasets(root.path()) {
        let longer = with(config.clone(), "epochs=2");
        let whole = run(&longer, &root.path().join(format!("{name} whole")), false, 2).0.unwrap();
        for threads in [1, 3] {
            let out = root.path().join(format!("{name} {threads}"));
            run(&config, &out, false, threads).0.unwrap();
            let state = fs::read(out.join("checkpoint/state.json")).unwrap();
            flip(&file, MIB + 4321);
            let error = run(&longer, &out, true, threads).0.unwrap_err().to_string();
            let place = format!("features.npy: bytes {MIB} to ");
            assert!(
                error.contains(&place) && error.contains("damaged") && error.contains("restore the file"),
                "{name}: {error}"
            );
            assert_eq!(fs::read(out.join("checkpoint/state.json")).unwrap(), state, "{name}");
            flip(&file, MIB + 4321);
            let resumed = run(&longer, &out, true, threads).0.unwrap();
            assert_eq!(results(&resumed), results(&whole), "{name}, {threads} threads");
        }
    }
}

#[test]
fn the_summary_records_when_features_were_verified() {
    let root = tempfile::tempdir().unwrap();
    for (name, file, config) in datasets(root.path()) {
        let mut seen = Vec::new();
        for verify in ["open", "auto", "first-read", "none"] {
            let out = root.path().join(format!("{name} {verify}"));
            let (outcome, notes) = run(&with(config.clone(), &format!("verify={verify}")), &out, false, 2);
            let summary = outcome.unwrap();
            let found = summary.verification.unwrap();
            assert_eq!(RunDir::open(&out).unwrap().summary().unwrap().verification, Some(found));
            let bytes = found.bytes;
            let expected = match verify {
                "open" | "auto" => VerificationRecord { bytes, at_opening: bytes, ..Default::default() },
                "first-read" => {
                    let at_first_read = bytes - found.unverified;
                    VerificationRecord {
                        bytes,
                        at_first_read,
                        unverified: found.unverified,
                        ..Default::default()
                    }
                }
                _ => VerificationRecord { bytes, unverified: bytes, is_off: true, ..Default::default() },
            };
            assert_eq!(found, expected, "{name} {verify}");
            // inference reads all rows of the types that are reached
            assert!(verify != "first-read" || found.unverified == 0, "{name}: {found:?}");
            assert!(bytes > MIB as u64, "{name}: {found:?}");
            let has_note = notes.iter().any(|note| note.contains("--verify none"));
            assert_eq!(has_note, verify == "none", "{name} {verify}: {notes:?}");
            seen.push(results(&summary));
        }
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{name}");

        // a dataset of an older version
        fs::remove_file(file.with_file_name("features_checksums.npy")).unwrap();
        let out = root.path().join(format!("{name} old"));
        let (outcome, notes) = run(&config, &out, false, 2);
        let summary = outcome.unwrap();
        let found = summary.verification.unwrap();
        assert!(found.lacks_checksums && found.unverified > 0, "{name}: {found:?}");
        assert!(notes.iter().any(|note| note.contains("info --verify adds the file")), "{name}: {notes:?}");
        assert_eq!(results(&summary), seen[0], "{name}");
    }
}

#[test]
fn rows_in_host_memory_are_verified_when_they_are_copied() {
    let root = tempfile::tempdir().unwrap();
    for (name, file, config) in datasets(root.path()) {
        let config = with(config, "host_budget=0");
        let out = |what: &str| root.path().join(format!("{name} {what}"));
        let summary = run(&config, &out("good"), false, 2).0.unwrap();
        let found = summary.verification.unwrap();
        assert_eq!((found.at_first_read, found.unverified), (found.bytes, 0), "{name}: {found:?}");
        flip(&file, MIB + 4321);
        let error = run(&config, &out("bad"), false, 2).0.unwrap_err().to_string();
        assert!(error.contains("the features are damaged"), "{name}: {error}");
        run(&with(config, "verify=none"), &out("off"), false, 2).0.unwrap();
    }
}

#[test]
fn a_dataset_that_a_program_opened_is_verified_as_the_run_says() {
    let root = tempfile::tempdir().unwrap();
    let [(_, file, config), ..] = datasets(root.path());
    let data = open_dataset(&config).unwrap();
    let record = |verify: &str| {
        let config = with(config.clone(), &format!("verify={verify}"));
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train(&config, &data, context).map(|summary| summary.verification.unwrap())
    };
    flip(&file, MIB + 4321);
    assert!(record("open").unwrap_err().to_string().contains("the features are damaged"));
    flip(&file, MIB + 4321);
    let found = record("open").unwrap();
    assert_eq!((found.at_opening, found.at_first_read), (found.bytes, 0));
}
