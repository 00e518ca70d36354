//! From tables with keys of their own to predictions with these keys.

use std::{
    collections::HashMap,
    fmt::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::common::Sandbox;

const NODES: usize = 240;

/// Writes accounts with text keys, gaps, quotes and names of their own, and their transfers.
fn accounts(sandbox: &Sandbox) {
    let segments = ["retail", "merchant", "mule"];
    let mut nodes = String::from("account_id,country,signup_date,age,note,segment\n");
    let mut edges = String::from("from_account;to_account;amount;timestamp\n");
    for i in 0..NODES {
        let segment = i % 3;
        let age = if i % 11 == 0 { String::new() } else { (20 + 20 * segment + i % 9).to_string() };
        let label = if i % 6 == 5 { "" } else { segments[segment] };
        let country = ["DE", "FR"][i / 3 % 2];
        let day = 1 + i % 28;
        writeln!(nodes, "acc-{i:04x},{country},2023-01-{day:02},{age},\"a \"\"note\"\", {i}\",{label}")
            .unwrap();
        for k in 1..4 {
            let to = (i + 3 * k * (1 + i % 4)) % NODES;
            writeln!(edges, "acc-{i:04x};acc-{to:04x};{}.5;2024-02-0{} 10:00:00", i % 40, 1 + k).unwrap();
        }
    }
    sandbox.write("accounts.csv", nodes);
    sandbox.write("transfers.csv", edges);
}

const IMPORT: &str = "import tables data --nodes accounts.csv --id account_id --label segment --edges \
                      transfers.csv --src from_account --dst to_account";

#[test]
fn accounts_from_csv_to_predictions_by_key() {
    let sandbox = Sandbox::new();
    accounts(&sandbox);
    let text = sandbox.ok(IMPORT);
    for part in
        ["nodes 'node': 240 nodes, 4 features", "note         ignored: free text", "3 classes (40 missing)"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    sandbox.ok("train data --epochs 30 --hidden 16 --fanout 5,5 --batch-size 32 --lr 0.01 --out run");
    sandbox.ok("predict run --out scores.csv");
    let scores = String::from_utf8(sandbox.read("scores.csv")).unwrap();
    let mut lines = scores.lines();
    assert_eq!(lines.next(), Some("account_id,class"));
    let classes: HashMap<&str, &str> = lines.map(|line| line.split_once(',').unwrap()).collect();
    assert_eq!(classes.len(), NODES);
    let truth = |i: usize| ["retail", "merchant", "mule"][i % 3];
    let right = (0..NODES).filter(|i| classes[format!("acc-{i:04x}").as_str()] == truth(*i)).count();
    assert!(right > NODES * 8 / 10, "{right} of {NODES}");
    // Some keys, in their order; the unlabelled rows among them.
    sandbox.write("keys.txt", "acc-0005\nacc-0000\n");
    let some = sandbox.ok("predict run --keys keys.txt --probabilities --out -");
    let header = some.lines().next().unwrap();
    assert_eq!(header, "account_id,probability_merchant,probability_mule,probability_retail");
    let keys: Vec<&str> = some.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(keys, ["acc-0005", "acc-0000"]);
    sandbox.write("keys.csv", "segment,account_id\nx,acc-0001\n");
    assert!(sandbox.ok("predict run --keys keys.csv --out -").starts_with("account_id,class\nacc-0001,"));
    // Other tables, without labels: the classes have the names of the run's dataset.
    let new = IMPORT.replace("tables data", "tables new --like data").replace("--label segment ", "");
    sandbox.ok(&new);
    let predicted = sandbox.ok("predict run --dataset new --keys keys.csv --out -");
    assert_eq!(predicted, sandbox.ok("predict run --keys keys.csv --out -"));
    sandbox.write("keys.csv", "account_id\nacc-0001\nacc-9999\n");
    let failed = sandbox.run("predict run --keys keys.csv --out -");
    assert_eq!(failed.status, Some(1));
    assert!(
        failed.stderr.contains("keys.csv: line 3: 1 of 2 keys are not in data: 'acc-9999'"),
        "{}",
        failed.stderr
    );
}

#[test]
fn a_dry_run_prints_a_schema_that_imports_the_same() {
    let sandbox = Sandbox::new();
    accounts(&sandbox);
    let extra = "--edge-time timestamp --edge-features amount --column age=quantile,indicator --split \
                 stratified:70,10,20";
    let text = sandbox.ok(&format!("{IMPORT} {extra} --dry-run"));
    assert!(!sandbox.path("data").exists());
    let schema = text.split("# schema.toml\n").nth(1).unwrap();
    assert!(schema.contains("age = \"number, quantile, indicator\""), "{schema}");
    sandbox.write("schema.toml", schema);
    let text = sandbox.ok(&format!("{IMPORT} {extra}"));
    assert!(
        text.contains(
            "note: edge features are read by --model gine, gatv2-edge, sage-edge and edge-gated; edge times \
             are read by tasks with times and by models of events"
        ),
        "{text}"
    );
    sandbox.ok("import tables again schema.toml --name data");
    for file in ["graphmill.json", "preprocessing.json", "nodes/node/features.npy"] {
        assert!(sandbox.read(format!("data/{file}")) == sandbox.read(format!("again/{file}")), "{file}");
    }
    let document = sandbox.ok_json("import tables more schema.toml --dangling drop");
    assert_eq!(
        (&document["nodes"], &document["report"]["nodes"][0]["missing_labels"]),
        (&240.into(), &40.into())
    );
}

/// Split whose parts have rows of each class.
const SPLIT: &str = "--split stratified:60,20,20";

/// Standard error of a command that is refused.
fn message_of(sandbox: &Sandbox, args: &str) -> String {
    let outcome = sandbox.run(args);
    assert_ne!(outcome.status, Some(0), "graphmill {args}");
    outcome.stderr
}

#[test]
fn natural_mistakes_get_remarks_with_their_remedy() {
    let sandbox = Sandbox::new();
    // the feature is the same everywhere, so all predictions are
    let rows: String =
        (0..100).map(|i| format!("n{i},1,{}\n", ["a", "b"][usize::from(i % 5 == 0)])).collect();
    sandbox.write("nodes.csv", format!("id,x,kind\n{rows}"));
    let edges: String = (0..100).map(|i| format!("n{i},n{}\n", (i + 1) % 100)).collect();
    sandbox.write("edges.csv", format!("src,dst\n{edges}"));
    let alone = sandbox.ok("import table alone --nodes nodes.csv --id id --label kind");
    assert!(alone.contains("note: there are no edges, which training needs"), "{alone}");
    let refused = sandbox.run("train alone --epochs 1 --out none");
    assert!(refused.stderr.contains("it has no edge type; import it with"), "{}", refused.stderr);
    let loops = message_of(&sandbox, "import tables x --edges edges.csv --src src --dst src");
    assert!(loops.contains("src and dst are both 'src', which would join each node to itself"), "{loops}");
    let schema = message_of(&sandbox, "import tables x nodes.csv");
    assert!(schema.contains("fix the schema, TOML that names tables"), "{schema}");
    let nodes = "--nodes nodes.csv --id id --label kind";
    sandbox.ok(&format!("import tables data {nodes} {SPLIT} --edges edges.csv --src src --dst dst"));
    let trained = sandbox.ok("train data --epochs 1 --hidden 4 --out run");
    assert!(trained.contains("test nodes are predicted as 'a', the class of"), "{trained}");
    assert!(trained.contains("\n1 epoch in "), "{trained}");
    // a run and a missing directory are no datasets
    let message = |args: &str| message_of(&sandbox, args);
    assert!(message("info run").contains("this is a run directory and not a Graphmill dataset"));
    assert!(message("info dat").contains("there is no such directory; check its name"));
    let manifest = String::from_utf8(sandbox.read("alone/graphmill.json")).unwrap();
    sandbox.write("alone/graphmill.json", manifest.replacen("\"version\": 2", "\"version\": 9", 1));
    assert!(message("info alone").contains("this program reads versions 1 and 2, update Graphmill"));
    let keys = message("predict run --keys n1,n2 --out -");
    assert!(keys.contains("--keys n1,n2: there is no such file") && keys.contains("--nodes n1,n2"), "{keys}");
}

#[test]
fn truth_values_keep_their_names_and_files_list_keys() {
    let sandbox = Sandbox::new();
    let rows: String = (0..60).map(|i| format!("acc-{i},{},{}\n", i % 7, ["no", "yes"][i % 2])).collect();
    sandbox.write("nodes.csv", format!("id,size,late\n{rows}"));
    let edges: String = (0..60).map(|i| format!("acc-{i},acc-{}\n", (i + 2) % 60)).collect();
    sandbox.write("edges.csv", format!("from,to\n{edges}"));
    let import =
        "import tables data --nodes nodes.csv --id id --label late --edges edges.csv --src from --dst to";
    sandbox.ok(import);
    sandbox.ok("train data --epochs 1 --hidden 4 --fanout 3,3 --batch-size 16 --out run");
    sandbox.write("some.txt", "acc-7\nacc-3\n");
    let text = sandbox.ok("predict run --nodes some.txt --out -");
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!((rows.len(), rows[0]), (3, "id,class"), "{text}");
    assert!(rows[1].starts_with("acc-7,") && rows[2].starts_with("acc-3,"), "{text}");
    assert!(rows[1..].iter().all(|row| row.ends_with(",yes") || row.ends_with(",no")), "{text}");
    sandbox.write("wrong.txt", "acc-7\nacc-99\n");
    let refused = sandbox.run("predict run --nodes wrong.txt --out -");
    assert!(refused.stderr.contains("acc-99"), "{}", refused.stderr);
    // a rule for a column that is no feature
    let refused = sandbox.run(&format!("{} --column late=number --force", import));
    assert!(refused.stderr.contains("its rule has no effect"), "{}", refused.stderr);
}

#[test]
fn wrong_command_lines_name_the_remedy() {
    let sandbox = Sandbox::new();
    accounts(&sandbox);
    for (args, status, says) in [
        ("import tables data", 2, "there are no tables; name --nodes FILE"),
        ("import tables data --nodes accounts.csv --edges transfers.csv", 2, "--id is missing"),
        ("import tables data --nodes accounts.csv --edges transfers.csv", 2, "--dst is missing"),
        (&format!("{IMPORT} --column age"), 2, "write NAME=HOW"),
        (&format!("{IMPORT} --column age=old"), 2, "unknown word 'old'"),
        (&format!("{IMPORT} --column age=raw --column age=zero"), 2, "named twice"),
        (&format!("{IMPORT} --split thirds"), 2, "write random:60,20,20"),
        (&format!("{IMPORT} --missing none"), 2, "known: mean, zero, indicator"),
        (&format!("{IMPORT} --dangling keep"), 2, "known: error, drop, add"),
        (&format!("{IMPORT} --separator ab"), 2, "one ASCII character"),
        ("import tables data schema.toml --id x", 2, "--id"),
        ("import tables data schema.toml", 1, "schema.toml: cannot read"),
        (&format!("{IMPORT} --like accounts.csv"), 1, "preprocessing.json"),
        ("import tables data --nodes no.csv --id x", 1, "no.csv: cannot open"),
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.status, Some(status), "{args}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{args}: {says} is not in: {}", outcome.stderr);
        assert!(!sandbox.path("data").exists(), "{args}");
    }
}

#[test]
fn tables_come_from_standard_input_and_compressed() {
    let sandbox = Sandbox::new();
    accounts(&sandbox);
    sandbox.ok(IMPORT);
    let bytes = sandbox.read("accounts.csv");
    let mut child = sandbox
        .command(
            &IMPORT
                .replace("--nodes accounts.csv", "--nodes -")
                .replace("tables data", "tables piped --name data"),
        )
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), &bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(sandbox.read("data/graphmill.json") == sandbox.read("piped/graphmill.json"));
    assert!(!sandbox.path("piped.stdin").exists());
}

