//! `--devices cuda:0`: the error on a machine without a device, and whole runs on the shim, which
//! runs the same kernels on the processor.

use serde_json::Value;

use crate::common::{Outcome, Sandbox};

/// Options small enough for the shim, whose device threads are fibers.
pub(crate) const SMALL: &str = "--hidden 16 --fanout 4,3 --batch-size 500 --seed 3 --dropout 0.2";

/// Runs the program on the shim.
pub(crate) fn on_shim(sandbox: &Sandbox, args: &str) -> Outcome {
    let output = sandbox.command(args).env("GRAPHMILL_DEVICE", "shim").output().expect("the program starts");
    Outcome {
        args: args.to_string(),
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Trains on the processor and on `devices`, and asserts agreement; returns the run on `devices`.
pub(crate) fn agrees(sandbox: &Sandbox, devices: &str, options: &str) -> Value {
    agrees_with(sandbox, "cpu", devices, options)
}

/// Trains on `others` and on `devices`, and asserts agreement: losses differ by rounding, scores by
/// its effect on a few nodes. Returns the run on `devices`.
fn agrees_with(sandbox: &Sandbox, others: &str, devices: &str, options: &str) -> Value {
    let small =
        if options.contains("--sampler saint") { SMALL.replace("--fanout 4,3", "") } else { SMALL.into() };
    let args = |devices: &str| format!("train data {small} --epochs 2 {options} --devices {devices} --json");
    // simulated devices do not share their caches
    let expected = sandbox.run(&args(others).replace("--placement interleave", "")).succeeded().json();
    let got = on_shim(sandbox, &args(devices)).succeeded().json();
    let epochs = |run: &Value| run["epochs"].as_array().expect("epochs").clone();
    assert_eq!(epochs(&expected).len(), epochs(&got).len());
    for (expected, got) in epochs(&expected).iter().zip(&epochs(&got)) {
        let (a, b) = (number(&expected["loss"]), number(&got["loss"]));
        assert!((a - b).abs() < 2e-3 * a.abs().max(1.0), "{options}: loss {b}, on the processor {a}");
        let (a, b) = (number(&expected["valid_score"]), number(&got["valid_score"]));
        assert!((a - b).abs() < 0.02, "{options}: score {b}, on the processor {a}");
        assert_eq!(expected["sampled_edges"], got["sampled_edges"], "{options}: the same minibatches");
    }
    for device in got["nvidia"].as_array().expect("devices") {
        let (peak, budget) = (number(&device["peak_bytes"]), number(&device["budget_bytes"]));
        assert!(peak > 0.0 && peak <= budget, "{device}");
    }
    got
}

#[test]
fn a_missing_driver_is_reported() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let sandbox = Sandbox::new();
    let failed = sandbox.run("train --devices cuda:0 --epochs 1 --json");
    assert_eq!(failed.status, Some(1), "{}", failed.stderr);
    let error = failed.json()["error"].as_str().expect("an error").to_string();
    assert!(error.contains("no NVIDIA driver was found") && error.contains("--devices cpu"), "{error}");
}

#[test]
fn unknown_devices_are_wrong_usage() {
    let sandbox = Sandbox::new();
    let failed = sandbox.run("train --devices cuda:zero --epochs 1");
    assert_eq!(failed.status, Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("unknown device 'cuda:zero'; known: cpu, virtual:N"), "{}", failed.stderr);
}

#[test]
fn models_agree_with_the_processor() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for model in ["sage", "gcn", "gat --heads 2", "gin --norm batch"] {
        agrees(&sandbox, "cuda:0", &format!("--model {model} --max-batches 2"));
    }
}

