//! `mpirun graphmill train` on a partitioned dataset: it gives the losses of one process, and ends
//! if a rank dies or hangs.
#![cfg(feature = "mpi")]

mod signals;

use std::{
    fmt::Write as _,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use graphmill_core::{keyed, progress};
use graphmill_data::{
    generate::{GenerateOptions, generate, generate_typed},
    partition::{Description, PartitionBook, write, write_types},
    typed::FeatureTable,
};
use serde_json::Value;

const GRAPHMILL: &str = env!("CARGO_BIN_EXE_graphmill");
/// Time limit of a run, long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Saves a dataset whole and in four parts, in `dir`.
fn datasets(dir: &Path) -> [PathBuf; 2] {
    let options = GenerateOptions {
        nodes: 3000,
        degree: Some(10.0),
        classes: 5,
        dim: 16,
        ..GenerateOptions::default()
    };
    let data = generate("sbm", &options).unwrap();
    let of: Vec<u16> = (0..3000u64).map(|v| (keyed::key(&[v]) % 4) as u16).collect();
    let book = PartitionBook::new(4, of).unwrap();
    let what = Description { method: "hash", ..Description::default() };
    let [whole, parts] = ["whole", "parts"].map(|name| dir.join(name));
    data.save(&whole).unwrap();
    write(&data, &book, &what, &parts, &progress::Quiet).unwrap();
    [whole, parts]
}

const TRAIN: &str =
    "--layers 2 --hidden 16 --fanout 6,4 --batch-size 250 --dropout 0 --lr 0.01 --fused off --json";

/// Arguments of a training run.
fn train(dataset: &Path, out: &Path, more: &str) -> Vec<String> {
    let words = ["train", dataset.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let words = words.into_iter().chain(TRAIN.split(' ')).chain(more.split_whitespace());
    words.map(str::to_string).collect()
}

/// The command that starts `ranks` processes.
fn mpirun(ranks: usize, arguments: &[String]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "-n", &ranks.to_string(), GRAPHMILL]).args(arguments);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Losses of a run's epochs.
fn losses(output: &Output) -> Vec<f64> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let epochs = summary["epochs"].as_array().unwrap();
    epochs.iter().map(|epoch| epoch["loss"].as_f64().unwrap()).collect()
}

/// Waits for the process to end, and reads its output meanwhile: a pipe holds 64 KiB. Kills it at
/// the time limit.
fn end(mut child: Child) -> Output {
    fn drain(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut from) = from {
                from.read_to_end(&mut bytes).unwrap();
            }
            bytes
        })
    }
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > TIMEOUT {
            child.kill().unwrap();
            panic!("the run hangs");
        }
        thread::sleep(Duration::from_millis(20));
    };
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Process id of a rank of the run with the run directory `out`; `None` if it does not run.
fn pid_of_rank(out: &Path, rank: usize) -> Option<i32> {
    let rank = format!("OMPI_COMM_WORLD_RANK={rank}");
    let ranks = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        let pid: i32 = path.file_name()?.to_str()?.parse().ok()?;
        let command = fs::read(path.join("cmdline")).ok()?;
        let environment = fs::read(path.join("environ")).ok()?;
        let has = |text: &[u8], word: &str| text.split(|&byte| byte == 0).any(|part| part == word.as_bytes());
        (has(&command, out.to_str()?)
            && has(&command, "train")
            && command.starts_with(GRAPHMILL.as_bytes())
            && has(&environment, &rank))
        .then_some(pid)
    });
    ranks.last()
}

