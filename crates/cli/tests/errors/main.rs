//! Bad input to every command: one clear error that names the thing and the place, exit status 1
//! (2 for wrong usage), nothing half-written, no panic; with `--json` one document and nothing else.

mod common;

use std::{
    fs,
    io::{Cursor, Write},
    path::Path,
};

use common::{Outcome, Room, copy_dir};
use graphmill_graph::{
    Buffer, Dataset, Labels,
    dataset::checksum::checksum,
    npy::{self, Element},
};
use serde_json::{Value, json};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

const FAILED: i32 = 1;
const USAGE: i32 = 2;

/// Runs the program twice, with and without `--json`, and checks everything an error promises. `absent` must not
/// exist afterwards.
fn refused(room: &Room, args: &str, status: i32, says: &[&str], absent: &str) {
    let check = |outcome: &Outcome, text: &str| {
        assert_eq!(outcome.status, Some(status), "graphmill {args}\n{}{}", outcome.stdout, outcome.stderr);
        for word in says {
            assert!(text.contains(word), "graphmill {args}\n'{word}' is not in: {text}");
        }
        for no in ["panicked", "RUST_BACKTRACE", "\u{1b}"] {
            assert!(!outcome.stderr.contains(no), "graphmill {args}\n{}", outcome.stderr);
        }
        assert!(absent.is_empty() || !room.path(absent).exists(), "graphmill {args}\nleft {absent} behind");
    };
    let outcome = room.run(args);
    assert_eq!(outcome.stdout, "", "graphmill {args}");
    assert!(outcome.stderr.starts_with("error: "), "graphmill {args}\n{}", outcome.stderr);
    let about = outcome.stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(about, 1, "graphmill {args}\n{}", outcome.stderr);
    check(&outcome, &outcome.stderr);

    let outcome = room.run(&format!("{args} --json"));
    let document = outcome.json();
    let fields = document.as_object().expect("an object");
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["error"], "graphmill {args}");
    check(&outcome, document["error"].as_str().expect("a text"));
}

/// A room with the dataset `data` and the finished run `run`.
fn furnished() -> Room {
    let room = Room::new();
    room.dataset("data");
    room.ok("train data --hidden 8 --fanout 3,3 --epochs 1 --out run");
    room
}

// ---------------------------------------------------------------------------------- the command line

#[test]
fn unknown_names_list_the_known_ones() {
    let room = furnished();
    for (flag, known) in [
        ("model", "sage, gcn, gat, gin"),
        ("sampler", "neighbor, full"),
        ("optimizer", "sgd, adam, adamw"),
        ("schedule", "constant, step, cosine, plateau"),
        ("metric", "accuracy, f1-micro, f1-macro, roc-auc, average-precision"),
        ("order", "random, sequential"),
        ("strategy", "sequential"),
        ("norm", "none, batch, layer, l2"),
        ("activation", "relu, elu, leaky-relu, identity"),
        ("residual", "none, identity, linear"),
        ("aggregator", "mean, max-pool"),
        ("devices", "cpu"),
        ("fused", "auto, on or off"),
    ] {
        let args = format!("train data --out new --{flag} nonsense");
        refused(&room, &args, USAGE, &["nonsense", known], "new");
    }
    refused(&room, "import nonsense data new", USAGE, &["npz, graphsaint", "planetoid", "edges"], "new");
    refused(&room, "generate nonsense new", USAGE, &["kronecker, sbm"], "new");
    let args = "import edges data new --metric nonsense";
    refused(&room, args, USAGE, &["nonsense", "accuracy, f1-micro"], "new");
    refused(&room, "import edges data new --normalize nonsense", USAGE, &["none, rows, standard"], "new");
    refused(&room, "import edges data new --split nonsense", USAGE, &["given:K", "random:A,B,C"], "new");
    refused(&room, "nonsense", USAGE, &["unrecognized subcommand 'nonsense'"], "");
    refused(&room, "train data --nonsense 3 --out new", USAGE, &["--nonsense"], "new");
}

