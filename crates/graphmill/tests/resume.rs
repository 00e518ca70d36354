//! A run that is killed or interrupted at any moment and resumed ends with the same bits as an
//! uninterrupted one.

#![allow(unsafe_code, reason = "system calls")]

use std::{
    fs,
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::common::{Sandbox, copy_dir};

/// Next number of a random sequence (xorshift).
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Kills a run several times at random moments and compares its results with an uninterrupted run.
fn survives_being_killed(options: &str) {
    let sandbox = Sandbox::new();
    if options.contains("--sparse") {
        sandbox.sparse_dataset("data")
    } else {
        sandbox.dataset("data")
    };
    let options = format!("{options} --hidden 16 --fanout 5,5 --batch-size 128 --epochs 10");
    let began = Instant::now();
    sandbox.ok(&format!("train data {options} --checkpoint-batches 2 --out whole"));
    let mut whole = began.elapsed();

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64 | 1;
    let mut state = seed;
    let mut killed = 0;
    for attempt in 0.. {
        assert!(attempt < 100, "no end after {killed} kills, seed {seed}");
        // a run killed before it wrote its configuration starts from scratch
        let begun = sandbox.path("run/config.toml").exists();
        let how = if begun { "--resume".to_string() } else { format!("data {options}") };
        let began = Instant::now();
        let mut child = sandbox
            .command(&format!("train {how} --checkpoint-batches 2 --out run"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if killed < 8 {
            sleep(whole.mul_f64(0.6 * (draw(&mut state) % 1000) as f64 / 1000.0));
            child.kill().unwrap(); // SIGKILL
        }
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            None => killed += 1,
            // finished before the first kill, because other work had slowed down the whole run
            Some(0) if killed == 0 => {
                whole = began.elapsed();
                fs::remove_dir_all(sandbox.path("run")).unwrap();
            }
            Some(0) => break,
            Some(_) => panic!("seed {seed}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
    let what = format!("killed {killed} times, seed {seed}, {options}");
    sandbox.results("whole").assert_same(&sandbox.results("run"), &what);
}

#[test]
fn a_killed_run_ends_with_the_same_bits() {
    survives_being_killed("--schedule plateau --schedule-epochs 1 --clip 1");
}

#[test]
fn a_killed_run_with_running_statistics_ends_with_the_same_bits() {
    survives_being_killed("--model gin --norm batch --optimizer sgd --warmup 2 --eval-every 2");
}

#[test]
fn a_killed_run_with_sparse_features_ends_with_the_same_bits() {
    survives_being_killed("--sparse on --input-dropout 0.3");
}

/// Number of epochs that the run has recorded.
fn recorded(sandbox: &Sandbox) -> usize {
    fs::read_to_string(sandbox.path("run/metrics.jsonl")).map_or(0, |text| text.lines().count())
}

/// Waits until a run has recorded more than `epochs` epochs, and sends it a signal.
fn interrupt(sandbox: &Sandbox, child: &Child, epochs: usize, signal: i32) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while recorded(sandbox) <= epochs {
        assert!(Instant::now() < deadline, "the run makes no progress");
        sleep(Duration::from_millis(1));
    }
    // SAFETY: the child has not been waited for, so no other process has its id.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

#[test]
fn a_killed_run_of_another_strategy_ends_with_the_same_bits() {
    survives_being_killed("--strategy pipelined --dropout 0.3");
    survives_being_killed("--strategy factored --devices virtual:2");
}

#[test]
fn ctrl_c_stops_after_the_batch_and_resumes_to_the_same_bits() {
    ctrl_c("--strategy sequential");
}

#[test]
fn ctrl_c_stops_workers_and_resumes_to_the_same_bits() {
    ctrl_c("--strategy pipelined");
    ctrl_c("--strategy pipelined --allocation 1,1,1 --queue-depth 4");
    ctrl_c("--strategy factored --devices virtual:2");
}

/// Interrupts a run three times and compares its results with an uninterrupted run.
fn ctrl_c(options: &str) {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let options = format!("train data --hidden 16 --fanout 5,5 --batch-size 8 --epochs 12 {options}");
    sandbox.ok(&format!("{options} --out whole"));
    let mut how = format!("{options} --out run --json");
    for (signal, status) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        // one more epoch was recorded by this child, so its signal handler is installed
        let epochs = recorded(&sandbox);
        let child =
            sandbox.command(&how).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        interrupt(&sandbox, &child, epochs, signal);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        for word in ["interrupted in epoch", "saved", "graphmill train --resume --out run"] {
            assert!(stderr.contains(word), "'{word}' not in {stderr}");
        }
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        assert!(document["error"].as_str().unwrap().starts_with("interrupted in epoch"));
        assert!(
            sandbox.path("run/checkpoint/state.json").exists() && !sandbox.path("run/summary.json").exists()
        );
        for args in ["eval run", "eval run --last", "report run"] {
            sandbox.ok(args);
        }
        how = "train --resume --out run --json".to_string();
    }
    sandbox.ok(&how);
    sandbox.results("whole").assert_same(&sandbox.results("run"), "interrupted three times");
}

#[test]
fn finished_runs_resume_to_themselves_or_to_more_epochs() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let options = "train data --hidden 16 --fanout 5,5 --batch-size 200";
    sandbox.ok(&format!("{options} --epochs 5 --out whole"));
    sandbox.ok(&format!("{options} --epochs 2 --out run"));
    let before = sandbox.results("run");
    sandbox.ok("train --resume --out run");
    before.assert_same(&sandbox.results("run"), "resumed after its end");
    sandbox.ok("train --resume --out run --epochs 4 --threads 1");
    sandbox.ok("train data --resume --out run --epochs 5");
    sandbox.results("whole").assert_same(&sandbox.results("run"), "2, then 4, then 5 epochs");
    // fewer epochs than recorded: nothing is lost
    sandbox.ok("train --resume --out run --epochs 3");
    sandbox.results("whole").assert_same(&sandbox.results("run"), "asked for fewer epochs");
}

#[test]
fn early_stopped_runs_resume_to_themselves() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("train data --hidden 8 --fanout 5,5 --lr 0.05 --epochs 200 --patience 3 --out run");
    let before = sandbox.results("run");
    assert!(before.epochs.len() < 200, "it stopped early");
    sandbox.ok("train --resume --out run");
    before.assert_same(&sandbox.results("run"), "resumed after its end");
}

#[test]
fn options_that_change_results_are_refused_on_resume() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("train data --hidden 16 --epochs 1 --out run");
    let before = sandbox.results("run");
    for (change, says) in [
        ("--hidden 8", "--hidden is 16 in the run to resume and cannot become 8"),
        ("--lr 0.1", "--lr is 0.003"),
        ("--seed 1", "--seed is 0"),
        ("--fanout 3,3", "--fanout is [15,10]"),
        ("--model gcn", "--model is \"sage\""),
    ] {
        let outcome = sandbox.run(&format!("train {change} --resume --out run --epochs 3"));
        assert_eq!(outcome.status, Some(2), "{change}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{change}: {}", outcome.stderr);
    }
    before.assert_same(&sandbox.results("run"), "refused");
    let outcome = sandbox.run("train --resume");
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("--out"), "{}", outcome.stderr);
}

