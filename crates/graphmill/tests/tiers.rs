//! `graphmill hotness`, runs with features beyond a memory budget, and orders by hotness.

use crate::common::Sandbox;

/// A sandbox with the dataset `data`: a block model of 2,000 nodes and 16 features.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 2000 --classes 4 --feature-dim 16 --seed 3");
    sandbox
}

#[test]
fn hit_rates_are_reported_plotted_and_independent_of_threads() {
    let sandbox = sandbox();
    let command = "hotness data --policies degree,presc:2,optimal,sieve --samplers neighbor,saint-rw \
                   --ratios 0,0.1,1 --fanout 4,3 --batch-size 100";
    let report = sandbox.ok_json(&format!("{command} --plot hits.svg --threads 1"));
    let rows = report["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 4 * 3);
    for row in rows {
        let (ratio, rate) = (row["ratio"].as_f64().unwrap(), row["hit_rate"].as_f64().unwrap());
        assert!((0.0..=1.0).contains(&rate) && (ratio > 0.0 || rate == 0.0), "{row}");
        assert!(row["policy"].is_string() && row["sampler"].is_string());
    }
    assert_eq!(report, sandbox.ok_json(&format!("{command} --threads 3")));
    assert!(String::from_utf8(sandbox.read("hits.svg")).unwrap().starts_with("<svg"));
    // charts replace files only if they are asked to, also those of partition
    sandbox.write("hits.svg", "other");
    for command in ["hotness data", "partition data parts"] {
        let refused = sandbox.run(&format!("{command} --plot hits.svg"));
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        let message = "--plot hits.svg: the file exists; pass --force to replace it";
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
        assert_eq!(sandbox.read("hits.svg"), b"other");
        assert!(!sandbox.path("parts").exists(), "before any work");
    }
    let picture = sandbox.run(&format!("{command} --plot hits.png"));
    assert_eq!(picture.status, Some(2));
    assert!(picture.stderr.contains("--plot hits.png: a chart is an SVG file"), "{}", picture.stderr);
    sandbox.ok("partition data --method hash --plot hits.svg --force");
    sandbox.ok(&format!("{command} --plot hits.svg --force"));
    assert!(sandbox.read("hits.svg").starts_with(b"<svg"));
    assert_eq!(sandbox.run("hotness data --force").status, Some(2), "without a chart");
    let text = sandbox.ok("hotness data");
    assert!(
        text.contains("consecutive epochs are") && text.contains("posterior:2") && text.contains("25%"),
        "{text}"
    );
}

#[test]
fn features_beyond_a_budget_stay_on_disk_and_change_no_result() {
    let sandbox = sandbox();
    let train = "train data --hidden 8 --fanout 4,3 --batch-size 100 --epochs 2 --fused off";
    let plain = sandbox.ok_json(&format!("{train} --out plain"));
    // 2,000 rows of 64 bytes
    for (name, tiers) in [
        ("half", "--host-budget 64K"),
        ("fifo", "--cache fifo --cache-ratio 0.2"),
        (
            "device",
            "--devices virtual:2 --cache-ratio 0.1 --cache degree --host-budget 64K \
             --placement replicate:0.5",
        ),
    ] {
        let tiers = tiers.to_string();
        let summary = sandbox.ok_json(&format!("{} {tiers} --out {name}", train.replace("--fused off", "")));
        for (a, b) in summary["epochs"].as_array().unwrap().iter().zip(plain["epochs"].as_array().unwrap()) {
            assert_eq!((&a["loss"], &a["valid_score"]), (&b["loss"], &b["valid_score"]), "{name}");
            let rate = a["hit_rate"].as_f64().unwrap();
            assert!(rate > 0.1 && rate < 1.0, "{name}: {rate}");
            assert!(a["traffic"]["disk"]["rows"].as_u64().unwrap() > 0, "{name}");
            assert!(a["traffic"]["disk"]["seconds"].as_f64().unwrap() > 0.0, "{name}");
        }
        assert_eq!(summary["test"], plain["test"], "{name}");
        // eval reads through the tiers of the run
        assert_eq!(sandbox.ok_json(&format!("eval {name}"))["test"], sandbox.ok_json("eval plain")["test"]);
    }
    sandbox.ok("predict half --out half.npy");
    sandbox.ok("predict plain --out plain.npy");
    assert!(sandbox.read("half.npy") == sandbox.read("plain.npy"));
}

#[test]
fn datasets_are_reordered_by_the_rows_that_training_reads() {
    let sandbox = sandbox();
    sandbox.ok("reorder data hot --by presc:2 --fanout 4,3 --batch-size 100");
    let rates = |data: &str| {
        let report = sandbox.ok_json(&format!(
            "hotness {data} --policies optimal --ratios 0.1 --fanout 4,3 --batch-size 100"
        ));
        report["results"][0]["hit_rate"].as_f64().unwrap()
    };
    let (before, after) = (rates("data"), rates("hot"));
    assert!((before - after).abs() < 0.05, "the same graph, other draws: {before} {after}");
    let unknown = sandbox.run("reorder data new --by heat");
    assert_eq!(unknown.status, Some(2));
    assert!(
        unknown.stderr.contains("known: ") && unknown.stderr.contains("weighted-reverse-pagerank"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn log_files_open_with_the_tiers_and_the_strategy() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for (options, says) in [
        ("", "feature rows: the host holds all; strategy sequential"),
        ("--strategy pipelined", "feature rows: the host holds all; strategy pipelined"),
        ("--cache-ratio 0.25", "feature rows: the host holds 25.0 % ("),
        ("--cache-ratio 0.25", ", the disk all; strategy sequential"),
    ] {
        let args = format!("train data {options} --epochs 1 --fanout 5,5 --progress plain --out run");
        let outcome = sandbox.run(&args).succeeded();
        assert!(outcome.stderr.contains(says), "{says} is not in: {}", outcome.stderr);
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    }
    // an empty variable is as none
    for (form, status) in [("", 0), ("loud", 2)] {
        let mut command = sandbox.command("train data --epochs 1 --fanout 5,5");
        let output = command.env("GRAPHMILL_PROGRESS", form).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
