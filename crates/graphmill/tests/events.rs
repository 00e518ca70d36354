//! Streams of events on the command line: import, training, scores, refusals.

use crate::common::Sandbox;

#[test]
fn a_stream_is_imported_trained_and_scored() {
    let sandbox = Sandbox::new();
    let mut text = String::from("u,i,ts,label,idx\n");
    for e in 1..=400u32 {
        let user = 1 + (e * 7919 + e / 40) % 12;
        text += &format!("{user},{},{},0,{e}\n", 13 + (user * 3 + e / 100) % 8, e * 60);
    }
    sandbox.write("ml_visits.csv", text);
    sandbox.ok("import events ml_visits.csv visits");
    let options = "--model tgn --hidden 8 --time-dim 4 --epochs 2 --lr 0.01 --batch-size 50";
    let summary = sandbox.ok_json(&format!("train visits {options} --out run"));
    let config = &summary["config"];
    assert_eq!((&config["fanout"], &config["time_draw"]), (&vec![10].into(), &"last".into()));
    assert_eq!(
        (&summary["test"]["metric"], &summary["dataset"]["test"]),
        (&"average-precision".into(), &60.into())
    );
    let scores = sandbox.ok_json("eval run");
    assert_eq!(scores["test"], summary["test"]["score"]);
    assert!(scores["parts"][1]["scores"]["auc"].is_number(), "{scores}");
    let best = sandbox.ok("predict run --at 20000 --top-k 2 --nodes 1,2 --out -");
    assert_eq!((best.lines().next(), best.lines().count()), (Some("source,candidate,score"), 5), "{best}");
    let items: Vec<&str> = best.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    assert!(items.iter().all(|item| (13..21).contains(&item.parse().unwrap())), "keys of items: {best}");
    let written = sandbox.ok_json("embed run --at 20000 --node-type item --out items.npy");
    assert_eq!((&written["rows"], &written["cols"]), (&8.into(), &8.into()));
    ratings_are_predicted(&sandbox);
    sandbox.ok("generate sbm graph --nodes 200 --classes 2 --feature-dim 4");
    sandbox.ok("train graph --epochs 1 --fanout 3 --layers 1 --out other");
    for (args, why) in [
        ("predict run --out rows.csv", "pass --top-k K for the K best candidates of each node"),
        ("predict run --top-k 3 --at noon --out x.csv", "--at noon: pass an integer in the units"),
        ("predict run --top-k 3 --all-edges --out x.csv", "--all-edges: a run on events reads those"),
        ("predict run --top-k 3 --propagate label-propagation --out x.csv", "leave it out"),
        ("predict run --on ml_visits.csv --top-k 2 --out x.csv", "the run learned a stream of events"),
        ("predict rated --at 9 --out x.csv", "events are predicted at their own times"),
        ("predict rated --top-k 2 --out x.csv", "ranks no destinations; leave it out"),
        ("predict rated --original-ids --out x.csv", "events have no ids of a reordered dataset"),
        ("predict rated --propagate label-propagation --out x.csv", "leave it out"),
        ("embed run --node-type shop --out x.npy", "use user or item"),
        ("predict other --at 5 --out x.csv", "--at 5: dataset graph: no node and no edge has a time"),
        ("embed other --at 5 --out x.npy", "--at 5: dataset graph: no node and no edge has a time"),
        ("train visits --model tgn --order random", "events are learned in the order of their times"),
        (
            "train --model tgat",
            "import one with graphmill import events, temporal, or tables with --edge-time",
        ),
    ] {
        let outcome = sandbox.run(args);
        assert!(outcome.status != Some(0) && outcome.stderr.contains(why), "{args}: {}", outcome.stderr);
    }
}