/// Sends a signal to a process. Returns false if it has ended.
fn send(signal: &str, pid: i32) -> bool {
    let kill = Command::new("kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
    kill.unwrap().success()
}

/// Starts a long run and sends `signal` to a rank after the second epoch.
fn signal_a_rank(signal: &str, parts: &Path, out: &Path) -> Output {
    let mut child = mpirun(4, &train(parts, out, "--epochs 100000 --peer-timeout 2 --checkpoint-batches 1"));
    let child = child.spawn().unwrap();
    let began = Instant::now();
    while fs::read_to_string(out.join("metrics.jsonl")).map_or(0, |text| text.lines().count()) < 2 {
        assert!(began.elapsed() < TIMEOUT, "the run does not start");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(send(signal, pid_of_rank(out, 2).expect("the run has a rank 2")));
    end(child)
}

#[test]
fn four_ranks_match_one_and_resume_after_a_rank_dies_or_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, parts] = datasets(dir.path());
    let at = |name: &str| dir.path().join(name);

    let alone = Command::new(GRAPHMILL).args(train(&whole, &at("one"), "--epochs 4")).output().unwrap();
    let together = end(mpirun(4, &train(&parts, &at("four"), "--epochs 4")).spawn().unwrap());
    let (one, four) = (losses(&alone), losses(&together));
    assert_eq!(one.len(), four.len());
    assert!(one.iter().zip(&four).all(|(a, b)| (a - b).abs() < 1e-3), "{one:?} and {four:?}");

    let stopped = signal_a_rank("-TERM", &parts, &at("stopped"));
    // mpirun takes the status of the first rank that ends: 143 of the one with the signal
    assert!(matches!(stopped.status.code(), Some(130 | 143)), "{stopped:?}");
    let died = signal_a_rank("-KILL", &parts, &at("died"));
    assert!(!died.status.success());
    let hangs = signal_a_rank("-STOP", &parts, &at("hangs"));
    let stderr = String::from_utf8_lossy(&hangs.stderr);
    assert!(!hangs.status.success());
    assert!(stderr.contains("rank 2: it was silent for 2.0 seconds"), "{stderr}");
    for name in ["died", "hangs"] {
        let ranks = if name == "died" { 4 } else { 2 };
        let run = at(name);
        let recorded = fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().count();
        let words = [
            "train",
            "--resume",
            "--json",
            "--epochs",
            &(recorded + 1).to_string(),
            "--out",
            run.to_str().unwrap(),
        ];
        let resumed = end(mpirun(ranks, &words.map(str::to_string)).spawn().unwrap());
        let resumed = losses(&resumed);
        assert_eq!(resumed.len(), recorded + 1);
        assert!(resumed.iter().zip(&four).all(|(a, b)| (a - b).abs() < 1e-3), "{resumed:?} and {four:?}");
    }
}

#[test]
fn two_ranks_learn_links_as_one_process_does() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, parts] = datasets(dir.path());
    let at = |name: &str| dir.path().join(name);
    let how = "--epochs 2 --task link --max-batches 20";
    let alone = Command::new(GRAPHMILL).args(train(&whole, &at("one"), how)).output().unwrap();
    let together = end(mpirun(2, &train(&parts, &at("two"), how)).spawn().unwrap());
    let (one, two) = (losses(&alone), losses(&together));
    assert_eq!((one.len(), two.len()), (2, 2));
    assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-3), "{one:?} and {two:?}");
}