#[test]
fn a_cache_of_some_rows_on_the_device_changes_no_result() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let run = agrees(&sandbox, "cuda:0", "--cache-ratio 0.25 --cache degree");
    let traffic = &run["epochs"][1]["traffic"];
    let (device, host) = (number(&traffic["device"]["rows"]), number(&traffic["host"]["rows"]));
    assert!(device > 0.0 && host > 0.0, "{traffic}");
    let rate = number(&run["epochs"][1]["hit_rate"]);
    assert!((rate - device / (device + host)).abs() < 1e-9 && rate > 0.25, "{rate}: {traffic}");
    for cache in ["fifo", "sieve"] {
        agrees(&sandbox, "cuda:0", &format!("--cache-ratio 0.25 --cache {cache}"));
    }
}

/// The host runs the policies that kernels cannot, and reads the rows that a device misses if they
/// are sparse or in files. The rows, and so the weights, are the same.
#[test]
fn policies_and_tiers_of_the_host_change_no_result() {
    let sandbox = Sandbox::new();
    let bytes = sandbox.dataset("data").features.bytes();
    sandbox.sparse_dataset("sparse");
    let run = |data: &str, options: &str, out: &str| {
        let args = format!("train {data} {SMALL} --epochs 2 {options} --out {out} --json");
        on_shim(&sandbox, &args).succeeded().json()
    };
    let budget = format!("--host-budget {}", bytes / 2);
    let online = "--cache presc-online:1 --cache-ratio 0.25";
    for (name, data, devices, settings) in [
        (
            "one",
            "data",
            "--devices cuda:0",
            &[
                ("--cache lru --cache-ratio 0.25", ["device", "host"]),
                ("--cache lfu --cache-ratio 0.25", ["device", "host"]),
                ("--cache s3-fifo --cache-ratio 0.25 --strategy pipelined", ["device", "host"]),
                (&format!("{budget} --cache degree --cache-ratio 0.25 --host-cache lru"), ["device", "disk"]),
                (&format!("{budget} --cache sieve --cache-ratio 0.1 --host-cache degree"), ["host", "disk"]),
                (&format!("{budget} --host-cache presc-online:1 --cache-ratio 0"), ["host", "disk"]),
                (online, ["device", "host"]),
            ][..],
        ),
        (
            "two",
            "data",
            "--devices cuda:0,1 --strategy time-sharing",
            &[
                ("--cache lru --cache-ratio 0.25", ["device", "host"]),
                (&format!("{budget} --cache degree --cache-ratio 0.25"), ["device", "disk"]),
                (online, ["device", "host"]),
            ],
        ),
        (
            "balanced",
            "data",
            "--devices cuda:0,1,2 --strategy factored --num-samplers 0 --batches-per-update 2",
            &[(&format!("{budget} --cache-ratio 0.2"), ["device", "disk"]), (online, ["device", "host"])],
        ),
        (
            "wide",
            "sparse",
            "--devices cuda:0",
            &[("--sparse on", ["device", "device"]), ("--sparse on --cache-ratio 0.2", ["device", "host"])],
        ),
    ] {
        run(data, devices, name);
        let expected = sandbox.results(name);
        for (i, (options, tiers)) in settings.iter().enumerate() {
            let out = format!("{name}-{i}");
            let summary = run(data, &format!("{devices} {options}"), &out);
            assert!(sandbox.results(&out).weights == expected.weights, "{name} {options}: the weights");
            let traffic = &summary["epochs"][1]["traffic"];
            for tier in tiers {
                assert!(number(&traffic[tier]["rows"]) > 0.0, "{name} {options}: {tier} in {traffic}");
            }
            if options.contains("online") {
                let before = &summary["epochs"][0]["traffic"];
                assert_eq!(number(&before["device"]["rows"]), 0.0, "{name} {options}: {before}");
            }
        }
    }
    // a resumed run counts again what fills the cache
    let args = format!("train data {SMALL} {online} --devices cuda:0 --out part");
    on_shim(&sandbox, &format!("{args} --epochs 2")).succeeded();
    on_shim(&sandbox, &format!("{args} --epochs 3 --resume")).succeeded();
    on_shim(&sandbox, &format!("{} --epochs 3", args.replace("part", "whole"))).succeeded();
    sandbox.results("part").assert_same(&sandbox.results("whole"), "resumed");
}