/// Imports of some megabytes, killed at several stages.
#[test]
fn a_killed_import_resumes_to_the_same_bytes() {
    let sandbox = Sandbox::new();
    let count = 70_000u64;
    let mut nodes = String::from("id,age,label\n");
    let mut edges = String::from("src,dst,at\n");
    for i in 0..count {
        let key = |i: u64| (i % count).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        writeln!(nodes, "{:016x},{},c{}", key(i), i % 70, i % 3).unwrap();
        for k in 1..4 {
            writeln!(edges, "{:016x},{:016x},{}", key(i), key(i * k + k), i % 1000).unwrap();
        }
    }
    sandbox.write("nodes.csv", nodes);
    sandbox.write("edges.csv", edges);
    let command = "import tables data --nodes nodes.csv --id id --label label --edges edges.csv --src \
                   src --dst dst --edge-time at --name test --memory 64M";
    sandbox.ok(&command.replace(" data ", " expected "));
    let mut resumed = 0;
    for stage in ["done-types-of-nodes-0", "done-keys-0", "done-nodes", "done-edges-0", "done-sorted-0"] {
        let begun = sandbox.path(format!("data.importing/scratch-{stage}.json"));
        let mut child = sandbox.command(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !begun.exists() && child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(120), "{stage} is never reached");
            std::thread::sleep(Duration::from_micros(100));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if !sandbox.path("data").exists() {
            let outcome = sandbox.run(command).succeeded();
            let part = format!("taking over from the interrupted import: {}", &stage["done-".len()..]);
            assert!(outcome.stderr.contains(&part), "{part}: {}", outcome.stderr);
            resumed += 1;
        }
        assert!(!sandbox.path("data.importing").exists());
        for file in ["graphmill.json", "preprocessing.json"] {
            assert!(
                sandbox.read(format!("data/{file}")) == sandbox.read(format!("expected/{file}")),
                "{stage}"
            );
        }
        std::fs::remove_dir_all(sandbox.path("data")).unwrap();
    }
    assert!(resumed > 0, "every import finished before it was killed");
}