#[test]
fn impossible_numbers_name_their_flag() {
    let room = furnished();
    for option in [
        "--epochs 0",
        "--epochs -1",
        "--epochs many",
        "--epochs 1e3",
        "--layers 0",
        "--layers 65",
        "--hidden 0",
        "--hidden -8",
        "--hidden 99999999999",
        "--hidden 99999999999999999999999",
        "--batch-size -1",
        "--batch-size 5000000000",
        "--fanout 0",
        "--fanout -2,5",
        "--fanout 5,,5",
        "--fanout ''",
        "--fanout 5,x",
        "--lr 0",
        "--lr -0.1",
        "--lr nan",
        "--lr inf",
        "--dropout 1",
        "--dropout -0.1",
        "--input-dropout 1.5",
        "--attention-dropout 2",
        "--heads 0",
        "--out-heads 0",
        "--weight-decay -1",
        "--clip -1",
        "--momentum -0.5",
        "--warmup -1",
        "--schedule-factor -1",
        "--min-lr -1",
        "--patience -1",
        "--seed -1",
        "--seed 18446744073709551616",
        "--threads -1",
        "--threads 1000000",
        "--eval-every 0",
        "--eval-chunk 0",
        "--checkpoint-seconds -1",
        "--checkpoint-batches x",
        "--head-layers 17",
        "--input-layer=perhaps",
    ] {
        let flag = option.split([' ', '=']).next().unwrap();
        refused(&room, &format!("train data {option} --out new"), USAGE, &[flag], "new");
    }
    let args = "train data --layers 3 --fanout 5,5 --out new";
    refused(&room, args, USAGE, &["--fanout 5,5 has 2 hops, but --layers is 3"], "new");
    let args = "train data --model gat --heads 3 --hidden 16 --out new";
    refused(&room, args, USAGE, &["--heads 3", "16"], "new");
    let args = "train data --hidden 1000000 --layers 60 --out new";
    refused(&room, args, USAGE, &["--hidden 1000000", "GB of memory"], "new");
    for option in [
        "--nodes 0",
        "--nodes -1",
        "--nodes x",
        "--nodes 99999999999",
        "--classes 0",
        "--degree -1",
        "--degree nan",
        "--degree 1e9",
        "--edges -5",
        "--p-in 2",
        "--feature-dim -1",
        "--feature-dim 99999999999",
        "--signal nan",
        "--label-noise 2",
        "--split 1,1,1",
        "--split 0.5,0.5",
        "--split a,b,c",
        "--seed -1",
        "--degree-exponent 0",
    ] {
        refused(&room, &format!("generate sbm new {option}"), USAGE, &[], "new");
    }
    for option in
        ["--scale 40", "--scale -1", "--initiator 1,2,3", "--initiator 0,0,0,0", "--initiator 1,x,0,1"]
    {
        refused(&room, &format!("generate kronecker new {option}"), USAGE, &[], "new");
    }
    for command in ["info data", "eval run", "predict run --out new"] {
        refused(&room, &format!("{command} --threads -1"), USAGE, &["--threads"], "new");
        refused(&room, &format!("{command} --threads x"), USAGE, &["--threads"], "new");
    }
}

#[test]
fn missing_and_clashing_arguments_are_wrong_usage() {
    let room = furnished();
    for (args, says) in [
        ("info", "<DATASET>"),
        ("eval", "<RUN>"),
        ("report", "<RUN>"),
        ("predict run", "--out"),
        ("import edges data", "<DST>"),
        ("generate sbm", "<DST>"),
        ("train --resume", "--out"),
        ("train data data", "data"),
        ("train data --epochs 1 --epochs 2", "--epochs"),
        ("predict run --out new --embeddings --probabilities", "--probabilities"),
        ("import npz data new --num-nodes 3", "num-nodes"),
        ("import npz data new --compact-ids", "compact-ids"),
    ] {
        refused(&room, args, USAGE, &[says], "new");
    }
}

// ---------------------------------------------------------------------------------------- paths

#[test]
fn paths_that_are_not_what_they_should_be() {
    let room = furnished();
    room.write("file", "text");
    let before = room.results("run");
    for (args, says) in [
        ("train nowhere --out new", vec!["nowhere", "graphmill generate"]),
        ("train file --out new", vec!["file", "a dataset is a directory"]),
        ("train run --out new", vec!["run/graphmill.json", "no Graphmill dataset"]),
        ("train data --out run", vec!["run", "--resume"]),
        ("train data --out data", vec!["data", "there is a dataset here"]),
        ("train data --out file", vec!["file", "directory"]),
        ("train data --out file/new", vec!["file/new"]),
        ("train data --out new --config nowhere.toml", vec!["nowhere.toml: cannot read"]),
        ("train data --out new --config data", vec!["data: cannot read"]),
        ("train --resume --out new", vec!["new", "no run here"]),
        ("train --resume --out data", vec!["data", "no run here"]),
        ("info nowhere", vec!["nowhere"]),
        ("info file", vec!["file", "directory"]),
        ("info run", vec!["run/graphmill.json"]),
        ("eval nowhere", vec!["nowhere", "not a run directory"]),
        ("eval data", vec!["data", "not a run directory"]),
        ("eval run --dataset nowhere", vec!["nowhere"]),
        ("report nowhere", vec!["nowhere", "no run here"]),
        ("report file", vec!["file", "no run here"]),
        ("predict nowhere --out new", vec!["nowhere", "not a run directory"]),
        ("predict run --out new/deeper", vec!["new/deeper"]),
        ("predict run --out data", vec!["data"]),
        ("predict run --out new --nodes nowhere", vec!["nowhere: cannot read"]),
        ("predict run --out new --dataset nowhere", vec!["nowhere"]),
        ("generate sbm data --nodes 100", vec!["data", "--force"]),
        ("generate sbm run --nodes 100 --force", vec!["run", "nothing was written"]),
        ("generate sbm file --nodes 100", vec!["file"]),
        ("generate sbm file/new --nodes 100", vec!["file/new"]),
        ("import edges file data", vec!["data", "--force"]),
        ("import edges file run", vec!["run", "nothing was written"]),
    ] {
        refused(&room, args, FAILED, &says, "new");
    }
    for format in ["npz", "graphsaint", "planetoid", "edges"] {
        refused(&room, &format!("import {format} nowhere new"), FAILED, &["nowhere"], "new");
        refused(&room, &format!("import {format} run new"), FAILED, &["run"], "new");
    }
    before.assert_same(&room.results("run"), "nothing was touched");
    assert_eq!(room.read("file"), b"text");
    room.ok("info data");
}

