//! Several columns of classes that one run learns, from tables to predictions.

use std::fmt::Write as _;

use graphmill::dataset::npy;

use crate::common::Sandbox;

pub(crate) const NODES: usize = 240;
pub(crate) const TRAIN: &str = "--hidden 16 --fanout 5,5 --batch-size 32 --lr 0.01 --dropout 0";

/// Sector of an account, missing for every seventh.
fn sector(i: usize) -> &'static str {
    if i % 7 == 6 { "" } else { ["bank", "shop", "state"][i % 6 % 3] }
}

/// Region of an account, missing for every fifth.
fn region(i: usize) -> &'static str {
    if i % 5 == 4 { "" } else { ["north", "south"][i % 6 / 3] }
}

/// Writes accounts whose features follow their group of six, and transfers within groups.
fn accounts(sandbox: &Sandbox) {
    let mut nodes = String::from("account,age,size,sector,region,score\n");
    let mut edges = String::from("from,to\n");
    for i in 0..NODES {
        let group = i % 6;
        let (age, size) = (20 + 9 * (group % 3) + i % 4, 7 * (group / 3) + i % 3);
        writeln!(nodes, "acc-{i:03},{age},{size},{},{},{}.5", sector(i), region(i), i % 9).unwrap();
        for k in 1..4 {
            writeln!(edges, "acc-{i:03},acc-{:03}", (i + 6 * k) % NODES).unwrap();
        }
    }
    sandbox.write("accounts.csv", nodes);
    sandbox.write("transfers.csv", edges);
}

const IMPORT: &str = "--nodes accounts.csv --id account --edges transfers.csv --src from --dst to";

/// Imports the accounts as `out`.
pub(crate) fn imported(sandbox: &Sandbox, out: &str) {
    accounts(sandbox);
    let report = sandbox.ok(&format!("import tables {out} {IMPORT} --label sector,region --ignore score"));
    // neither sector nor region
    assert!(report.contains("6 rows without a label"), "{report}");
    assert!(report.contains("label: 3 classes") && report.contains("label: 2 classes"), "{report}");
}

#[test]
fn one_run_predicts_several_columns_of_classes() {
    let sandbox = Sandbox::new();
    imported(&sandbox, "data");
    let info = sandbox.ok_json("info data");
    let columns = serde_json::json!([{"name": "sector", "classes": 3}, {"name": "region", "classes": 2}]);
    assert_eq!(info["tasks"][0]["columns"], columns, "{info}");
    assert!(sandbox.ok("info data").contains("5 classes in columns (sector: 3, region: 2)"));

    let summary = sandbox.ok_json(&format!("train data --epochs 25 {TRAIN} --out run"));
    assert_eq!((&summary["dataset"]["columns"], &summary["dataset"]["classes"]), (&columns, &5.into()));
    assert_eq!(summary["test"]["metric"], "accuracy");
    assert!(summary["test"]["score"].as_f64().unwrap() > 0.9, "{}", summary["test"]);
    assert!(summary["by_class"].is_null() && summary["baseline"]["test"].is_number(), "{summary}");
    // the selected epoch has the best mean over the columns
    let scores = sandbox.ok_json("eval run");
    for part in scores["parts"].as_array().unwrap() {
        let of = part["diagnostics"]["columns"].as_array().unwrap();
        assert_eq!((&of[0]["name"], &of[1]["name"]), (&"sector".into(), &"region".into()));
        for metric in ["accuracy", "f1-macro", "roc-auc"] {
            let each: Vec<f64> = of.iter().map(|of| of["scores"][metric].as_f64().unwrap()).collect();
            assert_eq!(part["scores"][metric].as_f64(), Some((each[0] + each[1]) / 2.0), "{metric}");
        }
        let classes: Vec<_> = of[1]["by_class"]["classes"].as_array().unwrap().iter().collect();
        assert_eq!((&classes[0]["class"], &classes[1]["class"]), (&"north".into(), &"south".into()));
        assert!(of.iter().all(|of| of["count"].as_u64() < part["nodes"].as_u64()), "some are missing");
        // calibration of each column, and a threshold of that of two classes
        let right = of[0]["calibration"]["accuracy"].as_f64().unwrap();
        assert!((right - of[0]["scores"]["accuracy"].as_f64().unwrap()).abs() < 1e-12);
        assert!(of[0]["thresholds"].is_null() && of[1]["thresholds"]["best"]["f1"].is_number(), "{part}");
    }
    assert_eq!(scores["test"], summary["test"]["score"]);
    let valid = &scores["parts"][1]["scores"]["accuracy"];
    assert_eq!(*valid, summary["best"]["valid_score"]);
    let text = sandbox.ok("eval run");
    assert!(text.contains("region") && text.contains("means of its columns"), "{text}");
    assert!(
        text.contains("sector: calibration (test): ") && text.contains("region: best threshold of class")
    );
    let page = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    let of_columns = ["Calibration of sector", "Calibration of region", "Thresholds of region"];
    for part in ["Scores by target", "Confusion matrix of sector", "<td>north<td>"].iter().chain(&of_columns)
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("Thresholds of sector"), "three classes have no threshold");
}