#[cfg(not(feature = "object-storage"))]
#[test]
fn addresses_need_a_feature_of_the_program() {
    let outcome = Sandbox::new().run("import tables data --nodes s3://bucket/nodes.csv --id id");
    let says = "s3://bucket/nodes.csv: address: this program was built without object storage; build it with \
                `--features object-storage`";
    assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
}

/// Writes the lines of `from` of which `is_kept` is true of the keys, and the first, to `to`.
fn keep(sandbox: &Sandbox, from: &str, to: &str, is_kept: impl Fn(&str) -> bool) {
    let text = String::from_utf8(sandbox.read(from)).unwrap();
    let mut lines = text.lines();
    let header = lines.next().unwrap();
    let kept: Vec<&str> = lines.filter(|line| is_kept(line)).collect();
    sandbox.write(to, format!("{header}\n{}\n", kept.join("\n")));
}

#[test]
fn new_rows_get_the_scores_that_they_have_in_the_dataset() {
    let sandbox = Sandbox::new();
    accounts(&sandbox);
    // The last 40 accounts are new.
    let is_new = |key: &str| key >= "acc-00c8";
    let ends = |line: &str| -> [bool; 2] {
        let mut fields = line.split(';');
        [fields.next().is_some_and(is_new), fields.next().is_some_and(is_new)]
    };
    keep(&sandbox, "accounts.csv", "known.csv", |line| !is_new(line.split(',').next().unwrap()));
    keep(&sandbox, "accounts.csv", "new.csv", |line| is_new(line.split(',').next().unwrap()));
    keep(&sandbox, "transfers.csv", "old.csv", |line| ends(line) == [false; 2]);
    keep(&sandbox, "transfers.csv", "more.csv", |line| ends(line) != [false; 2]);
    let known = IMPORT.replace("accounts.csv", "known.csv").replace("transfers.csv", "old.csv");
    sandbox.ok(&known);
    sandbox.ok("train data --epochs 3 --hidden 8 --fanout 5,5 --batch-size 32 --out run");
    sandbox.ok(&IMPORT.replace("tables data", "tables whole --like data"));
    let table = |text: String| -> HashMap<String, Vec<f32>> {
        let row = |line: &str| {
            let mut fields = line.split(',');
            let key = fields.next().unwrap().to_string();
            (key, fields.map(|field| field.parse().unwrap()).collect())
        };
        text.lines().skip(1).map(row).collect()
    };
    let expected = table(sandbox.ok("predict run --dataset whole --probabilities --out -"));
    let on = "predict run --on new.csv --probabilities --out -";
    let text = sandbox.ok(&format!("{on} --edges more.csv"));
    let header = "account_id,probability_merchant,probability_mule,probability_retail\nacc-00c8,";
    assert!(text.starts_with(header), "{text}");
    let found = table(text.clone());
    assert_eq!(found.len(), 40);
    for (key, row) in &found {
        for (a, b) in row.iter().zip(&expected[key]) {
            assert!((a - b).abs() < 1e-5, "{key}: {row:?} {:?}", expected[key]);
        }
    }
    // Edges between known nodes are left out, and neighbours matter.
    assert_eq!(sandbox.ok(&format!("{on} --edges transfers.csv")), text);
    assert_ne!(sandbox.ok(on), text);
    let out = sandbox.ok("predict run --on new.csv --edges more.csv --out new.parquet");
    assert!(out.starts_with("new.parquet: 40 x 1 classes of new nodes with "), "{out}");
    let json = sandbox.ok("predict run --on new.csv --edges transfers.csv --out new.npy --json");
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let old = String::from_utf8(sandbox.read("old.csv")).unwrap().lines().count() - 1;
    assert!(document["rows"] == 40 && document["known_edges"] == old, "{document} {old}");
}

