//! Sweeps: the trials that go on, the same bits as runs alone, kills, and refusals.

#![allow(unsafe_code, reason = "system calls")]

use std::{
    fs,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::common::Sandbox;

const RUN: &str = "--fanout 3,3 --batch-size 256 --dropout 0";
const SWEEP: &str = "--try lr=log:1e-4..1e-1 --try hidden=4,8 --trials 9 --epochs 9";

/// Record of a sweep, without the fields that depend on the clock.
fn record(sandbox: &Sandbox, dir: &str) -> Value {
    let mut record = sandbox.json(format!("{dir}/sweep.json"));
    for run in record["repeated"]["runs"].as_array_mut().into_iter().flatten() {
        run["seconds"] = Value::Null;
    }
    record
}

#[test]
fn better_trials_go_on_and_end_as_they_would_alone() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    // a schedule that depends on the number of epochs
    let options = format!("{RUN} --schedule cosine");
    let text = sandbox.ok(&format!("sweep data {SWEEP} {options} --repeat 2 --out s"));
    let record = record(&sandbox, "s");
    assert_eq!(record["rungs"], serde_json::json!([1, 3, 9]));
    let trials = record["trials"].as_array().unwrap();
    let reached =
        |count: usize| trials.iter().filter(move |t| t["scores"].as_array().unwrap().len() == count);
    assert_eq!([1, 2, 3].map(|count| reached(count).count()), [6, 2, 1]);
    // no trial that ended after the first rung was better than one that went on
    let first = |t: &Value| t["scores"][0]["judged"].as_f64().unwrap();
    let ended = reached(1).map(first).fold(f64::MIN, f64::max);
    assert!(reached(2).chain(reached(3)).all(|t| first(t) >= ended));

    let best = &trials[record["best"].as_u64().unwrap() as usize - 1];
    assert!(best["test"].is_number() && reached(1).all(|t| t["test"].is_null()), "{best}");
    let command = record["command"].as_str().unwrap();
    assert!(text.contains(command) && text.contains("2 runs: test "), "{text}");
    sandbox.ok(&format!("{} --out alone", command.strip_prefix("graphmill ").unwrap()));
    let run = format!("s/{}", best["run"].as_str().unwrap());
    sandbox.results("alone").assert_same(&sandbox.results(&run), "trained in one go");

    let runs = sandbox.ok_json("runs s");
    let rows = runs["runs"].as_array().unwrap();
    assert_eq!(rows.len(), 10, "nine trials and another seed of the best");
    assert!(rows.iter().all(|row| row["metric"] == rows[0]["metric"]), "{runs}");
    let page = String::from_utf8(sandbox.read("s/report.html")).unwrap();
    assert!(page.contains("sweep of 9 trials") && page.contains("epochs trained, instead of 81"));
    fs::remove_file(sandbox.path("s/report.html")).unwrap();
    sandbox.ok("report s");
    assert_eq!(String::from_utf8(sandbox.read("s/report.html")).unwrap(), page);

    let before = sandbox.tree("s");
    sandbox.ok("sweep --resume --out s");
    assert_eq!(sandbox.tree("s").len(), before.len());
    assert_eq!(self::record(&sandbox, "s"), record, "a finished sweep resumes to itself");
}