/// `{(source, destination, time): [node, ...], ...}` as Python writes its own numbers and lists in
/// protocol 2.
fn pickled(lists: &[([u32; 3], Vec<u32>)]) -> Vec<u8> {
    let number = |x: &u32| [&b"J"[..], &x.to_le_bytes()].concat();
    let all = |numbers: &[u32]| numbers.iter().flat_map(number).collect::<Vec<u8>>();
    let entry = |(key, list): &([u32; 3], Vec<u32>)| [&all(key)[..], b"\x87](", &all(list), b"e"].concat();
    let entries: Vec<u8> = lists.iter().flat_map(entry).collect();
    [&b"\x80\x02}("[..], &entries, b"u."].concat()
}

#[test]
fn sets_of_the_temporal_graph_benchmark_report_their_mrr() {
    let sandbox = Sandbox::new();
    let mut log = String::from("user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n");
    let mut lists = Vec::new();
    for e in 0..200u32 {
        let (user, item) = (e * 7 % 12, (e * 7 % 12 + e / 50) % 8);
        log += &format!("{user},{item},{}.0,0,{}.5,1\n", e * 60, e % 3);
        // items follow the 12 users; lists differ in length
        let others = (1..3 + e % 3).map(|k| 12 + (item + k) % 8);
        lists.push(([user, 12 + item, e * 60], others.collect()));
    }
    sandbox.write("wiki/tgbl-wiki_edgelist_v2.csv", log);
    let text = sandbox.ok("import tgb wiki bare");
    assert!(text.contains("there is no tgbl-wiki_val_ns_v2.pkl"), "{text}");
    sandbox.write("wiki/tgbl-wiki_val_ns_v2.pkl", pickled(&lists[140..170]));
    sandbox.write("wiki/tgbl-wiki_test_ns_v2.pkl", pickled(&lists[170..]));
    sandbox.ok("import tgb wiki data");
    sandbox.ok("import tgb wiki small --memory 64M");
    assert!(sandbox.read("data/graphmill.json") == sandbox.read("small/graphmill.json"));
    let options = "--model tgn --hidden 8 --time-dim 4 --epochs 2 --lr 0.01 --batch-size 50";
    let summary = sandbox.ok_json(&format!("train data {options} --out run"));
    assert_eq!((&summary["test"]["metric"], &summary["dataset"]["test"]), (&"mrr".into(), &30.into()));
    let scores = sandbox.ok_json("eval run");
    assert_eq!(scores["test"], summary["test"]["score"]);
    let mrr = scores["test"].as_f64().unwrap();
    assert!((0.2..=1.0).contains(&mrr) && scores["parts"][1]["scores"]["hits@1"].is_number(), "{scores}");
    let summary = sandbox.ok_json(&format!("train bare {options} --out bare-run"));
    assert_eq!(summary["test"]["metric"], "average-precision");
}

