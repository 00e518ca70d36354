//! Targets beyond classes of equal weights: values, class weights, focal loss; and exported models.

use std::fmt::Write as _;

use graphmill::dataset::npy;

use crate::common::Sandbox;

const NODES: usize = 300;

/// Writes accounts with a balance that follows their group, and transfers within groups.
fn accounts(sandbox: &Sandbox) {
    let mut nodes = String::from("account,age,size,balance,kind\n");
    let mut edges = String::from("from,to\n");
    for i in 0..NODES {
        let group = i % 5;
        let (age, size) = (20 + 7 * group + i % 4, 3 * group + i % 3);
        // a rare class, and a balance far from 0 with a large deviation
        let kind = if group == 0 && i % 2 == 0 { "mule" } else { "retail" };
        let balance = if i % 10 == 9 { String::new() } else { (5000 + 1000 * group + i % 7).to_string() };
        writeln!(nodes, "acc-{i:03},{age},{size},{balance},{kind}").unwrap();
        for k in 1..4 {
            writeln!(edges, "acc-{i:03},acc-{:03}", (i + 5 * k) % NODES).unwrap();
        }
    }
    sandbox.write("accounts.csv", nodes);
    sandbox.write("transfers.csv", edges);
}

fn import(sandbox: &Sandbox, label: &str, out: &str) {
    accounts(sandbox);
    // whole numbers would be classes
    let task = if label == "balance" { "regression" } else { "classification" };
    sandbox.ok(&format!(
        "import tables {out} --nodes accounts.csv --id account --label {label} --task {task} --edges \
         transfers.csv --src from --dst to"
    ));
}

const TRAIN: &str = "--hidden 16 --fanout 5,5 --batch-size 32 --lr 0.01 --dropout 0";

