//! Best candidates of new nodes, by runs on links: `predict --on --top-k`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::{common::Sandbox, links::fails};

/// Members and films of the tables; those from these numbers on are new.
const COUNTS: [usize; 2] = [70, 24];
const NEW: [usize; 2] = [60, 22];

/// Writes a table three times: whole, the known rows (`known-`) and the new rows (`new-`).
fn write(sandbox: &Sandbox, file: &str, header: &str, rows: &[(bool, String)]) {
    for (prefix, is_in) in [("", [true, true]), ("known-", [true, false]), ("new-", [false, true])] {
        let mut text = format!("{header}\n");
        for (is_new, row) in rows {
            if is_in[usize::from(*is_new)] {
                writeln!(text, "{row}").unwrap();
            }
        }
        sandbox.write(&format!("{prefix}{file}"), text);
    }
}

/// Writes members with features, and edges between them. Edges of new members come from known ones.
fn members(sandbox: &Sandbox) {
    let rows = (0..COUNTS[0]).map(|i| (i >= NEW[0], format!("m{i},{},{}", i % 3, i * 7 % 11)));
    write(sandbox, "members.csv", "id,kind,age", &rows.collect::<Vec<_>>());
    let pairs = (0..COUNTS[0]).flat_map(|i| (1..5).map(move |k| ((i * 5 + k * k * 7) % NEW[0], i)));
    let edges = pairs.filter(|(u, v)| u != v).map(|(u, v)| (v >= NEW[0], format!("m{u},m{v}")));
    write(sandbox, "follows.csv", "from,to", &edges.collect::<Vec<_>>());
}

/// Scores of pairs of a table by their keys.
fn scores(text: &str) -> BTreeMap<(String, String), f32> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        ((fields[0].to_string(), fields[1].to_string()), fields[2].parse().unwrap())
    };
    text.lines().skip(1).map(row).collect()
}

/// Compares scores by their keys, of which there are at least some.
fn assert_near(found: &BTreeMap<(String, String), f32>, expected: &BTreeMap<(String, String), f32>) {
    let keys = |of: &BTreeMap<(String, String), f32>| of.keys().cloned().collect::<Vec<_>>();
    assert!(found.len() > 100);
    assert_eq!(keys(found), keys(expected));
    for (pair, score) in found {
        assert!((score - expected[pair]).abs() < 1e-4, "{pair:?}: {score} {}", expected[pair]);
    }
}

/// Returns true if a key is that of a new node.
fn is_new(key: &str) -> bool {
    let (kind, number) = key.split_at(1);
    number.parse::<usize>().unwrap() >= NEW[usize::from(kind == "f")]
}

#[test]
fn new_nodes_of_one_type_get_the_candidates_that_they_have_in_the_dataset() {
    let sandbox = Sandbox::new();
    members(&sandbox);
    let import = "--nodes known-members.csv --edges known-follows.csv --id id --src from --dst to";
    sandbox.ok(&format!("import tables data {import}"));
    let whole = import.replace("known-", "");
    sandbox.ok(&format!("import tables whole --like data {whole}"));
    for (run, model) in [("run", "sage --decoder mlp"), ("gat", "gat --decoder distmult"), ("gcn", "gcn")] {
        sandbox.ok(&format!(
            "train data --task link --model {model} --epochs 2 --hidden 8 --fanout 4,4 --batch-size 64 --out \
             {run}"
        ));
        for end in ["", "--sources"] {
            let predict = |how: &str| format!("predict {run} --all-edges --top-k 100 {end} {how} --out -");
            let mut expected = scores(&sandbox.ok(&predict("--dataset whole")));
            expected.retain(|(own, other), _| is_new(own) && !is_new(other));
            let on = "--on new-members.csv --edges new-follows.csv";
            let found = scores(&sandbox.ok(&predict(on)));
            assert_near(&found, &expected);
            // neighbours matter
            assert_ne!(scores(&sandbox.ok(&predict("--on new-members.csv"))), found, "{model} {end}");
        }
    }
    let known = sandbox.ok("predict run --top-k 3 --on new-members.csv --out best.parquet");
    assert!(known.starts_with("best.parquet: 30 x 1 links of new nodes with 0 edges"), "{known}");
    let document =
        sandbox.ok_json("predict run --top-k 3 --on new-members.csv --edges follows.csv --out b.csv");
    assert!(document["rows"] == 30 && document["new_edges"] == 40, "{document}");
    for (args, why) in [
        ("predict run --on new-members.csv --out x.csv", "pass --top-k K"),
        ("predict run --on new-members.csv --top-k 3 --out x.npy", "write .csv, .json, .jsonl or .parquet"),
        ("predict run --on known-members.csv --top-k 3 --out x.csv", "60 of 60 rows have a key"),
        ("predict run --on new-members.csv --top-k 3 --relation r --out x.csv", "--relation"),
    ] {
        let message = fails(&sandbox, args);
        assert!(message.contains(why), "{args}: {message}");
    }
    assert!(!sandbox.path("x.csv").exists());
}