#[test]
fn ranks_on_several_types_match_one_process_and_resume() {
    let temporary = tempfile::tempdir().unwrap();
    let options = GenerateOptions { nodes: 1500, classes: 4, dim: 8, ..GenerateOptions::default() };
    let data = generate_typed("typed", &options).unwrap();
    // edges and the rows of the task have times, and a model reads features of edges
    let mut timed = data.clone();
    for edges in &mut timed.edges {
        let count = edges.num_edges() as i64;
        edges.time = Some((0..count).map(|e| e * 31 % 60).collect::<Vec<_>>().into());
        edges.features = Some(FeatureTable::dense(1, (0..count).map(|e| e * 7 % 5).collect::<Vec<_>>()));
    }
    let rows = timed.nodes[0].count as i64;
    timed.tasks[0].time = Some((0..rows).map(|v| 20 + v * 7 % 40).collect::<Vec<_>>().into());
    let of: Vec<u16> = (0..data.num_nodes() as u64).map(|v| (keyed::key(&[v]) % 3) as u16).collect();
    let book = PartitionBook::new(3, of).unwrap();
    let what = Description { method: "hash", ..Description::default() };
    for (name, data, model) in [
        ("plain", data.clone(), "--model rgcn"),
        ("walks", data.clone(), "--model rsage --sampler metapath-walk"),
        ("links", data, "--model rgcn --task paper:cites:paper --max-batches 9"),
        ("timed", timed, "--model sage-edge --time-bound inclusive"),
    ] {
        let at = |what: &str| temporary.path().join(format!("{name}-{what}"));
        let (whole, parts) = (at("whole"), at("parts"));
        data.save(&whole).unwrap();
        write_types(&data, &book, &what, &parts, &progress::Quiet).unwrap();
        let run = |ranks: usize, dataset: &Path, out: &str, more: &str| {
            let options = format!("train {} --out {} {more} --json", dataset.display(), at(out).display());
            let arguments: Vec<String> = options.split_whitespace().map(str::to_string).collect();
            losses(&end(mpirun(ranks, &arguments).spawn().unwrap()))
        };
        let options =
            format!("{model} --hidden 8 --fanout 5,3 --batch-size 100 --dropout 0 --lr 0.01 --epochs");
        let one = run(1, &whole, "one", &format!("{options} 3"));
        let three = run(3, &parts, "three", &format!("{options} 3"));
        assert!(one.iter().zip(&three).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + a)), "{one:?} {three:?}");
        run(3, &parts, "resumed", &format!("{options} 1"));
        assert_eq!(run(3, &parts, "resumed", "--resume --epochs 3"), three, "{name}");
    }
}

/// Runs the command, which must succeed.
fn ok(arguments: &str) {
    let output = Command::new(GRAPHMILL).args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn two_ranks_learn_columns_of_classes_and_edge_features_of_tables_as_one_process_does() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name).display().to_string();
    let (mut nodes, mut edges) = (String::from("id,age,sector,region\n"), String::from("from,to,amount\n"));
    for i in 0..400 {
        let sector = if i % 7 == 6 { "" } else { ["bank", "shop", "state"][i % 3] };
        writeln!(nodes, "a{i},{},{sector},{}", 20 + i * 7919 % 50, ["north", "south"][i / 3 % 2]).unwrap();
        for k in 1..5 {
            writeln!(edges, "a{},a{i},{}", (i * 31 + k * 101) % 400, 20 * (i % 3) + (i * 13 + k) % 9)
                .unwrap();
        }
    }
    fs::write(at("nodes.csv"), nodes).unwrap();
    fs::write(at("edges.csv"), edges).unwrap();
    ok(&format!(
        "import tables {} --nodes {} --id id --label sector,region --edges {} --src from --dst to \
         --edge-features amount",
        at("whole"),
        at("nodes.csv"),
        at("edges.csv")
    ));
    ok(&format!("partition {} {} --parts 2", at("whole"), at("parts")));
    // models without edge features train on parts alone: on the whole, models of one type do
    for (model, whole) in [("rsage", "parts"), ("sage-edge", "whole")] {
        let run = |ranks: usize, dataset: &str, name: &str| {
            let out = at(&format!("{model}-{name}"));
            let options = format!(
                "train {} --out {out} --model {model} --hidden 8 --fanout 4,3 --batch-size 64 --dropout 0 \
                 --lr 0.01 --epochs 3 --json",
                at(dataset)
            );
            let arguments: Vec<String> = options.split_whitespace().map(str::to_string).collect();
            losses(&end(mpirun(ranks, &arguments).spawn().unwrap()))
        };
        let (one, two) = (run(1, whole, "one"), run(2, "parts", "two"));
        assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + a)), "{one:?} {two:?}");
        assert_eq!(run(2, "parts", "again"), two, "{model}: the same bits");
    }
    ok(&format!("eval {} --dataset {}", at("sage-edge-two"), at("whole")));
}

#[test]
fn several_ranks_require_a_partitioned_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, _] = datasets(dir.path());
    let output = end(mpirun(2, &train(&whole, &dir.path().join("out"), "--epochs 1")).spawn().unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("graphmill partition DATASET DST --parts 2"),
        "{stderr}"
    );
}