#[test]
fn a_killed_sweep_ends_with_the_same_record() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let began = Instant::now();
    sandbox.ok(&format!("sweep data {SWEEP} {RUN} --repeat 2 --out whole"));
    let whole = began.elapsed();
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut killed = 0u64;
    for attempt in 0.. {
        assert!(attempt < 60, "no end after {killed} kills, seed {seed}");
        let begun = sandbox.path("s/sweep.json").exists();
        let how = if begun { "--resume".to_string() } else { format!("data {SWEEP} {RUN} --repeat 2") };
        let mut child = sandbox
            .command(&format!("sweep {how} --out s"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if killed < 6 {
            let share = (seed.wrapping_add(killed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as f64 / 1024.0;
            sleep(whole.mul_f64(0.5 * share));
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            None => killed += 1,
            Some(0) => break,
            Some(_) => panic!("seed {seed}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
    assert_eq!(record(&sandbox, "whole"), record(&sandbox, "s"), "killed {killed} times, seed {seed}");
}

#[test]
fn an_interrupted_sweep_says_how_to_continue() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let child = sandbox
        .command(&format!("sweep data --try lr=0.01,0.02 --epochs 2000 --min-epochs 2000 {RUN} --out s"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !sandbox.path("s/trial-001/metrics.jsonl").exists() {
        assert!(Instant::now() < deadline, "the sweep makes no progress");
        sleep(Duration::from_millis(2));
    }
    // SAFETY: the child has not been waited for, so no other process has its id.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted; resume with: graphmill sweep --resume --out s"), "{stderr}");
}

#[test]
fn trials_that_diverge_are_dropped() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let options = "--optimizer sgd --norm none --epochs 4 --min-epochs 2 --sweep-eta 2";
    let record = sandbox.ok_json(&format!("sweep data --try lr=1e38,0.1 {options} {RUN} --out s"));
    let failed = record["trials"][0]["failed"].as_str().unwrap();
    assert!(failed.contains("training diverged"), "{failed}");
    assert_eq!((&record["best"], &record["trials"][0]["scores"]), (&2.into(), &serde_json::json!([])));
    let message = sandbox.run(&format!("sweep data --try lr=1e37,1e38 {options} {RUN} --out t")).stderr;
    assert!(message.contains("every trial failed; the first: training diverged"), "{message}");
}

#[test]
fn sweeps_that_cannot_run_are_refused_before_the_first_trial() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok(&format!("sweep data --try hidden=4,8 --epochs 1 {RUN} --out s"));
    for (args, says) in [
        ("data --try lr=0.1,0.2", "--out DIR"),
        ("data --out t", "a sweep needs values to try"),
        ("data --try lr=0.1 --lr 0.2 --out t", "--lr is both set and tried"),
        ("data --try lr=0.1 --try lr=0.2 --out t", "--try lr is given twice"),
        ("data --try lr=-1,0.2 --out t", "trial 1 (lr -1): --lr -1"),
        ("data --try model=sage,gcn --heads 2 --out t", "--heads 2"),
        ("data --try lr=0.1 --sweep-eta 1 --out t", "--sweep-eta 1"),
        ("data --try lr=0.1..0.2 --out t", "--trials N"),
        ("data --try hidden=4,16 --epochs 1 --out s", "there is another sweep here"),
        ("--resume --out s --epochs 3", "leave out --epochs"),
        ("--resume --out data", "there is no sweep here"),
    ] {
        let outcome = sandbox.run(&format!("sweep {args}"));
        assert!(outcome.status != Some(0) && outcome.stderr.contains(says), "{args}: {}", outcome.stderr);
        assert!(!sandbox.path("t").exists(), "{args}");
    }
    // an option that only one of the models reads
    sandbox.ok("sweep data --try model=sage,gat --heads 2 --hidden 8 --epochs 1 --fanout 3,3 --out u");
}

#[test]
fn values_and_several_types_are_swept_by_their_own_metric() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed shop --nodes 400");
    let options = "--hidden 8 --fanout 3,3 --batch-size 64 --epochs 2 --min-epochs 1 --sweep-eta 2";
    let record = sandbox.ok_json(&format!("sweep shop --try lr=0.001,0.05 {options} --out s"));
    assert!(record["best"].is_number() && record["command"].as_str().unwrap().contains("shop"), "{record}");
}

#[test]
fn repeats_resume_and_runs_are_compared_on_a_page() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let repeat = format!("train data {RUN} --hidden 8 --epochs 2 --repeat 3 --out r");
    sandbox.ok(&repeat);
    let whole = sandbox.json("r/repeat.json");
    // a run in the middle is missing, and the last one has an epoch less
    let first = sandbox.read("r/seed-0/summary.json");
    fs::remove_dir_all(sandbox.path("r/seed-1")).unwrap();
    fs::remove_dir_all(sandbox.path("r/seed-2")).unwrap();
    fs::remove_file(sandbox.path("r/repeat.json")).unwrap();
    sandbox.ok(&format!("train data {RUN} --hidden 8 --epochs 1 --seed 2 --out r/seed-2"));
    let text = sandbox.ok("train --repeat 3 --resume --out r --epochs 2");
    assert!(text.contains("3 runs: test "), "{text}");
    let resumed = sandbox.json("r/repeat.json");
    for field in ["test", "valid", "metric"] {
        assert_eq!(resumed[field], whole[field], "{field}");
    }
    let scores = |summary: &[u8]| serde_json::from_slice::<Value>(summary).unwrap()["test"].clone();
    assert_eq!(scores(&sandbox.read("r/seed-0/summary.json")), scores(&first));
    let refused = sandbox.run("train --repeat 3 --resume --out nowhere");
    assert!(refused.stderr.contains("nowhere"), "{}", refused.stderr);

    let text = sandbox.ok("runs r --out runs.html");
    assert!(text.contains("over 3 seeds") && text.ends_with("runs.html\n"), "{text}");
    assert_eq!(text.lines().next().unwrap().matches("metric").count(), 1, "{text}");
    let page = String::from_utf8(sandbox.read("runs.html")).unwrap();
    for part in ["3 runs, compared", "r/seed-1", "<h2>Seeds</h2>", "Validation accuracy", "<svg "] {
        assert!(page.contains(part), "{part}");
    }
    let refused = sandbox.run("runs r --out runs.html");
    assert!(refused.stderr.contains("pass --force to replace it"), "{}", refused.stderr);
    sandbox.ok("runs r --out runs.html --force");
}

#[test]
fn an_interrupt_ends_a_generator_with_its_status() {
    let sandbox = Sandbox::new();
    let args = "generate kronecker big --scale 22 --feature-dim 8 --memory 64M";
    let mut child = sandbox.command(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    sleep(Duration::from_millis(1500));
    // SAFETY: kill(2) takes plain numbers; the process is our child, not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(!sandbox.path("big").exists());
}
