//! Transforms of regression targets: training sees transformed values, everything else the values
//! themselves.

use std::fmt::Write as _;

use crate::common::Sandbox;

const NODES: usize = 300;
const TRANSFORMS: [&str; 4] = ["none", "standard", "log", "quantile"];
const TRAIN: &str = "--hidden 16 --fanout 5,5 --batch-size 32 --lr 0.01 --dropout 0";

/// Amount of node `i`: a power of ten by its group, so that the mean is far above the median.
fn amount(i: usize) -> f64 {
    let size = 10f64.powi(1 + (i % 5) as i32) + (i % 7) as f64 + 0.5;
    if i.is_multiple_of(5) { -size } else { size }
}

/// Imports nodes with amounts that follow their group, and edges within groups.
fn import(sandbox: &Sandbox) {
    let mut nodes = String::from("account,age,size,amount,kind\n");
    let mut edges = String::from("from,to\n");
    for i in 0..NODES {
        let group = i % 5;
        let value = if i % 10 == 9 { String::new() } else { amount(i).to_string() };
        let kind = if group == 0 { "mule" } else { "retail" };
        writeln!(nodes, "acc-{i:03},{},{},{value},{kind}", 20 + 7 * group + i % 4, 3 * group).unwrap();
        for k in 1..4 {
            writeln!(edges, "acc-{i:03},acc-{:03}", (i + 5 * k) % NODES).unwrap();
        }
    }
    sandbox.write("accounts.csv", nodes);
    sandbox.write("transfers.csv", edges);
    for (label, out) in [("amount", "data"), ("kind", "classes")] {
        sandbox.ok(&format!(
            "import tables {out} --nodes accounts.csv --id account --label {label} \
             --edges transfers.csv --src from --dst to"
        ));
    }
}

/// Predicted value of each node.
fn predicted(sandbox: &Sandbox, run: &str) -> Vec<f64> {
    let text = sandbox.ok(&format!("predict {run} --out -"));
    text.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn scores_and_predictions_are_in_the_units_of_the_targets() {
    let sandbox = Sandbox::new();
    import(&sandbox);
    let mut losses = Vec::new();
    for transform in TRANSFORMS {
        let options = format!("--epochs 30 --metric mae --target-transform {transform} {TRAIN}");
        let summary = sandbox.ok_json(&format!("train data {options} --out {transform}"));
        let values = predicted(&sandbox, transform);
        let known: Vec<usize> = (0..NODES).filter(|i| i % 10 != 9).collect();
        let errors = known.iter().map(|&i| (values[i] - amount(i)).abs());
        let mae = errors.sum::<f64>() / known.len() as f64;
        let scores = sandbox.ok_json(&format!("eval {transform}"));
        assert_eq!(scores["test"], summary["test"]["score"], "{transform}");
        let of_part = |part: &serde_json::Value| {
            part["nodes"].as_f64().unwrap() * part["scores"]["mae"].as_f64().unwrap()
        };
        let sum: f64 = scores["parts"].as_array().unwrap().iter().map(of_part).sum();
        let expected = sum / known.len() as f64;
        assert!((mae - expected).abs() < 1e-4 * expected, "{transform}: {mae} {expected}");
        let recorded = &sandbox.json(format!("{transform}/dataset.json"))["targets"];
        let expected = if transform == "standard" { None } else { Some(transform) };
        assert_eq!(recorded["transform"].as_str(), expected, "{recorded}");
        losses.push(summary["epochs"][0]["loss"].as_f64().unwrap());
        if matches!(transform, "log" | "quantile") {
            // each group has the right power of ten and sign, which those of the mean hide
            for (i, &value) in values.iter().enumerate() {
                let share = value / amount(i);
                assert!(share > 0.2 && share < 5.0, "{transform}: node {i}: {value}, {}", amount(i));
            }
        }
    }
    assert!(losses[0] > 1e6 && losses[1..].iter().all(|&loss| loss < 10.0), "{losses:?}");
}

#[test]
fn transformed_runs_resume_to_the_same_bits() {
    let sandbox = Sandbox::new();
    import(&sandbox);
    for transform in ["none", "log", "quantile"] {
        let options = format!("--loss huber --target-transform {transform} {TRAIN}");
        let [whole, parts] = ["whole", "parts"].map(|name| format!("{name}-{transform}"));
        sandbox.ok(&format!("train data --epochs 4 {options} --threads 1 --out {whole}"));
        sandbox.ok(&format!("train data --epochs 2 {options} --out {parts}"));
        sandbox.ok(&format!("train --resume --out {parts} --epochs 4"));
        let [left, right] = [&whole, &parts].map(|run| sandbox.read(format!("{run}/best.safetensors")));
        assert_eq!(left, right, "{transform}");
        let test = |run: &str| sandbox.json(format!("{run}/summary.json"))["test"].clone();
        assert_eq!(test(&whole), test(&parts), "{transform}");
        assert_eq!(predicted(&sandbox, &whole), predicted(&sandbox, &parts), "{transform}");
    }
    let refused = sandbox.run("train --resume --out parts-log --epochs 5 --target-transform quantile");
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--target-transform"), "{}", refused.stderr);
}

#[test]
fn transforms_of_classes_and_links_are_refused() {
    let sandbox = Sandbox::new();
    import(&sandbox);
    for (args, message) in [
        (
            "classes --target-transform log",
            "--target-transform log: the targets of classes are classes; leave it out",
        ),
        ("data --task link --target-transform log", "--target-transform"),
        ("data --target-transform sqrt", "--target-transform sqrt: none, standard, log or quantile"),
    ] {
        let outcome = sandbox.run(&format!("train {args} --epochs 1 {TRAIN} --out none"));
        assert_eq!(outcome.status, Some(2), "{args}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(message), "{args}: {}", outcome.stderr);
    }
}