/// Partitions the dataset by the command, which also stores the searches of the proximity order.
fn partition(whole: &Path, parts: &Path) {
    let mut command = Command::new(GRAPHMILL);
    let output = command.arg("partition").args([whole, parts]).args(["--parts", "4"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn graph_stores_serve_ranks_that_train_on_devices_and_the_run_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, _] = datasets(dir.path());
    let at = |name: &str| dir.path().join(name);
    partition(&whole, &at("stored"));
    let options = "--order proximity --strategy time-sharing --devices virtual:2 --cache-ratio 0.2 \
                   --placement private";
    let alone =
        Command::new(GRAPHMILL).args(train(&whole, &at("one"), &format!("{options} --epochs 4"))).output();
    let one = losses(&alone.unwrap());
    let options = format!("{options} --graph-stores 1");
    let run = |name: &str, epochs: usize| {
        let words = train(&at("stored"), &at(name), &format!("{options} --epochs {epochs}"));
        losses(&end(mpirun(3, &words).spawn().unwrap()))
    };
    let stored = run("stores", 4);
    assert!(one.iter().zip(&stored).all(|(a, b)| (a - b).abs() < 1e-3), "{one:?} and {stored:?}");
    run("again", 2);
    let out = at("again");
    let words = ["train", "--resume", "--json", "--epochs", "4", "--out", out.to_str().unwrap()];
    let resumed = losses(&end(mpirun(3, &words.map(str::to_string)).spawn().unwrap()));
    assert_eq!(resumed, stored, "the same bits after a resume");
}

#[test]
fn ranks_share_reused_rows_and_the_run_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, parts] = datasets(dir.path());
    let at = |name: &str| dir.path().join(name);
    let run = |name: &str, options: &str| {
        let words = train(&parts, &at(name), &format!("{options} --reuse layered --super-batch 3"));
        let output = end(mpirun(3, &words).spawn().unwrap());
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (losses(&output), summary)
    };
    // without staleness and with all gradients, training is exact
    let alone = Command::new(GRAPHMILL).args(train(&whole, &at("one"), "--epochs 3")).output().unwrap();
    let words = "--epochs 3 --devices virtual:1 --reuse layered --super-batch 1 --hot-prefetch off \
                 --hot-gradient kept";
    let exact = losses(&end(mpirun(3, &train(&parts, &at("exact"), words)).spawn().unwrap()));
    let one = losses(&alone);
    assert!(one.iter().zip(&exact).all(|(a, b)| (a - b).abs() < 1e-3), "{one:?} and {exact:?}");

    let (stale, summary) = run("stale", "--epochs 4 --hot-prefetch on");
    assert_eq!((&summary["staleness"]["bound"], &summary["staleness"]["max"]), (&5.into(), &5.into()));
    assert!(summary["epochs"][1]["reuse"]["reused_rows"].as_u64() > Some(1000), "{}", summary["epochs"][1]);
    assert!(stale[3] < stale[0]);
    run("again", "--epochs 2 --hot-prefetch on");
    let words = ["train", "--resume", "--json", "--epochs", "4", "--out", &at("again").display().to_string()];
    let resumed = losses(&end(mpirun(3, &words.map(str::to_string)).spawn().unwrap()));
    assert_eq!(resumed, stale, "the same bits after a resume");
}

