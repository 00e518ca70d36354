//! Every seed, every input that once caused a fault, and mutations of them, through their targets:
//! no panic, and no allocation beyond the declared limit. A single test, on one thread of each of
//! two processes, because the limit applies to the process.

use std::{
    env, fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::Command,
};

use graphmill_fuzz::{
    mutate::mutate,
    scratch::with_files,
    targets::{Answer, TABLE, Target},
};

/// Mutations per target, and those of a soak (`GRAPHMILL_SOAK`); `GRAPHMILL_MUTATIONS` overrides
/// the number.
const MUTATIONS: [u64; 2] = [1_000, 10_000];
/// Set for the process that runs the other half of the mutations.
const SECOND: &str = "GRAPHMILL_REGRESSIONS_SECOND";

#[test]
fn no_input_causes_a_fault() {
    if env::var_os(SECOND).is_some() {
        return half(1);
    }
    let mut beside = Command::new(env::current_exe().unwrap());
    let beside = beside.args(["--exact", "no_input_causes_a_fault", "--nocapture"]).env(SECOND, "1").spawn();
    half(0);
    assert!(beside.unwrap().wait().unwrap().success(), "the process beside has said what it found");
}

/// Runs every input, and every mutation whose number has an even (or odd) number of ones in binary:
/// a split without a period, because mutations cycle through the inputs, of which some take long.
fn half(odd: u32) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    graphmill_fuzz::one_thread();
    let asked = env::var("GRAPHMILL_MUTATIONS").ok();
    let mutations = asked.map_or(MUTATIONS[usize::from(env::var_os("GRAPHMILL_SOAK").is_some())], |number| {
        number.parse().unwrap()
    });
    for target in TABLE {
        let seeds = inputs(&root.join("seeds").join(target.name));
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for (path, data) in &seeds {
            // Those that the fuzzer found cover a reader's refusals, too.
            let is_found = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("found-"));
            if let Err(e) = run(target, data, path)
                && !is_found
            {
                panic!(
                    "{} is rejected ({e}): if the format changed, regenerate the seeds (cargo run -p \
                     graphmill-fuzz --example seeds)",
                    path.display()
                );
            }
        }
        let faults = inputs(&root.join("regressions").join(target.name));
        for (path, data) in &faults {
            let _ = run(target, data, path);
        }
        let all: Vec<&[u8]> = seeds.iter().chain(&faults).map(|(_, data)| &data[..]).collect();
        for i in (0..mutations).filter(|i| i.count_ones() % 2 == odd) {
            let input = all[i as usize % all.len()];
            let other = all[(i / 7) as usize % all.len()];
            let data = mutate(input, other, target.tokens, target.name, i);
            // An allocation beyond the limit ends the process, so the input is written before it is
            // run.
            with_files("last", &[(target.name, &data)], |dir| {
                let _ = run(target, &data, &dir.join(target.name));
            });
        }
    }
}

fn run(target: &Target, data: &[u8], path: &Path) -> Answer {
    let answer = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
    answer.unwrap_or_else(|_| {
        let kept = env::temp_dir().join(format!("graphmill-fuzz-{}", target.name));
        fs::write(&kept, data).unwrap();
        panic!("{} panics on {}; the input is kept as {}", target.name, path.display(), kept.display());
    })
}

fn inputs(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_none_or(|ending| ending != "md"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}