#[test]
fn strategies_and_samplers_run_on_devices() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    agrees(&sandbox, "cuda:0", "--strategy pipelined");
    agrees(&sandbox, "cuda:0", "--sampler saint-rw --max-batches 2");
    agrees_with(&sandbox, "virtual:1", "cuda:0", "--strategy layered --max-batches 3 --super-batch 1");
    // two devices, one of which samples: synchronous updates equal those of one trainer
    agrees(&sandbox, "cuda:0,1", "--strategy factored --num-samplers 1 --switching off");
}

#[test]
fn several_devices_sum_their_gradients() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for options in ["--strategy time-sharing", "--strategy factored --num-samplers 1 --switching off"] {
        let options = format!("{options} --cache-ratio 0.2 --placement interleave");
        let run = agrees_with(&sandbox, "virtual:3", "cuda:0,1,2", &options);
        let devices = run["epochs"][0]["devices"].as_array().expect("devices");
        let names: Vec<_> = devices.iter().map(|device| device["device"].as_str().expect("a name")).collect();
        assert_eq!(names, ["cuda:0", "cuda:1", "cuda:2"]);
        let peer = number(&run["epochs"][0]["traffic"]["peer"]["rows"]);
        assert!(peer > 0.0, "rows of other devices are read there: {}", run["epochs"][0]["traffic"]);
    }
}

/// Samplers hold the graph and no rows, Trainers rows and no graph, if the number of Samplers is
/// given or balanced. The Trainers' caches have the memory of the graph, and no result changes.
#[test]
fn samplers_hold_the_graph_and_trainers_the_rows() {
    let sandbox = Sandbox::new();
    // a cache of all rows needs more than the budget, with the graph on a device or without
    sandbox.ok("generate sbm data --nodes 3000 --degree 8 --classes 5 --dim 100");
    let row = 400.0;
    let run = |options: &str, out: &str| {
        let args = format!(
            "train data --hidden 8 --fanout 3,2 --batch-size 100 --max-batches 6 --seed 3 --dropout 0.2 \
             --epochs 2 --cache degree {options} --out {out} --json"
        );
        on_shim(&sandbox, &args).succeeded().json()
    };
    let bytes = |run: &Value, field: &str| -> Vec<f64> {
        run["nvidia"].as_array().expect("devices").iter().map(|device| number(&device[field])).collect()
    };
    let losses = |run: &Value| -> Vec<f64> {
        run["epochs"].as_array().expect("epochs").iter().map(|epoch| number(&epoch["loss"])).collect()
    };
    let given = [(1, "on"), (1, "off"), (0, "on")];
    for (devices, count, budget, settings) in [
        ("cuda:0,1", 2, 2_100_000, &given[..]),
        ("cuda:0,1,2", 3, 2_100_000, &given),
        // walks take so long that more than one device may sample
        ("cuda:0,1,2,3 --sampler random-walk", 4, 1_500_000, &given[2..]),
    ] {
        let devices = format!("{devices} --device-budget {budget}");
        let both = format!("both-{count}");
        let shared = format!("--strategy time-sharing --batches-per-update {}", count - 1);
        let shared = run(&format!("{shared} --devices {devices}"), &both);
        let [nodes, edges] = ["nodes", "edges"].map(|field| number(&shared["dataset"][field]));
        let graph = 8.0 * (nodes + 1.0) + 4.0 * edges;
        assert_eq!(bytes(&shared, "topology_bytes"), vec![graph; count], "every device samples");
        let before = bytes(&shared, "cache_bytes");
        for &(samplers, switching) in settings {
            let out = format!("{samplers}-{switching}-{count}");
            let options = format!("--num-samplers {samplers} --switching {switching} --devices {devices}");
            let own = run(&format!("--strategy factored {options}"), &out);
            let (topology, rows) = (bytes(&own, "topology_bytes"), bytes(&own, "cache_bytes"));
            let members = own["epochs"][1]["devices"].as_array().expect("devices");
            for (i, member) in members.iter().enumerate() {
                assert_eq!(number(&member["cache_rows"]) * row, rows[i], "{options}: {member}");
                if member["role"] == "sampler" {
                    assert_eq!((topology[i], rows[i]), (graph, 0.0), "{options}: {member}");
                    // a standby Trainer reads the rows of the others
                    assert!(member["batches"] == 0 || number(&member["hit_rate"]) > 0.0, "{member}");
                    continue;
                }
                assert_eq!((&member["role"], topology[i]), (&"trainer".into(), 0.0), "{options}: {member}");
                assert!(before[i] > 0.0 && rows[i] < nodes * row / (count - 1) as f64, "{}", rows[i]);
                let gained = rows[i] - before[i];
                assert!((gained - graph).abs() <= row, "{options}: {gained} bytes of rows for {graph}");
            }
            let roles = members.iter().filter(|member| member["role"] == "sampler").count();
            assert!(roles >= 1 && roles < count && (samplers == 0 || samplers == roles), "{options}");
            let [got, expected] = [&out, &both].map(|out| sandbox.results(out));
            assert!(got.weights == expected.weights, "{options}: the weights");
            assert_eq!(losses(&own), losses(&shared), "{options}");
        }
    }
}