#[test]
fn a_changed_config_file_is_named() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("train data --hidden 16 --epochs 1 --out run");
    let before = sandbox.results("run");
    let file = sandbox.path("run/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    for (from, to, says) in [
        (
            "\nlr = 0.003",
            "\nlr = 0.083",
            "trained with lr = 0.003, but its configuration now says lr = 0.083",
        ),
        ("\nseed = 0", "\nseed = 8", "trained with seed = 0"),
        ("\ndropout = 0.5", "\ndropout = 0.3", "trained with dropout = 0.5"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        std::fs::write(&file, &changed).unwrap();
        for command in ["train --resume --out run --epochs 3", "predict run --out p.npy", "eval run"] {
            let outcome = sandbox.run(command);
            assert_eq!(outcome.status, Some(1), "{command}: {}", outcome.stderr);
            assert!(outcome.stderr.contains(says), "{command}: {}", outcome.stderr);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), changed, "the file of the user is left alone");
    }
    // options without influence on the results may change
    std::fs::write(&file, text.replacen("\nepochs = 1", "\nepochs = 2", 1)).unwrap();
    sandbox.ok("train --resume --out run");
    assert_eq!(before.epochs.len() + 1, sandbox.results("run").epochs.len());
}

#[test]
fn damaged_checkpoints_are_named_and_left_alone() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("train data --hidden 16 --epochs 2 --out run");
    let files = ["best.safetensors", "model.safetensors", "optimizer.safetensors", "state.json"];
    type Damage = fn(&mut Vec<u8>);
    let damages: [Damage; 4] = [
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes.clear(),
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
        },
        |bytes| bytes.push(0),
    ];
    for file in files {
        for (i, damage) in damages.iter().enumerate() {
            let run = format!("{file}{i}");
            copy_dir(&sandbox.path("run"), &sandbox.path(&run));
            let name = format!("{run}/checkpoint/{file}");
            let mut bytes = sandbox.read(&name);
            damage(&mut bytes);
            sandbox.write(&name, &bytes);
            let outcome = sandbox.run(&format!("train --resume --out {run} --epochs 4"));
            assert_eq!(outcome.status, Some(1), "{name}: {}", outcome.stderr);
            assert!(outcome.stderr.contains(&name), "{name}: {}", outcome.stderr);
            assert!(outcome.stderr.contains("train again"), "the remedy: {}", outcome.stderr);
            assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
            assert_eq!(sandbox.read(&name), bytes, "the damaged file is unchanged");
            assert_eq!(sandbox.epochs(&run), sandbox.epochs("run"));
        }
    }
    // a damaged line of the metrics within the checkpoint's epochs
    sandbox.write("run/metrics.jsonl", "{\"epoch\": 1\n");
    let outcome = sandbox.run("train --resume --out run --epochs 4");
    assert_eq!(outcome.status, Some(1));
    assert!(outcome.stderr.contains("run/metrics.jsonl: line 1"), "{}", outcome.stderr);
}