const SCHEMA: &str = "
[[nodes]]
type = 'member'
files = '{}members.csv'
id = 'id'

[[nodes]]
type = 'film'
files = '{}films.csv'
id = 'id'

[[edges]]
type = 'likes'
files = '{}likes.csv'
source = 'member'
destination = 'film'
src = 'from'
dst = 'to'

[[edges]]
type = 'seen'
files = '{}seen.csv'
source = 'film'
destination = 'member'
src = 'film'
dst = 'member'
";

/// Writes members, films, the films that members like, and those that they saw.
fn films(sandbox: &Sandbox) {
    members(sandbox);
    let rows = (0..COUNTS[1]).map(|i| (i >= NEW[1], format!("f{i},{}", i * 3 % 7)));
    write(sandbox, "films.csv", "id,length", &rows.collect::<Vec<_>>());
    let pairs =
        |step: usize| (0..COUNTS[0]).flat_map(move |i| (1..4).map(move |k| (i, (i * step + k * 5) % NEW[1])));
    let likes = pairs(3).map(|(i, j)| (i >= NEW[0], format!("m{i},f{j}")));
    write(sandbox, "likes.csv", "from,to", &likes.collect::<Vec<_>>());
    let seen = pairs(5).map(|(i, j)| (i >= NEW[0], format!("f{j},m{i}")));
    write(sandbox, "seen.csv", "film,member", &seen.collect::<Vec<_>>());
    sandbox.write("known.toml", SCHEMA.replace("{}", "known-"));
    sandbox.write("whole.toml", SCHEMA.replace("{}", "").replace("'likes.csv'", "'known-likes.csv'"));
}

#[test]
fn new_nodes_of_several_types_get_the_candidates_that_they_have_in_the_dataset() {
    let sandbox = Sandbox::new();
    films(&sandbox);
    sandbox.ok("import tables data known.toml");
    sandbox.ok("import tables whole whole.toml --like data");
    for (run, model) in [("run", "rsage"), ("rgat", "rgat --decoder mlp"), ("hgt", "hgt --decoder distmult")]
    {
        sandbox.ok(&format!(
            "train data --task member:likes:film --model {model} --epochs 2 --hidden 8 --fanout 4,4 \
             --batch-size 64 --out {run}"
        ));
        let predict = |how: &str| format!("predict {run} --all-edges --top-k 100 {how} --out -");
        let mut expected = scores(&sandbox.ok(&predict("--dataset whole")));
        expected.retain(|(own, other), _| is_new(own) && !is_new(other));
        let on = "--on member=new-members.csv --edges seen=new-seen.csv";
        let found = scores(&sandbox.ok(&predict(on)));
        assert_near(&found, &expected);
        // films that the new members like already are left out
        let likes = format!("{on} --edges likes=new-likes.csv");
        let left = scores(&sandbox.ok(&predict(&likes)));
        let liked = String::from_utf8(sandbox.read("new-likes.csv")).unwrap();
        let liked: BTreeSet<String> = liked.lines().skip(1).map(String::from).collect();
        let others = found.keys().filter(|(own, other)| !liked.contains(&format!("{own},{other}")));
        assert!(others.eq(left.keys()) && left.len() + liked.len() == found.len(), "{model}");
        // members for a new film
        let films = scores(&sandbox.ok(&predict("--sources --on film=new-films.csv")));
        let all =
            (NEW[1]..COUNTS[1]).flat_map(|j| (0..NEW[0]).map(move |i| (format!("f{j}"), format!("m{i}"))));
        assert!(films.keys().cloned().collect::<BTreeSet<_>>() == all.collect(), "{model}");
    }
    let message = fails(&sandbox, "predict run --on film=new-films.csv --top-k 3 --out x.csv");
    assert!(message.contains("the run predicts nodes of 'member'"), "{message}");
    sandbox.ok("train data --task member:likes:film --model embedding --epochs 1 --hidden 8 --out table");
    let message = fails(&sandbox, "predict table --on member=new-members.csv --top-k 3 --out x.csv");
    assert!(message.contains("has a row for each node of training and none for a new one"), "{message}");
}