#[test]
fn other_importers_point_to_tables() {
    let sandbox = Sandbox::new();
    sandbox.write("edges.csv", "a,b\nacc-1,acc-2\n");
    for (format, message) in [
        ("csv", "known: npz, "),
        ("csv", "'graphmill import tables' reads your own CSV"),
        (
            "edges",
            "'acc-1' is not a node id: ids are whole numbers from 0 that fit 32 bits; 'graphmill import \
             tables'",
        ),
    ] {
        let failed = sandbox.run(&format!("import {format} edges.csv out"));
        assert!(failed.status != Some(0) && failed.stderr.contains(message), "{}", failed.stderr);
    }
}

#[test]
fn faults_of_new_rows_say_how_to_fix_them() {
    let sandbox = Sandbox::new();
    accounts(&sandbox);
    sandbox.ok(IMPORT);
    sandbox.ok("train data --epochs 1 --hidden 8 --fanout 5,5 --out run");
    let refused = |command: &str, message: &str| {
        let failed = sandbox.run(command);
        assert!(failed.status != Some(0) && failed.stderr.contains(message), "{command}: {}", failed.stderr);
    };
    refused(
        "predict run --on accounts.csv --out -",
        "accounts.csv: 240 of 240 rows have a key that is in data already: 'acc-0000', 'acc-0001', \
         'acc-0002', 'acc-0003', 'acc-0004'; remove them, or predict them with --keys",
    );
    sandbox.write("new.csv", "account_id,country,signup_date,age\nx,FR,2024-01-01,30\n");
    sandbox.write("edges.csv", "from_account,to_account\nx,acc-0001\ny,x\nz,acc-0002\n");
    refused(
        "predict run --on new.csv --edges edges.csv --out -",
        "edges.csv: column 'from_account': 2 rows name a node of 'node' that neither the new tables nor the \
         dataset has: line 3 'y', line 4 'z'; add rows for the missing nodes, or remove these edges",
    );
    sandbox.write("edges.csv", "from_account,to\nx,acc-0001\n");
    refused(
        "predict run --on new.csv --edges edges.csv --out -",
        "edges.csv: there is no column 'to_account'",
    );
    sandbox.write("short.csv", "account_id,country,age\nx,FR,30\n");
    refused(
        "predict run --on short.csv --out -",
        "short.csv: the column 'signup_date' of the other dataset is missing; add it",
    );
    sandbox
        .write("twice.csv", "account_id,country,signup_date,age\nx,FR,2024-01-01,30\nx,FR,2024-01-01,30\n");
    refused("predict run --on twice.csv --out -", "1 of 2 rows repeat the key of an earlier row: x (line 3)");
    refused("predict run --edges edges.csv --out -", "--on <TABLE>");
    refused("predict run --on new.csv --keys edges.csv --out -", "cannot be used with");
    sandbox.ok("generate sbm made --nodes 300");
    sandbox.ok("train made --epochs 1 --hidden 8 --out other");
    refused("predict other --on new.csv --out -", "was not imported from tables");
}