#[test]
fn predictions_have_a_column_of_named_classes_for_each_target() {
    let sandbox = Sandbox::new();
    imported(&sandbox, "data");
    sandbox.ok(&format!("train data --epochs 25 {TRAIN} --out run"));
    let written = sandbox.ok_json("predict run --out classes.csv");
    assert_eq!((&written["kind"], &written["cols"]), (&"classes".into(), &2.into()));
    let text = String::from_utf8(sandbox.read("classes.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("account,class_sector,class_region"));
    let mut right = [0; 2];
    for (i, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!((fields.len(), fields[0]), (3, &format!("acc-{i:03}")[..]));
        right[0] += usize::from(fields[1] == ["bank", "shop", "state"][i % 6 % 3]);
        right[1] += usize::from(fields[2] == ["north", "south"][i % 6 / 3]);
    }
    assert!(right.iter().all(|&right| right > NODES * 9 / 10), "{right:?}: also rows without a class");
    let text = sandbox.ok("predict run --probabilities --out - --nodes acc-007,acc-006");
    let lines: Vec<&str> = text.lines().collect();
    let header = "account,probability_sector_bank,probability_sector_shop,probability_sector_state,\
                  probability_region_north,probability_region_south";
    assert_eq!((lines.len(), lines[0]), (3, header));
    for line in &lines[1..] {
        let shares: Vec<f32> = line.split(',').skip(1).map(|share| share.parse().unwrap()).collect();
        let sums = [shares[..3].iter().sum::<f32>(), shares[3..].iter().sum::<f32>()];
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{line}");
    }
    sandbox.ok("predict run --out classes.npy");
    let file = npy::open(sandbox.path("classes.npy")).unwrap();
    assert_eq!(file.shape, [NODES, 2]);
    assert!(
        sandbox.ok("predict run --embeddings --out - --nodes acc-007").starts_with("account,embedding_0,")
    );
    // new nodes need no classes
    sandbox.write("new.csv", "account,age,size\nacc-900,29,7\n");
    sandbox.write("more.csv", "from,to\nacc-004,acc-900\nacc-010,acc-900\n");
    let new = sandbox.ok("predict run --on new.csv --edges more.csv --out -");
    assert_eq!(new, "account,class_sector,class_region\nacc-900,shop,south\n");
    // a table of the same labels is scored, and one of others is not
    sandbox.ok(&format!("import tables later {IMPORT} --label sector,region --like data"));
    assert_eq!(sandbox.ok_json("eval run --dataset later")["parts"][2]["nodes"], 47);
    let wrong =
        sandbox.run(&format!("import tables other {IMPORT} --label region,sector --like data")).stderr;
    assert!(wrong.contains("the labels of the other dataset are sector, region; name the same"), "{wrong}");
    sandbox.ok(&format!("import tables other {IMPORT} --label region,sector --ignore score"));
    let wrong = sandbox.run("eval run --dataset other").stderr;
    assert!(wrong.contains("trained on the columns of classes sector (3), region (2)"), "{wrong}");
}

#[test]
fn runs_on_columns_of_classes_resume_and_repeat_to_the_same_bits() {
    let sandbox = Sandbox::new();
    imported(&sandbox, "data");
    let train = |options: &str| sandbox.ok(&format!("train data {TRAIN} --class-weights balanced {options}"));
    train("--epochs 4 --threads 1 --out whole");
    train("--epochs 2 --out parts");
    sandbox.ok("train --resume --out parts --epochs 4");
    train("--epochs 4 --strategy pipelined --threads 3 --out pipelined");
    for run in ["parts", "pipelined"] {
        let file = format!("{run}/best.safetensors");
        assert_eq!(sandbox.read("whole/best.safetensors"), sandbox.read(&file), "{run}");
        assert_eq!(
            sandbox.json("whole/summary.json")["test"],
            sandbox.json(format!("{run}/summary.json"))["test"]
        );
    }
    // rearranged nodes keep their classes
    sandbox.ok("reorder data moved --by degree");
    let columns = |data: &str| sandbox.ok_json(&format!("info {data}"))["tasks"][0]["columns"].clone();
    assert_eq!(columns("moved"), columns("data"));
    sandbox.ok(&format!("train data {TRAIN} --epochs 1 --order balanced --focal 2 --out focal"));
}

/// Imports the accounts, and banks that hold them, as `types`.
pub(crate) fn imported_types(sandbox: &Sandbox) {
    accounts(sandbox);
    sandbox.write("banks.csv", "bank,rating\nb0,1\nb1,5\n");
    let lines = (0..NODES).map(|i| format!("acc-{i:03},b{}\n", i % 6 / 3)).collect::<String>();
    sandbox.write("held.csv", format!("account,bank\n{lines}"));
    sandbox.write(
        "types.toml",
        "[[nodes]]\ntype = \"account\"\nfiles = \"accounts.csv\"\nid = \"account\"\n\
         label = [\"sector\", \"region\"]\nignore = [\"score\"]\n\
         [[nodes]]\ntype = \"bank\"\nfiles = \"banks.csv\"\nid = \"bank\"\n\
         [[edges]]\ntype = \"held\"\nfiles = \"held.csv\"\nsource = \"account\"\nsrc = \"account\"\n\
         destination = \"bank\"\ndst = \"bank\"\nreverse = \"holds\"\n",
    );
    sandbox.ok("import tables types types.toml");
}

#[test]
fn several_types_learn_columns_of_classes() {
    let sandbox = Sandbox::new();
    imported_types(&sandbox);
    let summary = sandbox.ok_json(&format!("train types --epochs 25 {TRAIN} --out run"));
    assert!(summary["test"]["score"].as_f64().unwrap() > 0.85, "{}", summary["test"]);
    let scores = sandbox.ok_json("eval run");
    assert_eq!(scores["test"], summary["test"]["score"]);
    assert_eq!(scores["parts"][2]["diagnostics"]["columns"][1]["name"], "region");
    let text = sandbox.ok("predict run --out - --nodes acc-003");
    assert!(text.starts_with("account,class_sector,class_region\nacc-003,"), "{text}");
    sandbox.ok(&format!("train types --epochs 2 {TRAIN} --threads 1 --out parts"));
    sandbox.ok("train --resume --out parts --epochs 4");
    sandbox.ok(&format!("train types --epochs 4 {TRAIN} --out whole"));
    assert_eq!(sandbox.read("whole/best.safetensors"), sandbox.read("parts/best.safetensors"));
}

#[test]
fn columns_of_classes_spread_and_are_inputs() {
    let sandbox = Sandbox::new();
    imported(&sandbox, "data");
    let summary = sandbox.ok_json(&format!("train data --epochs 2 {TRAIN} --label-inputs 0.5 --out run"));
    let spread = sandbox.ok_json("eval run --propagate label-propagation");
    assert_eq!(summary["baseline"]["test"], spread["test"], "the run compares itself with it");
    sandbox.ok(&format!("train data --epochs 2 {TRAIN} --out plain"));
    let corrected = sandbox.ok_json("eval plain --propagate correct-and-smooth");
    assert!(corrected["test"].as_f64() > sandbox.ok_json("eval plain")["test"].as_f64(), "{corrected}");
    let text = sandbox.ok("predict plain --propagate correct-and-smooth --out - --nodes acc-007");
    assert!(text.starts_with("account,class_sector,class_region\nacc-007,"), "{text}");
    let text =
        sandbox.ok("predict plain --propagate label-propagation --probabilities --out - --nodes acc-007");
    let shares: Vec<f32> =
        text.lines().nth(1).unwrap().split(',').skip(1).map(|share| share.parse().unwrap()).collect();
    let sums = [shares[..3].iter().sum::<f32>(), shares[3..].iter().sum::<f32>()];
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{text}");
}

#[test]
fn commands_without_columns_of_classes_refuse_them() {
    let sandbox = Sandbox::new();
    imported(&sandbox, "data");
    sandbox.ok(&format!("train data --epochs 1 {TRAIN} --out run"));
    imported_types(&sandbox);
    sandbox.ok(&format!("train types --epochs 1 {TRAIN} --out typed"));
    let import = format!("import tables other {IMPORT}");
    for (args, message) in [
        (format!("{import} --label sector,score"), "labels sector, score: some are numbers and some are not"),
        (
            format!("{import} --label sector,region --split stratified:60,20,20"),
            "a stratified split needs one column of classes",
        ),
        (format!("{import} --label sector,region --task regression"), "a target of a regression is a number"),
        ("train data --loss mse --out x".into(), "the targets of data are classes; use cross-entropy"),
        ("train data --class-weights 1,2,3 --out x".into(), "3 weights for 5 classes"),
        ("export data npz data.npz".into(), "nodes have a class in each of several columns"),
        ("partition data parts --parts 2".into(), "its targets are several columns of classes"),
    ] {
        let outcome = sandbox.run(&args);
        assert!(outcome.status != Some(0) && outcome.stderr.contains(message), "{args}: {}", outcome.stderr);
    }
    let corrected = sandbox.ok("eval typed --propagate correct-and-smooth");
    assert!(corrected.contains("test"), "{corrected}");
    // numbers are classes if the task says so
    sandbox.ok(&format!("{import} --label region,score --task classification"));
    let exported = sandbox.ok_json("export-model run --to safetensors run.safetensors");
    assert_eq!(exported["files"].as_array().unwrap().len(), 1);
}