/// A Sampler that never trains has more memory for the graph. If the number of Samplers is
/// balanced, all devices share a graph that is too large for one.
#[test]
fn large_graphs_are_placed_by_the_memory_of_samplers() {
    let sandbox = Sandbox::new();
    let data = sandbox.dataset("data");
    let graph = (8 * (data.num_nodes() + 1) + 4 * data.graph.num_edges()) as f64;
    // between a half and four fifths of the budget
    let budget = (graph / 0.65) as u64;
    let held = |options: &str| -> Vec<bool> {
        let args = format!(
            "train data --hidden 2 --fanout 2,2 --batch-size 10 --max-batches 3 --seed 3 --epochs 1 \
             --strategy factored --cache-ratio 0 --devices cuda:0,1,2 --device-budget {budget} {options} \
             --json"
        );
        let run = on_shim(&sandbox, &args).succeeded().json();
        let devices = run["nvidia"].as_array().expect("devices");
        devices.iter().map(|device| number(&device["topology_bytes"]) > 0.0).collect()
    };
    assert_eq!(held("--num-samplers 1 --switching off"), [true, false, false], "in its memory");
    assert_eq!(held("--num-samplers 1"), [false; 3], "in host memory");
    assert_eq!(held("--num-samplers 0"), [true; 3], "row by row on all devices");
}

#[test]
fn a_placement_of_rows_on_one_trainer_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let args = "train data --strategy factored --num-samplers 1 --devices cuda:0,1 --placement shard";
    let failed = on_shim(&sandbox, args);
    assert_eq!(failed.status, Some(2), "{}", failed.stderr);
    let why = "one device trains and holds all cached rows; use more devices or --strategy time-sharing";
    assert!(failed.stderr.contains(why), "{}", failed.stderr);
}