/// Writes users, their visits of others, and a row of each user every ten days: if the user made no
/// visit in the ten days before it.
fn visits(sandbox: &Sandbox) {
    const USERS: usize = 120;
    let users: String = (0..USERS).map(|u| format!("u{u},{},0\n", ["basic", "pro"][u % 2])).collect();
    sandbox.write("users.csv", format!("user,plan,joined\n{users}"));
    let is_away = |u: usize, decade: usize| (u + 3 * decade) % 5 < 2;
    let (mut rows, mut targets) = (String::from("who,whom,day,tip\n"), String::from("user,day,away,fold\n"));
    for decade in 0..5 {
        for u in 0..USERS {
            for k in (0..3).filter(|_| !is_away(u, decade)) {
                let (whom, day) = ((u * 7 + k * 11 + 1) % USERS, 10 * decade + 1 + 3 * k);
                let tip = if (u + whom) % 2 == 0 { "none" } else { "some" };
                writeln!(rows, "u{u},u{whom},{day},{tip}").unwrap();
            }
            let (away, fold) = (["no", "yes"][usize::from(is_away(u, decade))], ["train", "valid", "test"]);
            writeln!(targets, "u{u},{},{away},{}", 10 * decade + 10, fold[decade.saturating_sub(2)]).unwrap();
        }
    }
    sandbox.write("visits.csv", rows);
    sandbox.write("away.csv", targets);
}