/// Ratings that `import temporal` reads are learned, and predicted in every format.
fn ratings_are_predicted(sandbox: &Sandbox) {
    let mut text = String::new();
    for e in 1..=300u32 {
        let user = (e * 7919) % 12;
        text += &format!("{user} {} {} {}\n", 12 + (e * 31) % 7, (user % 5) + e % 3, e * 60);
    }
    sandbox.write("ratings.txt", text);
    sandbox.ok("import temporal ratings.txt ratings");
    let options = "--model tgn --hidden 8 --time-dim 4 --batch-size 50";
    let summary =
        sandbox.ok_json(&format!("train ratings --task links-rating {options} --epochs 1 --out rated"));
    let page = String::from_utf8(sandbox.read("rated/report.html")).unwrap();
    assert!(page.contains("<h2>Residuals</h2>") && page.contains("Metrics and residuals"), "{page}");
    let scores = sandbox.ok_json("eval rated");
    assert_eq!(scores["parts"][1]["diagnostics"], summary["diagnostics"][2], "{scores}");
    assert!(sandbox.ok("eval rated").contains("(prediction minus target)"));
    let ranked = "--loss quantile --quantile 0.7 --metric spearman --patience 1 --out ranked";
    let ranked = sandbox.ok_json(&format!("train ratings --task links-rating {options} --epochs 2 {ranked}"));
    assert_eq!(ranked["test"]["metric"], "spearman");
    let written = sandbox.ok_json("predict rated --out rated.csv");
    let shape = serde_json::json!([300, 1, "values"]);
    assert_eq!(serde_json::json!([written["rows"], written["cols"], written["kind"]]), shape);
    let table = String::from_utf8(sandbox.read("rated.csv")).unwrap();
    assert!(table.starts_with("source,destination,time,value\n"), "{table}");
    let times = table.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().parse::<u32>().unwrap());
    assert!(times.eq((1..=300).map(|e| e * 60)), "{table}");
    sandbox.ok("predict rated --out rated.npy");
    let of_column = |line: &str| line.rsplit(',').next().unwrap().parse::<f32>().unwrap();
    let values: Vec<f32> = table.lines().skip(1).map(of_column).collect();
    assert_eq!(sandbox.floats("rated.npy"), (vec![300], values));
    sandbox.ok("predict rated --out rated.parquet");
    let key = table.lines().nth(1).unwrap().split(',').next().unwrap().to_string();
    let own = sandbox.ok(&format!("predict rated --nodes {key} --out -"));
    assert!(own.lines().skip(1).all(|line| line.starts_with(&format!("{key},"))), "{own}");
    assert!(own.lines().skip(1).all(|line| table.contains(line)), "{own}");
    assert_eq!(sandbox.ok_json("eval rated")["test"], summary["test"]["score"]);
}

/// A table of edges with a time column is a stream of events.
#[test]
fn edges_of_tables_with_times_are_events() {
    let sandbox = Sandbox::new();
    let (mut visits, mut members) = (String::from("who,where,when,paid\n"), String::from("id,age\n"));
    for e in 1..=400u32 {
        let user = (e * 7919 + e / 40) % 12;
        let (shop, day) = ((user * 3 + e / 100) % 8, 1 + e / 16);
        visits += &format!("u{user},s{shop},2024-01-{day:02}T{:02}:00:00Z,{}\n", e % 16, e % 7);
    }
    (0..12).for_each(|u| members += &format!("u{u},{}\n", 20 + u));
    sandbox.write("visits.csv", visits);
    sandbox.write("members.csv", members);
    sandbox.write(
        "town.toml",
        "[[nodes]]\ntype = 'member'\nfiles = 'members.csv'\nid = 'id'\n\n[[nodes]]\ntype = 'shop'\n\n\
         [[edges]]\ntype = 'visits'\nfiles = 'visits.csv'\nsource = 'member'\ndestination = 'shop'\n\
         src = 'who'\ndst = 'where'\ntime = 'when'\nfeatures = ['paid']\nreverse = 'visited-by'\n",
    );
    sandbox.ok("import tables town town.toml");
    let options = "--model tgn --hidden 8 --time-dim 4 --epochs 2 --lr 0.01 --batch-size 50";
    let summary = sandbox.ok_json(&format!("train town {options} --out run"));
    let count = |part: &str| summary["dataset"][part].as_u64().unwrap();
    assert_eq!([count("train"), count("valid"), count("test")], [280, 60, 60]);
    let named = sandbox.ok_json(&format!("train town --task member:visits:shop {options} --out named"));
    assert_eq!(named["test"]["score"], summary["test"]["score"]);
    assert_eq!(sandbox.ok_json("eval run")["test"], summary["test"]["score"]);
    let best = sandbox.ok("predict run --top-k 2 --nodes u1,u7 --out -");
    assert!(best.lines().count() == 5 && best.lines().skip(1).all(|line| line.contains(",s")), "{best}");
    let outcome = sandbox.run("train town --task visits --model tgn --out x");
    assert!(outcome.stderr.contains("or an edge type: member:visits:shop"), "{}", outcome.stderr);
}