#[test]
fn a_damaged_newest_checkpoint_resumes_from_the_one_before_it_to_the_same_bits() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let options =
        "train data --hidden 16 --fanout 5,5 --batch-size 8 --epochs 8 --dropout 0.3 --checkpoint-batches 5";
    sandbox.ok(&format!("{options} --out whole"));
    assert!(!sandbox.path("whole/checkpoint.old").exists(), "a finished run keeps one checkpoint");
    let mut command = sandbox.command(&format!("{options} --out run"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    interrupt(&sandbox, &child, 0, libc::SIGINT);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert!(sandbox.path("run/checkpoint.old/state.json").exists());
    let flip = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    };
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 3] = [
        ("model.safetensors", flip),
        ("state.json", |bytes| bytes.truncate(bytes.len() / 2)),
        ("optimizer.safetensors", Vec::clear),
    ];
    let damaged = |name: &str, damage: Damage| {
        let mut bytes = sandbox.read(name);
        damage(&mut bytes);
        sandbox.write(name, &bytes);
    };
    for (file, damage) in damages {
        let run = format!("damaged-{file}");
        copy_dir(&sandbox.path("run"), &sandbox.path(&run));
        let name = format!("{run}/checkpoint/{file}");
        damaged(&name, damage);
        let mut command = sandbox.command(&format!("train --resume --out {run}"));
        let output = command.env("GRAPHMILL_PROGRESS", "plain").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        for part in ["warning: the newest checkpoint is damaged", &name] {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
        sandbox.results("whole").assert_same(&sandbox.results(&run), file);
    }
    let both = ["run/checkpoint/model.safetensors", "run/checkpoint.old/model.safetensors"];
    both.iter().for_each(|name| damaged(name, flip));
    let left = both.map(|name| sandbox.read(name));
    let outcome = sandbox.run("train --resume --out run");
    assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
    for part in both.iter().chain(&["train again"]) {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    assert!(left == both.map(|name| sandbox.read(name)), "the damaged files are unchanged");
}

#[test]
fn runs_work_from_any_working_directory() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("train data --hidden 16 --epochs 1 --out here/run");
    let before = sandbox.ok_json("eval here/run");
    fs::create_dir(sandbox.path("there")).unwrap();
    let there = |args: &str| {
        let output = sandbox.command(args).current_dir(sandbox.path("there")).output().unwrap();
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    };
    there("eval ../here/run");
    there("predict ../here/run --out classes.npy");
    there("train --resume --out ../here/run --epochs 2");
    there("train ../data --resume --out ../here/run --epochs 3");
    there("train --config ../here/run/config.toml --out again");
    assert_eq!(sandbox.epochs("here/run"), sandbox.epochs("there/again"));
    assert!(before["test"].is_f64());
}