const VISITS: &str = "import tables data --nodes users.csv --id user --node-time joined --edges visits.csv \
                      --src whom --dst who --edge-time day --edge-label tip --edge-split time:day:70,10,20 \
                      --targets away.csv --target-id user --target-time day --target-label away \
                      --target-split column:fold";

#[test]
fn targets_of_nodes_at_times_and_labels_of_edges_are_learned() {
    let sandbox = Sandbox::new();
    visits(&sandbox);
    let text = sandbox.ok(VISITS);
    for part in [
        "joined  time, integers as they are",
        "tip   label: 2 classes",
        "split time:day:70,10,20:",
        "targets 'away' of 'node': 600 rows",
        "split column:fold: 360 train, 120 validate, 120 test",
        "2 tasks",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let train = "train data --hidden 16 --batch-size 32 --lr 0.02 --epochs 15";
    let score = |run: &str| sandbox.json(format!("{run}/summary.json"))["test"]["score"].as_f64().unwrap();
    // the majority is 0.6
    sandbox.ok(&format!("{train} --task away --time-window 10 --fanout 1,10 --out away"));
    assert!(score("away") > 0.95, "{}", score("away"));
    sandbox.ok("predict away --out away-rows.csv");
    let rows = String::from_utf8(sandbox.read("away-rows.csv")).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!((lines.len(), lines[0]), (601, "user,time,class"));
    let truth = String::from_utf8(sandbox.read("away.csv")).unwrap();
    let right = truth.lines().zip(&lines).skip(1).filter(|(truth, line)| {
        let parts: Vec<&str> = truth.split(',').collect();
        **line == format!("{},{},{}", parts[0], parts[1], parts[2])
    });
    assert!(right.count() > 560);
    let some = sandbox.ok("predict away --nodes u7|50,u3|20 --out -");
    assert!(some.lines().nth(1).unwrap().starts_with("u7,50,"), "{some}");
    // a tip depends on the plans of both ends
    sandbox.ok(&format!("{train} --task tip --fanout 2,2 --out tip"));
    assert!(score("tip") > 0.9, "{}", score("tip"));
    let scores = sandbox.ok("eval away");
    assert!(scores.contains("120"), "{scores}");
    // the schema of the options gives the same dataset
    let planned = sandbox.ok(&format!("{VISITS} --dry-run"));
    sandbox.write("schema.toml", planned.split("# schema.toml\n").nth(1).unwrap());
    sandbox.ok("import tables again schema.toml --name data");
    assert!(sandbox.read("data/graphmill.json") == sandbox.read("again/graphmill.json"));
}

#[test]
fn faults_of_targets_name_the_option_or_the_row() {
    let sandbox = Sandbox::new();
    visits(&sandbox);
    let base = "import tables data --nodes users.csv --id user";
    sandbox.write("bad.csv", "user,day,away\nu1,5,no\nu999,5,no\nu2,,no\nu1,5,no\n");
    for (args, status, says) in [
        (format!("{base} --targets away.csv"), 2, "--target-id is missing: name the column of the key"),
        (format!("{base} --targets away.csv"), 2, "--target-label is missing: name the column to predict"),
        (format!("{base} --target-id user"), 2, "--target-id: there is no table of targets; name --targets"),
        (VISITS.replace("column:fold", "weeks"), 2, "write random:60,20,20"),
        (VISITS.replace("--edge-label tip", "--edge-label tips"), 1, "did you mean 'tip'?"),
        (VISITS.replace("--target-label away", "--target-label tip"), 2, "two tasks are called 'tip'"),
        (VISITS.replace("away.csv", "bad.csv"), 1, "there is no column 'fold'"),
        (
            VISITS.replace("away.csv", "bad.csv").replace("--target-split column:fold", ""),
            1,
            "bad.csv: 1 row with a node that is not in the table of 'node': line 3 'u999'; add the nodes",
        ),
        (
            VISITS.replace("away.csv", "bad.csv").replace("--target-split column:fold", ""),
            1,
            "bad.csv: 1 row without a time: line 4; complete the times, or remove these rows",
        ),
    ] {
        let outcome = sandbox.run(&args);
        assert!(outcome.stderr.contains(says), "{args}: {says} is not in: {}", outcome.stderr);
        assert_eq!(outcome.status, Some(status), "{args}: {}", outcome.stderr);
        assert!(!sandbox.path("data").exists(), "{args}");
    }
}

/// Purchases of 40 users of two tastes; users and items share the numbers of their keys.
fn purchases(sandbox: &Sandbox, [user, item]: [&str; 2]) {
    let mut rows = String::from("user,item\n");
    for i in 0..400 {
        let (u, k) = (i % 40, i / 40);
        writeln!(rows, "{user}{u},{item}{}", 2 * (k * 7 % 10) + u % 2).unwrap();
    }
    sandbox.write("purchases.csv", rows);
}

#[test]
fn a_table_of_edges_between_two_kinds_recommends_items_to_users() {
    let sandbox = Sandbox::new();
    purchases(&sandbox, ["", ""]);
    let import =
        "--edges purchases.csv --src user --dst item --src-type user --dst-type item --reverse bought-by";
    let text = sandbox.ok(&format!("import tables shop {import}"));
    assert!(
        text.contains("shop: 60 nodes of 2 types, 800 edges of 2 types") && !text.contains("note"),
        "{text}"
    );
    let plan = sandbox.ok(&format!("import tables other {import} --dry-run"));
    sandbox.write("schema.toml", plan.split_once("# schema.toml\n").unwrap().1);
    assert_eq!(sandbox.ok("import tables other schema.toml"), text.replace("shop:", "other:"));
    sandbox
        .ok("train shop --task user:edge:item --hidden 8 --fanout 5,5 --batch-size 64 --epochs 2 --out run");
    sandbox.ok("predict run --top-k 30 --nodes 1 --out top.csv");
    let top = String::from_utf8(sandbox.read("top.csv")).unwrap();
    let items: Vec<u32> =
        top.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert!(
        items.len() == 10 && items.iter().all(|item| *item < 20 && item % 2 == 0),
        "not bought yet: {top}"
    );

    // a table of one end
    sandbox.write(
        "users.csv",
        "name,age\n".to_owned() + &(0..40).map(|u| format!("{u},{}\n", u % 7)).collect::<String>(),
    );
    let one = "--nodes users.csv --id name --node-type user --edges purchases.csv --src user --dst item \
               --dst-type item";
    let text = sandbox.ok(&format!("import tables aged {one}"));
    assert!(
        text.contains("nodes 'user': 40 nodes, 1 feature") && text.contains("'user:edge:item'"),
        "{text}"
    );
}

#[test]
fn ends_without_a_common_key_are_reported_if_they_have_one_type() {
    let sandbox = Sandbox::new();
    purchases(&sandbox, ["u", "i"]);
    let text = sandbox.ok("import tables shop --edges purchases.csv --src user --dst item");
    let note = "note: no key is in both columns user and item, but their nodes have one type; if these are \
                different kinds, such as users and items, pass --src-type and --dst-type\n";
    assert!(text.contains(note), "{text}");
    purchases(&sandbox, ["", ""]);
    assert!(!sandbox.ok("import tables same --edges purchases.csv --src user --dst item").contains("note"));
    let refused = sandbox.run("import tables x --nodes purchases.csv --id user --src-type user");
    let message = "node type 'user': there is no table of edges; name --edges FILE";
    assert!(refused.status == Some(2) && refused.stderr.contains(message), "{}", refused.stderr);
    let typed = "import tables x --edges purchases.csv --src user --dst item --src-type user --dst-type item";
    for option in ["--label age", "--format age=decimal-comma", "--node-time day"] {
        let refused = sandbox.run(&format!("{typed} {option}"));
        let message = "nodes 'node': without files there are no columns; name the files";
        assert!(refused.status == Some(1) && refused.stderr.contains(message), "{}", refused.stderr);
    }
}

#[test]
fn texts_for_missing_values_are_options() {
    let sandbox = Sandbox::new();
    let age = |i: usize| if i.is_multiple_of(20) { "unknown".into() } else { i.to_string() };
    let rows: String = (0..60).map(|i| format!("n{i};{}\n", age(i))).collect();
    sandbox.write("nodes.csv", format!("id;age\n{rows}"));
    sandbox.write("edges.csv", "a;b;w\nn1;n2;?\nn2;n3;1\n");
    sandbox.write("targets.csv", "who;left\nn1;yes\nn2;no\nn3;later\n");
    let import = "import tables data --nodes nodes.csv --id id --edges edges.csv --src a --dst b \
                  --edge-weight w --targets targets.csv --target-id who --target-label left";
    let refused = sandbox.run(import);
    for part in [
        "nodes.csv: column 'age': 3 of 60 values are not a number",
        "declare these missing (null age=unknown)",
        "edges.csv: column 'w': not every value is one of numbers: line 2 '?'",
    ] {
        assert!(refused.stderr.contains(part), "{part} is not in {}", refused.stderr);
    }
    let features = import.replace("weight", "features");
    let given = "--null age=unknown --null age=n.a. --edge-null w=? --target-null left=later";
    let text = sandbox.ok(&format!("{features} {given}"));
    for part in [
        "age  number, standardized (3 missing)",
        "w  number, standardized (1 missing)",
        "2 classes (1 missing)",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let refused = sandbox.run(&format!("{import} --null age"));
    assert!(
        refused.stderr.contains("--null age: write NAME=TEXT, such as --null age=unknown"),
        "{}",
        refused.stderr
    );
    assert_eq!(refused.status, Some(2));
}

#[test]
fn formats_are_options_and_leaks_are_warnings() {
    let sandbox = Sandbox::new();
    let rows: String = (0..60)
        .map(|i| format!("n{i};{i},5;0{}/0{}/2024;{};k{}\n", i % 9 + 1, i % 9 + 1, i % 2, i % 2))
        .collect();
    sandbox.write("nodes.csv", format!("id;amount;opened;label;kind\n{rows}"));
    let import = "import tables data --nodes nodes.csv --id id --label label";
    let text = sandbox.ok(&format!("{import} --format opened=%d/%m/%Y"));
    for part in [
        "amount  number, standardized, written as decimal-comma\n",
        "opened  date: age, written as %d/%m/%Y\n",
        "warning: column 'kind' determines the label 'label': its values imply it in 100 % of 60 \
         labelled rows, each value by at least 30 rows; if a prediction does not know it, leave it \
         out (column kind=ignore)\n",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let report = sandbox.ok_json(&format!("{import} --force"));
    assert_eq!(report["report"]["nodes"][0]["leaks"][0]["share"], 1.0);
    let opened = &report["report"]["nodes"][0]["columns"][2]["becomes"];
    assert!(opened.as_str().unwrap().contains("state the right one (format opened=%d/%m/%Y)"), "{opened}");
    for (args, status, says) in [
        ("--format opened", 2, "--format opened: write NAME=FORMAT"),
        ("--format opened=american", 2, "format 'american': it is unknown; write decimal-comma"),
        ("--format opened=unix-s --format opened=unix-ms", 2, "the column has two formats"),
        ("--format opened=%d.%m.%Y", 1, "nodes.csv: line 2: column 'opened': '01/01/2024' is not a date"),
        ("--node-time opened", 1, "'01/01/2024' and all other values fit several formats"),
    ] {
        let outcome = sandbox.run(&format!("{} {args}", import.replace("data", "other")));
        assert!(outcome.stderr.contains(says), "{args}: {says} is not in: {}", outcome.stderr);
        assert_eq!(outcome.status, Some(status), "{args}: {}", outcome.stderr);
    }
}