#[test]
fn subgraphs_reuse_rows_of_other_processes_and_the_run_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let [_, parts] = datasets(dir.path());
    let at = |name: &str| dir.path().join(name).display().to_string();
    let run = |name: &str, epochs: &str| {
        let options = "--sampler saint-rw --walk-length 2 --batch-size 125 --layers 2 --hidden 16 --lr 0.01 \
                       --shuffle-parts 1 --reuse layered --super-batch 4 --hot-prefetch on --json";
        let (parts, out) = (parts.display().to_string(), at(name));
        let words = ["train", &parts, "--out", &out, "--epochs", epochs].into_iter();
        let words: Vec<String> = words.chain(options.split_whitespace()).map(str::to_string).collect();
        let output = end(mpirun(2, &words).spawn().unwrap());
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (losses(&output), summary)
    };
    let (whole, summary) = run("run", "4");
    assert_eq!((&summary["staleness"]["bound"], &summary["staleness"]["max"]), (&7.into(), &7.into()));
    let reuse = &summary["epochs"][1]["reuse"];
    assert!(reuse["reused_rows"].as_u64() > reuse["made_rows"].as_u64(), "{reuse}");
    assert!(whole[3] < whole[0], "{whole:?}");
    run("again", "2");
    let words = ["train", "--resume", "--json", "--epochs", "4", "--out", &at("again")];
    let resumed = losses(&end(mpirun(2, &words.map(str::to_string)).spawn().unwrap()));
    assert_eq!(resumed, whole, "the same bits after a resume");
}

/// The shim runs the kernels of NVIDIA devices on the processor.
#[test]
fn every_rank_computes_on_an_nvidia_device() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, parts] = datasets(dir.path());
    let options = "--epochs 2 --max-batches 4";
    let alone = Command::new(GRAPHMILL).args(train(&whole, &dir.path().join("one"), options)).output();
    let one = losses(&alone.unwrap());
    let on = |name: &str, more: &str| {
        let words = train(&parts, &dir.path().join(name), &format!("{options} {more}"));
        end(mpirun(2, &words).env("GRAPHMILL_DEVICE", "shim").spawn().unwrap())
    };
    let two = losses(&on("two", "--devices cuda:0"));
    assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 2e-3), "{one:?} and {two:?}");

    // rows that batches reuse: each device makes those of its rank, and host memory exchanges them
    let reused = "--reuse layered --super-batch 2 --hot-prefetch on --hot-ratio 0.5";
    let expected = losses(&on("processor", reused));
    let [first, again] =
        ["device", "again"].map(|name| on(name, &format!("{reused} --devices cuda:0 --strategy pipelined")));
    let got = losses(&first);
    assert!(expected.iter().zip(&got).all(|(a, b)| (a - b).abs() < 2e-3), "{expected:?} and {got:?}");
    assert_eq!(losses(&again), got, "the same bits");
    let summary: Value = serde_json::from_slice(&first.stdout).unwrap();
    let reuse = &summary["epochs"][1]["reuse"];
    assert!(reuse["reused_rows"].as_u64() > Some(0) && reuse["made_rows"].as_u64() > Some(0), "{reuse}");

    // several devices of each rank, each with a cache; host memory reads what they miss
    for (name, options) in [
        ("sharing", "--strategy time-sharing --cache lru --cache-ratio 0.2"),
        ("factored", "--strategy factored --num-samplers 1 --cache degree --cache-ratio 0.2"),
        ("disk", "--strategy time-sharing --cache presc-online:1 --cache-ratio 0.2 --host-budget 50000"),
    ] {
        let expected = losses(&on(&format!("{name}-v"), &format!("{options} --devices virtual:2")));
        let [first, again] =
            ["d", "e"].map(|run| on(&format!("{name}-{run}"), &format!("{options} --devices cuda:0,1")));
        let got = losses(&first);
        assert!(expected.iter().zip(&got).all(|(a, b)| (a - b).abs() < 2e-3), "{name}: {got:?}");
        assert_eq!(losses(&again), got, "{name}: the same bits");
        let summary: Value = serde_json::from_slice(&first.stdout).unwrap();
        let traffic = &summary["epochs"][1]["traffic"];
        let rows = |tier: &str| traffic[tier]["rows"].as_u64();
        assert!(rows("device") > Some(0) && rows("remote") > Some(0), "{name}: {traffic}");
        assert_eq!(rows("disk") > Some(0), name == "disk", "{name}: {traffic}");
        assert_eq!(summary["nvidia"].as_array().map(Vec::len), Some(2), "{name}");
    }
    let summary: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert!(summary["nvidia"][0]["peak_bytes"].as_u64() > Some(0), "{}", summary["nvidia"]);
}