#[test]
fn a_best_model_newer_than_the_checkpoint_is_replaced() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let options = "train data --hidden 16 --fanout 5,5 --lr 0.001";
    sandbox.ok(&format!("{options} --epochs 2 --out run"));
    let before = sandbox.results("run");
    sandbox.ok(&format!("{options} --epochs 6 --out longer"));
    let newer = sandbox.read("longer/best.safetensors");
    assert_ne!(newer, before.weights[0], "it improves");
    // a best model of a later epoch, and a missing one; resumed with fewer epochs than recorded
    for bytes in [Some(newer), None] {
        match bytes {
            Some(bytes) => sandbox.write("run/best.safetensors", bytes),
            None => fs::remove_file(sandbox.path("run/best.safetensors")).unwrap(),
        }
        sandbox.ok("train --resume --out run --epochs 1");
        before.assert_same(&sandbox.results("run"), "the checkpoint's own best model");
        assert_eq!(sandbox.read("run/checkpoint/best.safetensors"), before.weights[0]);
    }
}

#[test]
fn moved_datasets_are_recognized() {
    let sandbox = Sandbox::new();
    let data = sandbox.dataset("data");
    sandbox.ok("train data --hidden 16 --epochs 2 --out whole");
    sandbox.ok("train data --hidden 16 --epochs 1 --out run");
    let origin = sandbox.json("run/dataset.json");
    assert_eq!(
        (&origin["source"], &origin["path"]),
        (&"directory".into(), &sandbox.path("data").to_str().into())
    );
    let scores = sandbox.ok_json("eval run");
    assert_eq!(scores["same_dataset"], true);
    fs::rename(sandbox.path("data"), sandbox.path("moved")).unwrap();
    for command in ["eval run", "predict run --out new.npy", "train --resume --out run --epochs 2"] {
        let outcome = sandbox.run(command);
        assert_eq!(outcome.status, Some(1), "{command}: {}", outcome.stderr);
        for word in ["run: its dataset sbm (3000 nodes", "is no longer in", "--dataset"] {
            assert!(outcome.stderr.contains(word), "{command}: '{word}' not in {}", outcome.stderr);
        }
    }
    assert_eq!(sandbox.ok_json("eval run --dataset moved"), scores);
    assert_eq!(sandbox.ok_json("predict run --dataset moved --out new.npy")["same_dataset"], true);
    sandbox.ok("train moved --resume --out run --epochs 2");
    sandbox.results("run").assert_same(&sandbox.results("whole"), "resumed on the moved dataset");
    assert_eq!(sandbox.json("run/dataset.json")["path"], sandbox.path("moved").to_str().unwrap());
    sandbox.ok("eval run");
    // other data of the same widths may be predicted on, and is reported as other
    let mut other = data.clone();
    other.split.test = data.split.test[1..].to_vec().into();
    other.save(sandbox.path("other")).unwrap();
    assert_eq!(sandbox.ok_json("eval run --dataset other")["same_dataset"], false);
    assert_eq!(sandbox.ok_json("predict run --dataset other --out newer.npy")["same_dataset"], false);
    // but it may not silently replace the run's own dataset
    other.save_replacing(sandbox.path("moved")).unwrap();
    for command in ["eval run", "predict run --out other.npy"] {
        let outcome = sandbox.run(command);
        assert_eq!(outcome.status, Some(1), "{command}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("run: it was trained on sbm (3000 nodes"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("restore the dataset"), "{}", outcome.stderr);
    }
    assert!(!sandbox.path("other.npy").exists());
}

#[test]
fn another_dataset_at_the_same_path_is_refused() {
    let sandbox = Sandbox::new();
    let data = sandbox.dataset("data");
    sandbox.ok("train data --hidden 16 --epochs 1 --out run");
    let before = sandbox.results("run");
    let summary = sandbox.json("run/summary.json");
    let then = summary["dataset"]["checksum"].as_str().expect("the checksum of the manifest");
    let mut other = data.clone();
    other.split.train = data.split.train[1..].to_vec().into();
    other.save_replacing(sandbox.path("data")).unwrap();
    let now = graphmill_data::Dataset::open(sandbox.path("data")).unwrap().checksum.unwrap();
    let outcome = sandbox.run("train --resume --out run --epochs 3");
    assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
    for word in ["run: this run was trained on sbm (3000 nodes", then, "cannot continue with sbm (", &now] {
        assert!(outcome.stderr.contains(word), "'{word}' not in {}", outcome.stderr);
    }
    before.assert_same(&sandbox.results("run"), "refused");
    // the same dataset, written again
    data.save_replacing(sandbox.path("data")).unwrap();
    sandbox.ok("train --resume --out run --epochs 2");
}