/// All-reduced gradients equal copies summed in the order of the batches: to the bit on the
/// processor, where both round the same way.
#[test]
fn every_all_reduce_gives_the_same_gradients() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let base =
        format!("train data {SMALL} --norm batch --epochs 2 --max-batches 5 --clip 1 --placement replicate");
    let settings = [
        ("cuda:0,1", "--strategy time-sharing", "auto"),
        ("cuda:0,1,2", "--strategy time-sharing", "nccl"),
        ("cuda:0,1,2", "--strategy factored --num-samplers 1 --switching off", "auto"),
    ];
    for (i, (devices, options, by)) in settings.into_iter().enumerate() {
        let run = |by: &str| {
            let args =
                format!("{base} {options} --devices {devices} --all-reduce {by} --out {by}-{i} --json");
            let run = on_shim(&sandbox, &args).succeeded().json();
            run["all_reduce"].as_str().expect("the all-reduce").to_string()
        };
        assert_eq!(run(by), "the shim, by rank", "{options}");
        assert_eq!(run("peer"), "copies between devices, in the order of the batches");
        sandbox.results(&format!("{by}-{i}")).assert_same(&sandbox.results(&format!("peer-{i}")), options);
    }
    // three batches on two devices: the order of the sum is not that of the batches, but repeats
    let uneven = "--strategy time-sharing --batches-per-update 3 --devices cuda:0,1 --all-reduce nccl";
    for out in ["uneven", "uneven-again"] {
        on_shim(&sandbox, &format!("{base} {uneven} --out {out}")).succeeded();
    }
    sandbox.results("uneven").assert_same(&sandbox.results("uneven-again"), uneven);
    // a sum of three depends on its order, which only copies guarantee
    let args = format!("{base} --strategy time-sharing --devices cuda:0,1,2 --json");
    let run = on_shim(&sandbox, &args).succeeded().json();
    assert!(
        run["all_reduce"].as_str().expect("the all-reduce").starts_with("copies between devices"),
        "{run}"
    );
}

/// Earlier versions of the parameters stay on the devices that train, and each gradient reads
/// exactly one of them.
#[test]
fn asynchronous_updates_do_not_depend_on_the_number_of_devices() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let stale = "--norm batch --epochs 2 --max-batches 6 --strategy time-sharing --updates asynchronous";
    for (out, devices) in [("two", "cuda:0,1"), ("three", "cuda:0,1,2")] {
        let args = format!("train data {SMALL} {stale} --staleness 2 --devices {devices} --out {out} --json");
        let run = on_shim(&sandbox, &args).succeeded().json();
        assert_eq!((&run["staleness"]["bound"], &run["staleness"]["max"]), (&2.into(), &2.into()));
    }
    sandbox.results("two").assert_same(&sandbox.results("three"), stale);
}

/// `--all-reduce` without gradients of several devices is refused with the reason and a remedy.
#[test]
fn all_reduce_without_several_gradients_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let one_trains = "--strategy factored --num-samplers 1 --switching off --devices cuda:0,1";
    for (options, why) in [
        (one_trains, "--all-reduce nccl: each update has one batch; use --batches-per-update N"),
        ("--strategy time-sharing --updates asynchronous --devices cuda:0,1", "use --updates synchronous"),
        ("--strategy time-sharing --devices cuda:0", "--devices cuda:0 has no gradients of several"),
        (
            "--devices cpu",
            "--devices cpu has no gradients of several NVIDIA devices to sum; use --devices cuda:0,1",
        ),
    ] {
        let failed = on_shim(&sandbox, &format!("train data {SMALL} {options} --all-reduce nccl"));
        assert_eq!(failed.status, Some(2), "{options}: {}", failed.stderr);
        assert!(failed.stderr.contains(why), "{options}: {}", failed.stderr);
    }
}

/// The run ends with the error of a failed Trainer or all-reduce, and no thread waits forever.
#[test]
fn a_failed_trainer_ends_the_others() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let settings = [
        ("GRAPHMILL_SHIM_SUMS", "2", "sum failed: simulated failure of a sum"),
        ("GRAPHMILL_SHIM_FAILS", "1:150", "simulated failure of the device"),
        ("GRAPHMILL_SHIM_FAILS", "0:250", "simulated failure of the device"),
    ];
    for (name, value, words) in settings {
        let args = format!("train data {SMALL} --epochs 4 --strategy time-sharing --devices cuda:0,1 --json");
        let mut command = sandbox.command(&args);
        let output =
            command.env("GRAPHMILL_DEVICE", "shim").env(name, value).output().expect("the program starts");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{name}={value}: {stdout}");
        assert!(stdout.contains(words), "{name}={value}: {stdout}");
        // a failed kernel of a sampler is not reported as too large a batch
        assert!(!stdout.contains("--fanout"), "{name}={value}: {stdout}");
    }
}