#[cfg(unix)]
#[test]
fn without_permission_nothing_happens() {
    use std::os::unix::fs::PermissionsExt;
    let room = furnished();
    let permit = |name: &str, mode| {
        fs::set_permissions(room.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(room.path("locked")).unwrap();
    permit("locked", 0o555);
    if fs::write(room.path("locked/probe"), "").is_ok() {
        return; // an administrator may do everything
    }
    permit("data/features.npy", 0o000);
    permit("run/best.safetensors", 0o000);
    for (args, says) in [
        ("train data --out new", "features.npy: cannot open"),
        ("info data", "features.npy: cannot open"),
        ("generate sbm locked/new --nodes 100", "locked/new"),
        ("train --epochs 1 --out locked/new", "locked/new: cannot create"),
    ] {
        refused(&room, args, FAILED, &[says], "locked/new");
    }
    permit("data/features.npy", 0o644);
    refused(&room, "eval run", FAILED, &["best.safetensors"], "");
    permit("run/best.safetensors", 0o644);
    refused(&room, "predict run --out locked/new", FAILED, &["locked/new: cannot write"], "locked/new");
    permit("locked", 0o755);
}

// ------------------------------------------------------------------------------ a dataset on disk

#[test]
fn a_damaged_dataset_names_the_file() {
    let room = furnished();
    let names: Vec<_> = fs::read_dir(room.path("data")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.len() >= 8);
    for name in names {
        let name = name.to_str().unwrap();
        let good = room.read(format!("data/{name}"));
        let bit = |at: usize| {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            bad
        };
        let longer = [&good[..], b"x"].concat();
        let cut = good[..good.len() / 2].to_vec();
        for bad in [cut, vec![], bit(0), bit(good.len() / 2), bit(good.len() - 1), longer] {
            room.write(&format!("data/{name}"), bad);
            refused(&room, "info data", FAILED, &[&format!("data/{name}: ")], "");
        }
        refused(&room, "train data --out new", FAILED, &[&format!("data/{name}: ")], "new");
        refused(&room, "eval run", FAILED, &[&format!("data/{name}: ")], "");
        refused(&room, "predict run --out new", FAILED, &[&format!("data/{name}: ")], "new");
        fs::remove_file(room.path(format!("data/{name}"))).unwrap();
        refused(&room, "info data", FAILED, &[&format!("data/{name}: ")], "");
        room.write(&format!("data/{name}"), good);
    }
    room.ok("info data");
}

/// Changes a file of a dataset and signs it again, as a program that writes the format wrongly would.
fn forge(dir: &Path, file: &str, change: impl FnOnce(&mut Vec<u8>), describe: impl FnOnce(&mut Value)) {
    let path = dir.join(file);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    let manifest = dir.join("graphmill.json");
    let mut described: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    described["files"][file]["checksum"] = json!(checksum(&bytes));
    described["files"][file]["bytes"] = json!(bytes.len());
    describe(&mut described);
    described["checksum"] = json!("0".repeat(32));
    let text = format!("{}\n", serde_json::to_string_pretty(&described).unwrap());
    let (before, after) = text.rsplit_once(&"0".repeat(32)).unwrap();
    fs::write(&manifest, format!("{before}{}{after}", checksum(text.as_bytes()))).unwrap();
}

/// Overwrites the last four bytes.
fn last(value: [u8; 4]) -> impl Fn(&mut Vec<u8>) {
    move |bytes| {
        let end = bytes.len() - 4;
        bytes[end..].copy_from_slice(&value);
    }
}

#[test]
fn a_dataset_that_contradicts_itself_names_the_place() {
    let room = Room::new();
    let data = room.dataset("data");
    let nodes = data.num_nodes();
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let same = || -> Change { Box::new(|_| {}) };
    type Describe = fn(&mut Value);
    let nothing: Describe = |_| {};
    let cases: Vec<(&str, Change, Describe, Vec<&str>)> = vec![
        (
            "indices.npy",
            Box::new(last(u32::MAX.to_le_bytes())),
            nothing,
            vec!["indices.npy", "4294967295", "3000"],
        ),
        ("indices.npy", Box::new(last(3000u32.to_le_bytes())), nothing, vec!["indices.npy", "3000"]),
        ("indptr.npy", Box::new(last([0, 0, 0, 1])), nothing, vec!["ind"]),
        (
            "labels.npy",
            Box::new(last(5i32.to_le_bytes())),
            nothing,
            vec!["labels.npy: contents: the label of node 2999 is 5", "5 classes"],
        ),
        (
            "labels.npy",
            Box::new(last((-2i32).to_le_bytes())),
            nothing,
            vec!["labels.npy", "label of node 2999 is -2"],
        ),
        (
            "features.npy",
            Box::new(last(f32::NAN.to_le_bytes())),
            nothing,
            vec!["features.npy", "feature 23 of node 2999"],
        ),
        (
            "features.npy",
            Box::new(last(f32::INFINITY.to_le_bytes())),
            nothing,
            vec!["features.npy", "feature 23 of node 2999"],
        ),
        ("train.npy", Box::new(last(3000u32.to_le_bytes())), nothing, vec!["train[1499] is node 3000"]),
        (
            "valid.npy",
            Box::new(last(0u32.to_le_bytes())),
            nothing,
            vec!["node 0 is in 'valid' and in 'train'"],
        ),
        ("graphmill.json", same(), |m| m["nodes"] = json!(1u64 << 60), vec!["indptr.npy"]),
        ("graphmill.json", same(), |m| m["nodes"] = json!(u64::MAX), vec!["graphmill.json", "nodes"]),
        ("graphmill.json", same(), |m| m["edges"] = json!(3), vec!["indices.npy"]),
        ("graphmill.json", same(), |m| m["feature_dim"] = json!(1u64 << 62), vec!["features.npy"]),
        ("graphmill.json", same(), |m| m["feature_dim"] = json!(0), vec!["features"]),
        ("graphmill.json", same(), |m| m["classes"] = json!(2), vec!["label of node", "2 classes"]),
        ("graphmill.json", same(), |m| m["multilabel"] = json!(true), vec!["labels.npy"]),
        ("graphmill.json", same(), |m| m["version"] = json!(2), vec!["graphmill.json", "version 2"]),
        ("graphmill.json", same(), |m| m["format"] = json!("gml"), vec!["graphmill.json", "gml"]),
        ("graphmill.json", same(), |m| m["nodes"] = json!(-1), vec!["graphmill.json: line"]),
        ("graphmill.json", same(), |m| m["colour"] = json!("red"), vec!["graphmill.json", "colour"]),
    ];
    assert_eq!(nodes, 3000);
    for (i, (file, change, describe, mut says)) in cases.into_iter().enumerate() {
        let name = format!("bad{i}");
        copy_dir(&room.path("data"), &room.path(&name));
        if file == "graphmill.json" {
            // sign the manifest alone: any array will do
            forge(&room.path(&name), "train.npy", |_| {}, describe);
        } else {
            forge(&room.path(&name), file, change, describe);
        }
        says.push(&name);
        refused(&room, &format!("info {name}"), FAILED, &says, "");
        refused(&room, &format!("train {name} --out new"), FAILED, &says, "new");
    }
}

/// Puts a longer shape into the header of a `.npy` file, in the place of the spaces at its end.
fn declare(bytes: &mut Vec<u8>, old: &str, new: &str) {
    let at = bytes.windows(old.len()).position(|text| text == old.as_bytes()).expect("the old shape");
    bytes.splice(at..at + old.len(), new.bytes());
    let newline = bytes.iter().position(|&b| b == b'\n').unwrap();
    bytes.drain(newline - (new.len() - old.len())..newline);
}

#[test]
fn a_header_with_a_huge_shape_is_refused_at_once() {
    let room = Room::new();
    room.dataset("data");
    let lie = |bytes: &mut Vec<u8>| declare(bytes, "(3000,)", "(9223372036854775807,)");
    forge(&room.path("data"), "labels.npy", lie, |_| {});
    refused(&room, "info data", FAILED, &["data/labels.npy"], "");

    edge_list(&room);
    fs::remove_file(room.path("edges/features.csv")).unwrap();
    for huge in
        ["(9223372036854775807, 2)", "(9223372036854775807, 9223372036854775807)", "(1000000000, 1000)"]
    {
        npy::write(room.path("edges/features.npy"), &[0f32; 6], &[3, 2]).unwrap();
        let mut bytes = room.read("edges/features.npy");
        declare(&mut bytes, "(3, 2)", huge);
        room.write("edges/features.npy", &bytes);
        refused(&room, "import edges edges new", FAILED, &["edges/features.npy"], "new");
    }
}

#[test]
fn a_dataset_that_cannot_be_trained_on_says_what_it_lacks() {
    let room = Room::new();
    let base = room.dataset("data");
    room.ok("train data --hidden 8 --epochs 1 --out run");
    let save = |name: &str, change: fn(&mut Dataset)| {
        let mut dataset = base.clone();
        dataset.name = name.to_string();
        change(&mut dataset);
        dataset.save(room.path(name)).unwrap();
    };
    save("unsplit", |d| d.split = Default::default());
    save("bare", |d| d.features = Default::default());
    save("unlabelled", |d| {
        let class: Buffer<i32> = vec![-1; d.num_nodes()].into();
        d.labels = Labels::Single { class, classes: 0 };
        d.split = Default::default();
    });
    save("narrow", |d| {
        let values: Vec<f32> = vec![1.0; d.num_nodes() * 7];
        d.features = graphmill_graph::Features::f32(7, values);
    });
    for (name, says) in [
        ("unsplit", ["unsplit", "no training nodes", "--split"]),
        ("bare", ["bare", "no features", "import it with"]),
        ("unlabelled", ["unlabelled", "no labels", "import it with"]),
    ] {
        refused(&room, &format!("train {name} --out new"), FAILED, &says, "new");
    }
    for command in ["eval run", "predict run --out new"] {
        let says = ["run/best.safetensors", "shape"];
        refused(&room, &format!("{command} --dataset narrow"), FAILED, &says, "new");
        refused(&room, &format!("{command} --dataset bare"), FAILED, &["bare", "no features"], "new");
    }
}

// ----------------------------------------------------------------------------------- training

#[test]
fn a_loss_that_is_not_finite_ends_the_run() {
    let room = furnished();
    let args = "train data --lr 1e30 --optimizer sgd --epochs 5 --hidden 8 --quiet --out";
    for json in ["", " --json"] {
        let outcome = room.run(&format!("{args} new{}{json}", json.len()));
        assert_eq!(outcome.status, Some(FAILED), "{}", outcome.stderr);
        for word in ["the loss is", "epoch", "batch", "--lr"] {
            assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
        }
        assert!(!outcome.stderr.contains("panicked"));
    }
}

#[test]
fn a_configuration_file_names_the_place() {
    let room = furnished();
    for (text, says) in [
        ("hiden = 8\n", ["c.toml: hiden", "no such option", "hidden"]),
        ("epochs = 1\nhidden = \n", ["c.toml: line 2", "", ""]),
        ("hidden = \"wide\"\n", ["c.toml: hidden", "'wide'", ""]),
        ("fanout = [5, 0]\n", ["c.toml: fanout", "'0'", ""]),
        ("[model]\nname = \"sage\"\n", ["c.toml: model", "", ""]),
        ("lr = nan\n", ["c.toml: lr", "", ""]),
        ("epochs = -1\n", ["c.toml: epochs", "'-1'", ""]),
        ("\u{0}", ["c.toml: line 1", "", ""]),
    ] {
        room.write("c.toml", text);
        refused(&room, "train data --config c.toml --out new", FAILED, &says, "new");
    }
    room.write("c.toml", [0xff, 0xfe]);
    refused(&room, "train data --config c.toml --out new", FAILED, &["c.toml"], "new");
    room.write("c.toml", "model = \"nope\"\n");
    refused(&room, "train data --config c.toml --out new", USAGE, &["nope", "sage, gcn"], "new");
}

#[test]
fn a_damaged_run_names_the_file() {
    let room = furnished();
    let bad = |name: &str, file: &str, change: fn(&mut Vec<u8>)| {
        copy_dir(&room.path("run"), &room.path(name));
        let mut bytes = room.read(format!("run/{file}"));
        change(&mut bytes);
        room.write(&format!("{name}/{file}"), bytes);
    };
    bad("cut", "best.safetensors", |bytes| bytes.truncate(60));
    bad("empty", "best.safetensors", Vec::clear);
    bad("huge", "best.safetensors", |bytes| bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes()));
    bad("text", "best.safetensors", |bytes| *bytes = b"this is no file of weights".to_vec());
    bad("long", "best.safetensors", |bytes| bytes.push(0));
    for run in ["cut", "empty", "huge", "text", "long"] {
        let says = format!("{run}/best.safetensors: ");
        refused(&room, &format!("eval {run}"), FAILED, &[&says], "");
        refused(&room, &format!("predict {run} --out new"), FAILED, &[&says], "new");
    }
    bad("wider", "config.toml", |bytes| {
        *bytes = String::from_utf8(bytes.clone()).unwrap().replace("hidden = 8", "hidden = 9").into();
    });
    refused(&room, "eval wider", FAILED, &["wider/best.safetensors", "shape"], "");
    bad("unknown", "config.toml", |bytes| {
        *bytes = String::from_utf8(bytes.clone()).unwrap().replace("\"sage\"", "\"sago\"").into();
    });
    refused(&room, "eval unknown", FAILED, &["unknown/config.toml", "sago", "sage, gcn"], "");
    bad("torn", "config.toml", |bytes| {
        bytes.truncate(bytes.len() - 1 - "checkpoint_seconds = 60.0".len() / 2)
    });
    refused(&room, "eval torn", FAILED, &["torn/config.toml"], "");
    bad("summary", "summary.json", |bytes| bytes.truncate(bytes.len() / 2));
    refused(&room, "report summary", FAILED, &["summary/summary.json: line", "--resume"], "");
    fs::remove_file(room.path("cut/best.safetensors")).unwrap();
    refused(&room, "eval cut", FAILED, &["cut/best.safetensors", "no best model yet"], "");
    fs::remove_dir_all(room.path("cut/checkpoint")).unwrap();
    refused(&room, "eval cut --last", FAILED, &["cut", "no checkpoint yet"], "");
}

#[test]
fn a_list_of_nodes_names_the_line() {
    let room = furnished();
    npy::write(room.path("out.npy"), &[0i64, 3000], &[2]).unwrap();
    npy::write(room.path("negative.npy"), &[0i64, -1], &[2]).unwrap();
    npy::write(room.path("real.npy"), &[0.5f32], &[1]).unwrap();
    room.write("out.txt", "0\n1\n3000\n");
    room.write("negative.txt", "# ids\n-1\n");
    room.write("words.txt", "0\nzero\n");
    room.write("cut.npy", &room.read("out.npy")[..100]);
    for (file, says) in [
        ("out.npy", ["out.npy: entry 1", "node 3000", "3000 nodes"]),
        ("negative.npy", ["negative.npy: entry 1", "node -1", ""]),
        ("real.npy", ["real.npy", "0.5", ""]),
        ("out.txt", ["out.txt: line 3", "node 3000", "3000 nodes"]),
        ("negative.txt", ["negative.txt: line 2", "node -1", ""]),
        ("words.txt", ["words.txt: line 2", "'zero'", ""]),
        ("cut.npy", ["cut.npy", "", ""]),
        ("nowhere.npy", ["nowhere.npy: cannot open", "", ""]),
    ] {
        refused(&room, &format!("predict run --nodes {file} --out new"), FAILED, &says, "new");
    }
}

// ------------------------------------------------------------------------------------- imports

/// Three nodes as an edge list with everything beside it.
fn edge_list(room: &Room) {
    room.write("edges/edges.csv", "0,1\n1,2\n2,0\n");
    room.write("edges/features.csv", "1,0\n0,1\n1,1\n");
    room.write("edges/labels.csv", "0\n1\n1\n");
    room.write("edges/train.txt", "0\n");
    room.write("edges/valid.txt", "1\n");
    room.write("edges/test.txt", "2\n");
}

#[test]
fn an_edge_list_names_the_line() {
    let room = Room::new();
    edge_list(&room);
    room.ok("import edges edges good");
    let cases: &[(&str, &str, &[&str])] = &[
        ("edges.csv", "0,1\n1\n", &["edges.csv: line 2"]),
        ("edges.csv", "0,1\nx,2\n", &["edges.csv: line 2", "'x'"]),
        ("edges.csv", "0,1\n-1,2\n", &["edges.csv: line 2", "-1"]),
        ("edges.csv", "0,1\n1,3\n", &["edges.csv: line 2", "3 nodes"]),
        ("edges.csv", "0,1\n1,99999999999999999999\n", &["edges.csv: line 2"]),
        ("features.csv", "1,0\n0\n1,1\n", &["features.csv: line 2", "the first row has 2"]),
        ("features.csv", "1,0\n0,nan\n1,1\n", &["features.csv: line 2", "'nan'"]),
        ("features.csv", "1,0\n0,inf\n1,1\n", &["features.csv: line 2", "'inf'"]),
        ("features.csv", "1,0\n0,one\n1,1\n", &["features.csv: line 2", "'one'"]),
        ("features.csv", "1,0\n0,1\n", &["labels.csv", "3 nodes", "2"]),
        ("labels.csv", "0\n1\n", &["labels.csv", "2 nodes", "3"]),
        ("labels.csv", "0\n1.5\n0\n", &["labels.csv", "1.5"]),
        ("labels.csv", "0\n-7\n0\n", &["labels.csv", "-7"]),
        ("labels.csv", "0\n1,0\n0\n", &["labels.csv: line 2"]),
        ("labels.csv", "0\n999999999999\n0\n", &["labels.csv", "999999999999"]),
        ("train.txt", "3\n", &["train.txt", "3"]),
        ("train.txt", "-1\n", &["train.txt: line 1", "-1"]),
        ("train.txt", "0\nx\n", &["train.txt: line 2", "'x'"]),
        ("train.txt", "", &["train.txt", "no rows"]),
        ("train.txt", "1\n", &["node 1 is in 'valid' and in 'train'"]),
    ];
    for (file, text, says) in cases {
        edge_list(&room);
        room.write(&format!("edges/{file}"), text);
        refused(&room, "import edges edges new", FAILED, says, "new");
    }
    for file in ["features", "labels"] {
        edge_list(&room);
        fs::remove_file(room.path(format!("edges/{file}.csv"))).unwrap();
        npy::write(room.path("array.npy"), &[1f32, 2.0], &[2]).unwrap();
        let whole = room.read("array.npy");
        for bytes in [&whole[..40], &whole[..whole.len() - 1], b"no array", b""] {
            room.write(&format!("edges/{file}.npy"), bytes);
            refused(&room, "import edges edges new", FAILED, &[&format!("{file}.npy: ")], "new");
        }
        fs::remove_file(room.path(format!("edges/{file}.npy"))).unwrap();
    }
    edge_list(&room);
    let args = "import edges edges new --split random:0.1,0.1,0.1";
    refused(&room, args, FAILED, &["0.1", "leave none to train on"], "new");
    refused(&room, "import edges edges new --split given:4", FAILED, &["given:4"], "new");
    refused(&room, "import edges edges new --num-nodes 2", FAILED, &["2"], "new");
}

/// An array as the member of a `.npz`.
fn member<T: Element>(room: &Room, name: &str, shape: &[usize], data: &[T]) -> (String, Vec<u8>) {
    npy::write(room.path("member.npy"), data, shape).unwrap();
    (format!("{name}.npy"), room.read("member.npy"))
}

/// A `.npz` archive.
fn archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file(name, stored).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A cycle of three nodes as CSR, the names of its arrays prefixed.
fn cycle(
    room: &Room,
    prefix: &str,
    indices: [i32; 3],
    indptr: [i32; 4],
    shape: [i64; 2],
) -> Vec<(String, Vec<u8>)> {
    let name = |part: &str| format!("{prefix}{part}");
    vec![
        member(room, &name("data"), &[3], &[1f32, 1.0, 1.0]),
        member(room, &name("indices"), &[3], &indices),
        member(room, &name("indptr"), &[4], &indptr),
        member(room, &name("shape"), &[2], &shape),
    ]
}

#[test]
fn an_npz_names_the_member() {
    let room = Room::new();
    let with = |indices, indptr, shape, labels: &[i64], features: &[f32]| {
        let mut members = cycle(&room, "adj_", indices, indptr, shape);
        members.push(member(&room, "labels", &[labels.len()], labels));
        members.push(member(&room, "attr_matrix", &[features.len() / 2, 2], features));
        archive(&members)
    };
    let (to, starts, square) = ([1, 2, 0], [0, 1, 2, 3], [3i64, 3]);
    let (labels, features) = ([0i64, 1, 1], [1f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let good = with(to, starts, square, &labels, &features);
    room.write("a.npz", &good);
    room.ok("import npz a.npz good --split random:0.4,0.3,0.3");
    let nan = [1f32, 0.0, 0.0, f32::NAN, 1.0, 1.0];
    let cases: Vec<(Vec<u8>, &[&str])> = vec![
        (with([1, 3, 0], starts, square, &labels, &features), &["adj_indices", "3"]),
        (with([1, -1, 0], starts, square, &labels, &features), &["adj_indices", "-1"]),
        (with(to, [0, 2, 1, 3], square, &labels, &features), &["adj_indptr"]),
        (with(to, [0, 1, 2, 9], square, &labels, &features), &["adj_indptr"]),
        (with(to, starts, [3, 4], &labels, &features), &["adj_shape"]),
        (with(to, starts, [i64::MAX, i64::MAX], &labels, &features), &["adj_"]),
        (with(to, starts, [-3, -3], &labels, &features), &["adj_shape"]),
        (with(to, starts, square, &labels[..2], &features), &["labels", "2 rows for 3 nodes"]),
        (with(to, starts, square, &[0, -5, 1], &features), &["labels", "-5"]),
        (with(to, starts, square, &[0, i64::MAX, 1], &features), &["labels", "9223372036854775807"]),
        (with(to, starts, square, &labels, &features[..4]), &["attr_matrix"]),
        (with(to, starts, square, &labels, &nan), &["attr_matrix", "node 1", "NaN"]),
        (archive(&cycle(&room, "matrix_", to, starts, square)), &["adj_indptr", "matrix_indptr"]),
        (archive(&cycle(&room, "adj_", to, starts, square)[..3]), &["adj_shape"]),
        (b"PK no archive".to_vec(), &["zip"]),
        (vec![], &["zip"]),
        (good[..good.len() / 2].to_vec(), &["zip"]),
    ];
    for (bytes, says) in cases {
        room.write("a.npz", &bytes);
        let says = [&["a.npz"], says].concat();
        refused(&room, "import npz a.npz new", FAILED, &says, "new");
    }
    // a flipped bit is an error, or it has changed nothing that is read
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        room.write("a.npz", &bad);
        let outcome = room.run("import npz a.npz maybe --force");
        assert!(matches!(outcome.status, Some(0 | 1)), "byte {at}: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("panicked"), "byte {at}: {}", outcome.stderr);
    }
}

#[test]
fn a_graphsaint_directory_names_the_file() {
    let room = Room::new();
    let furnish = || {
        room.write("saint/adj_full.npz", archive(&cycle(&room, "", [1, 2, 0], [0, 1, 2, 3], [3, 3])));
        npy::write(room.path("saint/feats.npy"), &[1f64, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).unwrap();
        room.write("saint/class_map.json", r#"{"0": 1, "1": 0, "2": 1}"#);
        room.write("saint/role.json", r#"{"tr": [0], "va": [1], "te": [2]}"#);
    };
    furnish();
    room.ok("import graphsaint saint good");
    let cases: &[(&str, &[u8], &[&str])] = &[
        ("adj_full.npz", b"PK", &["adj_full.npz"]),
        ("feats.npy", b"\x93NUMPY\x09\x00", &["feats.npy"]),
        ("feats.npy", b"not an array", &["feats.npy"]),
        ("class_map.json", b"{\"0\": 1", &["class_map.json: line 1"]),
        ("class_map.json", b"{\"7\": 1}", &["class_map.json: line 1", "node 7", "3 nodes"]),
        ("class_map.json", b"{\"0\": -4}", &["class_map.json", "-4"]),
        ("class_map.json", b"\xff", &["class_map.json: line 1"]),
        ("role.json", b"{\"tr\": [3]}", &["role.json", "node 3"]),
        ("role.json", b"{\"tr\": []}", &["role.json", "empty"]),
        ("role.json", b"[]", &["role.json: line 1"]),
        ("role.json", b"{\"tr\": [0], \"va\": [0]}", &["node 0 is in 'valid' and in 'train'"]),
    ];
    for (file, bytes, says) in cases {
        furnish();
        room.write(&format!("saint/{file}"), bytes);
        refused(&room, "import graphsaint saint new", FAILED, says, "new");
    }
    for (shape, data) in [([2, 2], vec![1f32; 4]), ([3, 1], vec![1.0, f32::NAN, 0.0])] {
        furnish();
        npy::write(room.path("saint/feats.npy"), &data, &shape).unwrap();
        refused(&room, "import graphsaint saint new", FAILED, &["feats.npy"], "new");
    }
    for file in ["adj_full.npz", "feats.npy", "class_map.json", "role.json"] {
        furnish();
        fs::remove_file(room.path(format!("saint/{file}"))).unwrap();
        refused(&room, "import graphsaint saint new", FAILED, &[file, "cannot open"], "new");
    }
}

#[test]
fn a_planetoid_directory_names_the_file() {
    let room = Room::new();
    let parts = ["x", "tx", "allx", "y", "ty", "ally", "graph"];
    for bytes in
        [&b"no pickle"[..], b"", b"\x80\x02.", b"\x80\x02}q\x00(K\x00]q\x01K", b"(lp0\nI99999999999\n"]
    {
        for part in parts {
            room.write(&format!("planetoid/ind.toy.{part}"), bytes);
        }
        room.write("planetoid/ind.toy.test.index", "x\n");
        refused(&room, "import planetoid planetoid new", FAILED, &["planetoid/ind.toy."], "new");
    }
}