#[test]
fn values_are_learned_standardised_and_predicted_at_their_scale() {
    let sandbox = Sandbox::new();
    import(&sandbox, "balance", "data");
    for loss in ["mse", "huber", "quantile --quantile 0.5"] {
        let name = loss.split(' ').next().unwrap();
        let summary = sandbox.ok_json(&format!("train data --epochs 30 --loss {loss} {TRAIN} --out {name}"));
        assert_eq!(summary["test"]["metric"], "rmse");
        let rmse = summary["test"]["score"].as_f64().unwrap();
        assert!(rmse < 400.0, "{loss}: {rmse}, and the deviation of the balances is 1414");
        assert!(summary["epochs"][29]["loss"].as_f64().unwrap() < 1.0, "{loss}: the loss is of deviations");
        assert_eq!(summary["dataset"]["values"], true);
    }
    let scores = sandbox.ok_json("eval mse");
    let test = &scores["parts"][2]["scores"];
    assert_eq!(scores["test"], test["rmse"]);
    assert!(test["r2"].as_f64().unwrap() > 0.9 && test["spearman"].as_f64().unwrap() > 0.9, "{test}");
    assert!(test["mae"].as_f64().unwrap() <= test["rmse"].as_f64().unwrap());
    assert_eq!(test.as_object().unwrap().len(), 4, "metrics of classes are left out");
    assert!(sandbox.ok("eval mse").contains("spearman"));
    // the best epoch has the smallest error
    let summary = sandbox.json("mse/summary.json");
    let errors = summary["epochs"].as_array().unwrap().iter().map(|e| e["valid_score"].as_f64().unwrap());
    let least = errors.fold(f64::INFINITY, f64::min);
    assert_eq!(summary["best"]["valid_score"].as_f64(), Some(least));

    let written = sandbox.ok_json("predict mse --out values.csv");
    assert_eq!((&written["kind"], &written["cols"]), (&"values".into(), &1.into()));
    let text = String::from_utf8(sandbox.read("values.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("account,value"));
    for (i, line) in lines.enumerate() {
        let value: f64 = line.split_once(',').unwrap().1.parse().unwrap();
        let expected = 5003.0 + 1000.0 * (i % 5) as f64;
        assert!((value - expected).abs() < 1200.0, "{line}, {expected}");
    }
    sandbox.ok("predict mse --out values.npy");
    assert_eq!(npy::open(sandbox.path("values.npy")).unwrap().shape, [NODES]);
    let refused = sandbox.run("partition data parts --parts 2").stderr;
    assert!(refused.contains("data: its targets are real values"), "{refused}");
    let refused = sandbox.run("predict mse --probabilities --out p.csv").stderr;
    assert!(refused.contains("the run predicts values, which have no probabilities"), "{refused}");
}

#[test]
fn rows_with_some_of_several_targets_train_from_the_table_to_the_scores() {
    let sandbox = Sandbox::new();
    accounts(&sandbox);
    // of each row one target is missing, and of some both
    let text = String::from_utf8(sandbox.read("accounts.csv")).unwrap();
    let mut table = String::from("account,age,size,balance,limit\n");
    for (i, line) in text.lines().skip(1).enumerate() {
        let known: Vec<&str> = line.split(',').take(3).collect();
        let group = i % 5;
        let balance =
            if i % 2 == 0 || i % 10 == 9 { String::new() } else { format!("{}.5", 500 + 100 * group) };
        let limit = if i % 2 == 1 { String::new() } else { format!("{}.5", 80 - 10 * group) };
        writeln!(table, "{},{balance},{limit}", known.join(",")).unwrap();
    }
    sandbox.write("accounts.csv", table);
    let import = |out: &str, more: &str| {
        sandbox.ok(&format!(
            "import tables {out} --nodes accounts.csv --id account --label balance,limit --edges \
             transfers.csv --src from --dst to {more}"
        ))
    };
    let report = import("data", "--split random:60,20,20");
    assert!(report.contains("30 rows without a label"), "{report}");
    let info = sandbox.ok_json("info data");
    let summary = sandbox.ok_json(&format!("train data --epochs 40 {TRAIN} --out run"));
    let dataset = &summary["dataset"];
    // 270 of 300 rows have a target
    assert_eq!((&dataset["train"], &dataset["values"]), (&162.into(), &true.into()), "{info}");
    assert_eq!(summary["epochs"][0]["seeds"], 162);
    let scores = sandbox.ok_json("eval run");
    let test = &scores["parts"][2];
    assert_eq!(test["nodes"], 54);
    assert!(test["scores"]["r2"].as_f64().unwrap() > 0.8, "{scores}");
    let text = sandbox.ok("predict run --out - --nodes acc-000,acc-001,acc-009");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((lines.len(), &lines[0][..]), (4, &["account", "value_balance", "value_limit"][..]), "{text}");
    // each row has both values, at their scales
    for (line, group) in lines[1..].iter().zip([0.0, 1.0, 4.0]) {
        let [balance, limit] = [1, 2].map(|c| line[c].parse::<f64>().unwrap());
        assert!((balance - 500.0 - 100.0 * group).abs() < 120.0, "{line:?}");
        assert!((limit - 80.0 + 10.0 * group).abs() < 12.0, "{line:?}");
    }
    // each target has its name, and metrics of its own
    let of_targets = test["diagnostics"]["residuals"].as_array().unwrap();
    assert_eq!((&of_targets[0]["name"], &of_targets[1]["name"]), (&"balance".into(), &"limit".into()));
    assert!(of_targets.iter().all(|of| of["r2"].as_f64().unwrap() > 0.5), "{of_targets:?}");
    assert!(sandbox.ok("eval run").contains("balance") && sandbox.ok("info data").contains("targets"));
    let page = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    assert!(page.contains("<td>limit<td>") && page.contains(" of balance"), "names in the report");
    // new nodes need no target
    sandbox.write("new.csv", "account,age,size\nacc-900,27,3\n");
    sandbox.write("more.csv", "from,to\nacc-001,acc-900\nacc-006,acc-900\n");
    let new = sandbox.ok("predict run --on new.csv --edges more.csv --out -");
    assert_eq!(new.lines().count(), 2, "{new}");
}

#[test]
fn a_run_on_values_resumes_to_the_same_bits() {
    let sandbox = Sandbox::new();
    import(&sandbox, "balance", "data");
    sandbox.ok(&format!("train data --epochs 4 {TRAIN} --metric mae --out whole"));
    sandbox.ok(&format!("train data --epochs 2 {TRAIN} --metric mae --out parts"));
    sandbox.ok("train --resume --out parts --epochs 4");
    assert_eq!(sandbox.read("whole/best.safetensors"), sandbox.read("parts/best.safetensors"));
    // files of earlier versions hold the former default of --loss
    let config = String::from_utf8(sandbox.read("whole/config.toml")).unwrap();
    sandbox.write("former.toml", config.replace("loss = \"auto\"", "loss = \"bce\""));
    sandbox.ok("train --config former.toml --out former");
    assert_eq!(sandbox.read("whole/best.safetensors"), sandbox.read("former/best.safetensors"));
    let test = |run: &str| sandbox.json(format!("{run}/summary.json"))["test"].clone();
    assert_eq!(test("whole"), test("parts"));
}

#[test]
fn class_weights_and_focal_loss_find_more_of_a_rare_class() {
    let sandbox = Sandbox::new();
    import(&sandbox, "kind", "data");
    let recall = |options: &str, out: &str| {
        let summary = sandbox.ok_json(&format!("train data --epochs 3 {TRAIN} {options} --out {out}"));
        let classes = summary["by_class"]["classes"].as_array().unwrap();
        let mule = classes.iter().find(|class| class["class"] == "mule").unwrap();
        mule["recall"].as_f64().unwrap()
    };
    let plain = recall("", "plain");
    let balanced = recall("--class-weights balanced", "balanced");
    let heavy = recall("--class-weights 1000,1", "heavy");
    assert!(balanced >= plain, "{balanced} {plain}");
    assert_eq!(heavy, 1.0, "mule is class 0, and everything is predicted as it");
    recall("--focal 2", "focal");
    assert_ne!(sandbox.read("plain/best.safetensors"), sandbox.read("focal/best.safetensors"));
}

#[test]
fn losses_that_do_not_fit_are_refused_with_a_remedy() {
    let sandbox = Sandbox::new();
    import(&sandbox, "kind", "classes");
    import(&sandbox, "balance", "values");
    for (args, message) in [
        ("classes --loss mse", "--loss mse: the targets of classes are classes; use cross-entropy"),
        ("values --loss bpr", "--loss bpr: the targets of values are values; use mse, mae, huber, quantile"),
        ("values --class-weights balanced", "--class-weights: the targets of values are values"),
        ("values --focal 2", "--focal: the targets of values are values"),
        ("values --metric accuracy", "known: mae, rmse, r2, spearman"),
        ("classes --class-weights 1,2,3", "3 weights for 2 classes"),
        ("classes --focal -1", "--focal"),
        ("values --quantile 0.9", "--loss auto does not use it; use --loss quantile"),
        ("values --loss quantile --quantile 1", "--quantile"),
        ("values --loss hinge", "is unknown; known: auto, cross-entropy, mse"),
    ] {
        let outcome = sandbox.run(&format!("train {args} --epochs 1 {TRAIN} --out none"));
        assert_eq!(outcome.status, Some(2), "{args}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(message), "{args}: {}", outcome.stderr);
    }
}

#[test]
fn predictions_of_listed_keys_and_no_silent_replacement() {
    let sandbox = Sandbox::new();
    import(&sandbox, "kind", "data");
    sandbox.ok(&format!("train data --epochs 2 {TRAIN} --out run"));
    let text = sandbox.ok("predict run --nodes acc-007,acc-002 --out -");
    let keys: Vec<&str> = text.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(keys, ["account", "acc-007", "acc-002"]);
    let unknown = sandbox.run("predict run --nodes acc-007,acc-999 --out -").stderr;
    assert!(unknown.contains("--nodes: 1 of 2 keys are not in data: 'acc-999'; remove them"), "{unknown}");
    let missing = sandbox.run("predict run --nodes ids.txt --out -");
    assert!(missing.stderr.contains("ids.txt"), "{}", missing.stderr);
    sandbox.ok("predict run --out classes.csv");
    let refused = sandbox.run("predict run --out classes.csv");
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("the file exists; pass --force to replace it"), "{}", refused.stderr);
    sandbox.ok("predict run --out classes.csv --force");
    // embeddings ask, too, whatever the file is
    let array = sandbox.read("classes.csv");
    sandbox.write("features.npy", &array);
    for args in ["--out features.npy", "--out features.npy --json"] {
        let refused = sandbox.run(&format!("embed run {args}"));
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        let message = "--out features.npy: the file exists; pass --force to replace it";
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
        assert_eq!(sandbox.read("features.npy"), array);
    }
    sandbox.ok("embed run --out features.npy --force");
    assert_eq!(sandbox.floats("features.npy").0[0], NODES);
}

#[test]
fn models_are_exported_with_their_options_and_weights() {
    let sandbox = Sandbox::new();
    import(&sandbox, "kind", "data");
    sandbox.ok(&format!("train data --epochs 1 {TRAIN} --out run"));
    let exported = sandbox.ok_json("export-model run --to safetensors run.safetensors");
    assert_eq!(exported["files"].as_array().unwrap().len(), 1);
    let bytes = sandbox.read("run.safetensors");
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let inputs = sandbox.json("run/summary.json")["dataset"]["feature_dim"].clone();
    assert_eq!(header["conv.0.self.weight"]["shape"], serde_json::json!([16, inputs]));
    assert_eq!(header["conv.1.bias"]["shape"], serde_json::json!([2]));
    sandbox.ok("export-model run --to pyg module");
    let options = sandbox.json("module/model.json");
    assert_eq!(options["classes"], serde_json::json!(["mule", "retail"]));
    assert!(
        sandbox.path("module/model.py").is_file() && sandbox.path("module/weights.safetensors").is_file()
    );
    for (args, message) in [
        ("run --to pyg module", "it exists; pass --force"),
        ("run --to tvm x", "known: safetensors, pyg, onnx"),
        ("run --to onnx x", "use a name that ends in .onnx"),
        ("run --to safetensors x", "use a name that ends in .safetensors"),
    ] {
        let outcome = sandbox.run(&format!("export-model {args}"));
        assert_eq!(outcome.status, Some(2), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
    }
    sandbox.ok(&format!("train data --epochs 1 {TRAIN} --sampler labor --out other"));
    let refused = sandbox.run("export-model other --to pyg none").stderr;
    assert!(refused.contains("--to pyg: --sampler labor weights the neighbours"), "{refused}");
    assert!(refused.contains("--to safetensors"), "{refused}");
}

#[test]
fn repeated_runs_have_a_mean_and_compare_in_a_table() {
    let sandbox = Sandbox::new();
    import(&sandbox, "kind", "data");
    let repeated = sandbox.ok_json(&format!("train data --epochs 1 {TRAIN} --seed 7 --repeat 3 --out many"));
    let seeds: Vec<u64> =
        repeated["runs"].as_array().unwrap().iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [7, 8, 9]);
    assert_eq!(sandbox.json("many/repeat.json"), repeated);
    let scores = repeated["runs"].as_array().unwrap().iter().map(|run| run["test"].as_f64().unwrap());
    assert!((scores.sum::<f64>() / 3.0 - repeated["test"]["mean"].as_f64().unwrap()).abs() < 1e-12);
    sandbox.ok(&format!("train data --epochs 1 {TRAIN} --seed 8 --out one"));
    assert_eq!(sandbox.read("one/best.safetensors"), sandbox.read("many/seed-8/best.safetensors"));
    let rows = sandbox.ok_json("runs many one")["runs"].clone();
    assert_eq!(rows.as_array().unwrap().len(), 4);
    assert_eq!(rows[0]["options"].as_object().unwrap().keys().collect::<Vec<_>>(), ["seed"]);
    let text = sandbox.ok("runs many");
    assert!(text.starts_with("run ") && text.contains("many/seed-9"), "{text}");
    for (args, message) in [
        ("train data --repeat 0 --out x", "pass an integer from 1 to 1000"),
        ("train data --repeat 2", "name the directory of the runs with --out DIR"),
        ("train data --repeat 2 --resume --out many/seed-7", "no run to resume; leave out --resume"),
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.status, Some(2), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
    }
    let none = sandbox.run("runs data");
    assert!(none.stderr.contains("it is not a run and holds none"), "{}", none.stderr);
}

#[test]
fn labels_and_errors_spread_over_the_graph() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm graph --nodes 1500 --classes 4 --feature-dim 4 --p-in 0.8 --split 0.2,0.2,0.6");
    sandbox.ok("train graph --epochs 1 --fanout 3,3 --hidden 4 --out run");
    let scores = |more: &str| sandbox.ok_json(&format!("eval run {more}"));
    let accuracy = |scores: &serde_json::Value, part: usize| {
        scores["parts"][part]["scores"]["accuracy"].as_f64().unwrap()
    };
    let model = scores("");
    let corrected = scores("--propagate correct-and-smooth");
    let labels = scores("--propagate label-propagation --propagation-alpha 0.9");
    // the run has the scores of label propagation with default options
    let (spread, baseline) =
        (scores("--propagate label-propagation"), sandbox.json("run/summary.json")["baseline"].clone());
    assert_eq!(baseline["method"], "label-propagation");
    for (part, name) in [(1, "valid"), (2, "test")] {
        let score = baseline[name].as_f64().unwrap();
        assert!((score - accuracy(&spread, part)).abs() < 1e-12, "{name}: {baseline} {spread}");
    }
    let page = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    assert!(page.contains("<td>label propagation<td>"), "the report compares both");
    assert!(accuracy(&corrected, 2) > accuracy(&model, 2) + 0.05, "{model} {corrected}");
    assert!(accuracy(&labels, 2) > 0.6, "{labels}");
    // the classes of training nodes are known, though neighbours may outweigh them
    assert!(accuracy(&corrected, 0) > 0.95 && accuracy(&labels, 0) > 0.95);
    assert_eq!(corrected, scores("--propagate correct-and-smooth --threads 1"));

    // predictions are those that were scored
    sandbox.ok("predict run --propagate correct-and-smooth --out classes.npy");
    sandbox.ok("predict run --propagate correct-and-smooth --probabilities --out shares.npy");
    let classes = npy::open(sandbox.path("classes.npy")).unwrap().read_as_i64().unwrap();
    let known = npy::open(sandbox.path("graph/labels.npy")).unwrap().read_as_i64().unwrap();
    let test = npy::open(sandbox.path("graph/test.npy")).unwrap().read_as_i64().unwrap();
    let right = test.iter().filter(|&&v| classes[v as usize] == known[v as usize]).count();
    let share = right as f64 / test.len() as f64;
    assert!((share - accuracy(&corrected, 2)).abs() < 1e-12, "{share} {corrected}");

    for (args, message) in [
        ("eval run --propagation-steps 3", "--propagate <NAME>"),
        ("eval run --propagate rumour", "unknown propagation 'rumour'; known: label-propagation"),
        ("eval run --propagate label-propagation --propagation-alpha 2", "--propagation-alpha: "),
        ("predict run --propagate correct-and-smooth --embeddings --out e.npy", "embeddings are not"),
    ] {
        let outcome = sandbox.run(args);
        assert!(outcome.status != Some(0) && outcome.stderr.contains(message), "{args}: {}", outcome.stderr);
    }
    sandbox.multi_label_dataset("sets");
    sandbox.ok("train sets --epochs 1 --fanout 2,2 --hidden 4 --out of-sets");
    let baseline = sandbox.json("of-sets/summary.json")["baseline"]["test"].clone();
    assert!(baseline.is_number());
    assert_eq!(sandbox.ok_json("eval of-sets --propagate label-propagation")["test"], baseline);
    // labels that few nodes have are found more often if they weigh more
    let classes = sandbox.json("of-sets/summary.json")["dataset"]["classes"].as_u64().unwrap() as usize;
    let recall = |weights: &str, out: &str| {
        let options = "--epochs 5 --fanout 2,2 --hidden 4 --lr 0.01 --seed 1 --out";
        let summary = sandbox.ok_json(&format!("train sets --class-weights {weights} {options} {out}"));
        summary["by_class"]["macro_average"]["recall"].as_f64().unwrap()
    };
    let (plain, heavy) = (recall("none", "plain"), recall(&vec!["20"; classes].join(","), "heavy"));
    assert!(heavy > plain + 0.1, "{heavy} {plain}");
    let wrong = sandbox.run("train sets --class-weights 1,2 --out wrong").stderr;
    assert!(wrong.contains(&format!("2 weights for {classes} classes")), "{wrong}");
}

/// Writes users and items, and a schema with targets of the users: two values, some missing.
fn shop(sandbox: &Sandbox) {
    let mut users = String::from("user,age,spend\n");
    let mut items = String::from("item,price\n");
    let mut buys = String::from("who,what\n");
    for i in 0..NODES {
        let group = i % 5;
        let spend = if i % 10 == 9 { String::new() } else { format!("{}.5", 500 + 100 * group + i % 7) };
        writeln!(users, "u{i:03},{},{spend}", 20 + 7 * group + i % 4).unwrap();
        for k in 0..3 {
            writeln!(buys, "u{i:03},i{:02}", (group + 5 * ((i + k) % 6)) % 30).unwrap();
        }
    }
    (0..30).for_each(|i| writeln!(items, "i{i:02},{}", 10 * (i % 5) + i % 3).unwrap());
    sandbox.write("users.csv", users);
    sandbox.write("items.csv", items);
    sandbox.write("buys.csv", buys);
    sandbox.write(
        "shop.toml",
        "[[nodes]]\ntype = \"user\"\nfiles = \"users.csv\"\nid = \"user\"\nlabel = \"spend\"\n\
         [[nodes]]\ntype = \"item\"\nfiles = \"items.csv\"\nid = \"item\"\n\
         [[edges]]\ntype = \"buys\"\nfiles = \"buys.csv\"\nsource = \"user\"\nsrc = \"who\"\n\
         destination = \"item\"\ndst = \"what\"\nreverse = \"bought_by\"\n",
    );
}

#[test]
fn values_of_several_types_are_learned_and_predicted_at_their_scale() {
    let sandbox = Sandbox::new();
    shop(&sandbox);
    sandbox.ok("import tables shop shop.toml");
    for loss in ["auto", "huber --huber-delta 0.5", "mse --target-transform log"] {
        let name = loss.split(' ').next().unwrap();
        let summary = sandbox.ok_json(&format!("train shop --epochs 40 --loss {loss} {TRAIN} --out {name}"));
        assert_eq!(summary["test"]["metric"], "rmse", "{summary}");
        let rmse = summary["test"]["score"].as_f64().unwrap();
        assert!(rmse < 60.0, "{loss}: {rmse}, and the deviation of the targets is 141");
        let errors = summary["epochs"].as_array().unwrap().iter().map(|e| e["valid_score"].as_f64().unwrap());
        let least = errors.fold(f64::INFINITY, f64::min);
        assert_eq!(summary["best"]["valid_score"].as_f64(), Some(least));
        let parts: Vec<_> = summary["diagnostics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|of| of["part"].as_str().unwrap())
            .collect();
        assert_eq!(parts, ["train", "valid", "test"]);
    }
    let scores = sandbox.ok_json("eval auto");
    let summary = sandbox.json("auto/summary.json");
    assert_eq!(scores["test"], summary["test"]["score"]);
    assert_eq!(scores["parts"][2]["diagnostics"], summary["diagnostics"][2]);
    let text = sandbox.ok("eval auto");
    assert!(text.contains("spearman") && text.contains("residuals"), "{text}");
    let written = sandbox.ok_json("predict auto --out values.csv");
    assert_eq!((&written["kind"], &written["rows"]), (&"values".into(), &NODES.into()));
    let text = String::from_utf8(sandbox.read("values.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("user,value"));
    for (i, line) in lines.enumerate() {
        let value: f64 = line.split_once(',').unwrap().1.parse().unwrap();
        assert!((value - (500.0 + 100.0 * (i % 5) as f64)).abs() < 150.0, "{line}");
    }
    let refused = sandbox.run("predict auto --probabilities --out p.csv").stderr;
    assert!(refused.contains("the run predicts values, which have no probabilities"), "{refused}");
    sandbox.ok(&format!("train shop --epochs 2 {TRAIN} --out parts"));
    sandbox.ok("train --resume --out parts --epochs 4");
    sandbox.ok(&format!("train shop --epochs 4 {TRAIN} --out whole"));
    assert_eq!(sandbox.read("whole/best.safetensors"), sandbox.read("parts/best.safetensors"));
}

#[test]
fn scores_name_their_propagation() {
    let sandbox = Sandbox::new();
    import(&sandbox, "kind", "data");
    sandbox.ok(&format!("train data --epochs 2 {TRAIN} --out run"));
    let scores = sandbox.ok_json("eval run --propagate label-propagation --propagation-alpha 0.5");
    let propagation = &scores["propagation"];
    assert_eq!(
        (&propagation["method"], &propagation["propagation_alpha"]),
        (&"label-propagation".into(), &0.5.into())
    );
    assert!(scores["parts"][2]["diagnostics"].is_null(), "{scores}");
    assert!(sandbox.ok_json("eval run")["propagation"].is_null());
}

#[test]
fn balanced_batches_have_every_class_on_one_type_and_several() {
    let sandbox = Sandbox::new();
    import(&sandbox, "kind", "data");
    let options = format!("--epochs 2 --order balanced {TRAIN}");
    for (data, out) in [("data", "one"), ("shop", "several")] {
        if data == "shop" {
            shop(&sandbox);
            sandbox.ok("import tables shop shop.toml");
        }
        sandbox.ok(&format!("train {data} {options} --out {out}"));
        sandbox.ok(&format!("train {data} {options} --threads 1 --out {out}-1"));
        let [all, one] =
            [out.to_string(), format!("{out}-1")].map(|run| sandbox.read(format!("{run}/best.safetensors")));
        assert_eq!(all, one);
    }
    let refused = sandbox.run("train shop --order proximity --out p");
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("use --order random, sequential or balanced"), "{}", refused.stderr);
}