#[test]
fn benches_measure_a_device_beside_its_own_limits() {
    let sandbox = Sandbox::new();
    for bench in ["gather", "aggregate", "sample"] {
        let batch = if bench == "gather" { "" } else { "--batch-size 64" };
        let args = format!("bench {bench} --devices cuda:0 --scale 8 --dim 8 {batch} --repeat 1 --json");
        let report = on_shim(&sandbox, &args).succeeded().json();
        let results = report["results"].as_array().expect("results");
        let own: Vec<_> = results.iter().filter(|result| result["bench"] == bench).collect();
        assert!(!own.is_empty() && own.iter().all(|result| number(&result["median"]) > 0.0), "{report}");
        if bench == "gather" {
            assert!(own.iter().any(|result| result["limit_of"] == "copy from the host"), "{report}");
        }
    }
}

#[test]
fn runs_on_a_device_repeat_and_resume_to_the_same_bits() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let args = format!("train data {SMALL} --devices cuda:0");
    on_shim(&sandbox, &format!("{args} --epochs 2 --out one")).succeeded();
    on_shim(&sandbox, &format!("{args} --epochs 2 --out two")).succeeded();
    sandbox.results("one").assert_same(&sandbox.results("two"), "twice on a device");
    on_shim(&sandbox, &format!("{args} --epochs 1 --out three")).succeeded();
    on_shim(&sandbox, &format!("{args} --epochs 2 --out three --resume")).succeeded();
    sandbox.results("one").assert_same(&sandbox.results("three"), "resumed");
    // the processor scores a model that a device trained
    sandbox.ok("eval one");
}

#[test]
fn captured_full_batches_give_the_same_bits() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let full =
        "--batch-size 1000000 --fanout -1,-1 --hidden 8 --dropout 0.3 --seed 3 --epochs 5 --devices cuda:0";
    let all = ["--model gcn", "--model gat --heads 2 --clip 0.5", "--strategy pipelined"];
    for (i, options) in all.into_iter().enumerate() {
        let run = |graphs: &str| {
            let args =
                format!("train data {full} {options} --cuda-graphs {graphs} --out {graphs}-{i} --json");
            on_shim(&sandbox, &args).succeeded().json()
        };
        let (captured, launched) = (run("auto"), run("off"));
        sandbox.results(&format!("auto-{i}")).assert_same(&sandbox.results(&format!("off-{i}")), options);
        assert_eq!(launched["nvidia"][0].get("graphs"), None, "{options}");
        let graphs = &captured["nvidia"][0]["graphs"];
        assert!(
            number(&graphs["captured"]) >= 2.0 && number(&graphs["replayed"]) >= 4.0,
            "{options}: {graphs}"
        );
        assert_eq!(graphs.get("refused"), None, "{options}");
    }
    // sampled batches are launched, not captured
    let run = on_shim(&sandbox, &format!("train data {SMALL} --epochs 3 --devices cuda:0 --json"))
        .succeeded()
        .json();
    assert_eq!(run["nvidia"][0].get("graphs"), None);
}

#[test]
fn exhausted_device_memory_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let failed =
        on_shim(&sandbox, &format!("train data {SMALL} --devices cuda:0 --device-budget 100000 --json"));
    assert_eq!(failed.status, Some(1), "{}", failed.stderr);
    let error = failed.json()["error"].as_str().expect("an error").to_string();
    assert!(error.contains("cuda:0") && error.contains("out of memory"), "{error}");
}
