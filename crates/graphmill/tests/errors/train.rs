//! `graphmill train`.

use graphmill_core::{Buffer, Labels};
use graphmill_data::Dataset;

use super::{FAILED, USAGE, common::Sandbox, refused, sandbox_with_run};

#[test]
fn unknown_names_list_the_known_ones() {
    let sandbox = sandbox_with_run();
    for (flag, known) in [
        ("model", "sage, gcn, gat, gatv2, gin, mixhop, pinsage"),
        ("sampler", "neighbor, full"),
        ("optimizer", "sgd, adam, adamw"),
        ("schedule", "constant, step, cosine, plateau"),
        ("metric", "accuracy, f1-micro, f1-macro, roc-auc, average-precision"),
        ("order", "random, sequential"),
        ("strategy", "sequential"),
        ("norm", "auto, none, batch, layer or l2"),
        ("activation", "relu, elu, leaky-relu or identity"),
        ("residual", "none, identity or linear"),
        ("aggregator", "mean or max-pool"),
        ("devices", "cpu"),
        ("fused", "auto, on or off"),
        ("sparse", "auto, on or off"),
    ] {
        let args = format!("train data --out new --{flag} nonsense");
        refused(&sandbox, &args, USAGE, &["nonsense", known], "new");
    }
    refused(&sandbox, "train data --nonsense 3 --out new", USAGE, &["--nonsense"], "new");
}

#[test]
fn options_that_sparse_rows_do_not_support_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.sparse_dataset("data");
    for (option, says) in [
        ("--fused on", &["--fused on", "--sparse off"][..]),
        ("--feature-precision bf16", &["--feature-precision bf16", "--sparse off"]),
    ] {
        refused(&sandbox, &format!("train data --sparse on {option} --out new"), USAGE, says, "new");
        // --sparse auto takes the dense table instead
        sandbox
            .ok(&format!("train data {option} --hidden 32 --epochs 1 --out run{}", option.replace(' ', "")));
    }
    sandbox.ok("train data --sparse on --fanout 3 --epochs 1 --out run");
    let whole = sandbox.ok("predict run --embeddings --out rows.npy");
    assert!(whole.contains("24"), "{whole}");
    assert_eq!(sandbox.floats("rows.npy").0, [3000, 24]);
}

#[test]
fn rows_that_cannot_be_read_in_place_are_refused_with_the_reason() {
    let sandbox = sandbox_with_run();
    for (options, says) in [
        ("--input-dropout 0.3", "--fused on: --input-dropout changes a batch's copies"),
        ("--input-layer", "--fused on: --input-layer transforms the feature rows first"),
    ] {
        let refused = sandbox.run(&format!("train data --fused on {options} --epochs 1 --out new"));
        assert!(refused.status == Some(USAGE) && refused.stderr.contains(says), "{}", refused.stderr);
        assert!(refused.stderr.contains("use --fused auto"), "{}", refused.stderr);
    }
}

#[test]
fn invalid_sampler_options_are_refused() {
    let sandbox = sandbox_with_run();
    for (options, says) in [
        ("frontier --fused on", &["--fused on: --sampler frontier does not use it", "neighbor"][..]),
        ("frontier --sample-coverage -1", &["--sample-coverage -1"]),
        ("frontier --frontier-size 0", &["--frontier-size 0: a number from 1 to"]),
        ("random-walk --restart-prob 1.5", &["--restart-prob 1.5: a number from 0 to 1"]),
        ("random-walk --num-walks 0", &["--num-walks 0: a number from 1 to"]),
        ("weighted --edge-weights nonsense", &["--edge-weights nonsense", "stored"]),
        ("weighted --weighted-index nonsense", &["--weighted-index nonsense", "alias"]),
        ("frontier --frontier-index lot", &["--frontier-index lot", "dashboard"]),
        (
            "frontier --frontier-index dashboard --dashboard-slack 1",
            &["--dashboard-slack 1: a number from 1.01 to 64"],
        ),
        ("frontier --estimator best", &["--estimator best", "unbiased"]),
        ("forest-fire --burn-prob 1", &["--burn-prob 1: a probability"]),
        ("cluster --parts 0", &["--parts 0: at least 1"]),
        ("cluster --parts 3 --parts-per-batch 4", &["--sampler cluster", "4"]),
    ] {
        refused(&sandbox, &format!("train data --sampler {options} --out new"), USAGE, says, "new");
    }
    // sizes beyond the graph take all nodes
    for sampler in ["saint-node", "saint-edge", "saint-rw", "frontier", "forest-fire"] {
        let frontier = if sampler == "frontier" { "--frontier-size 40000" } else { "" };
        let size = format!("--batch-size 100000 {frontier} --sample-coverage 1");
        sandbox.ok(&format!("train data --sampler {sampler} {size} --hidden 8 --epochs 1 --out {sampler}"));
    }
}

#[test]
fn impossible_numbers_name_their_flag() {
    let sandbox = sandbox_with_run();
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
        "--momentum 1",
        "--momentum 1 --optimizer sgd",
        "--schedule step --schedule-factor 0",
        "--schedule-factor 1.5 --schedule plateau",
        "--min-lr 1 --schedule cosine",
        "--warmup 20 --schedule cosine",
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
        refused(&sandbox, &format!("train data {option} --out new"), USAGE, &[flag], "new");
    }
    let args = "train data --layers 3 --fanout 5,5 --out new";
    refused(&sandbox, args, USAGE, &["--fanout 5,5 has 2 hops, but --layers is 3"], "new");
    let args = "train data --model gat --heads 3 --hidden 16 --out new";
    refused(&sandbox, args, USAGE, &["--heads 3", "16"], "new");
    let args = "train data --schedule cosine --warmup 12 --out new";
    refused(&sandbox, args, USAGE, &["--warmup 12", "10 epochs"], "new");
    let args = "train data --hidden 1000000 --layers 60 --out new";
    refused(&sandbox, args, USAGE, &["--hidden 1000000", "TB of memory"], "new");
}

#[test]
fn missing_and_clashing_arguments_are_wrong_usage() {
    let sandbox = sandbox_with_run();
    for (args, says) in [
        ("train --resume", "--out"),
        ("train data data", "data"),
        ("train data --epochs 1 --epochs 2", "--epochs"),
    ] {
        refused(&sandbox, args, USAGE, &[says], "new");
    }
}

#[test]
fn wrong_paths_are_refused() {
    let sandbox = sandbox_with_run();
    sandbox.write("file", "text");
    let before = sandbox.results("run");
    for (args, says) in [
        ("nowhere --out new", vec!["nowhere", "graphmill generate"]),
        ("file --out new", vec!["file", "a dataset is a directory"]),
        ("run --out new", vec!["run/graphmill.json", "not a Graphmill dataset"]),
        ("data --out run", vec!["run", "--resume"]),
        ("data --out data", vec!["data", "there is a dataset here"]),
        ("data --out file", vec!["file", "directory"]),
        ("data --out file/new", vec!["file/new"]),
        ("data --out new --config nowhere.toml", vec!["nowhere.toml: cannot read"]),
        ("data --out new --config data", vec!["data: cannot read"]),
        ("--resume --out new", vec!["new", "no run here"]),
        ("--resume --out data", vec!["data", "no run here"]),
    ] {
        refused(&sandbox, &format!("train {args}"), FAILED, &says, "new");
    }
    before.assert_same(&sandbox.results("run"), "the run is unchanged");
    assert_eq!(sandbox.read("file"), b"text");
    sandbox.ok("info data");
}

#[cfg(unix)]
#[test]
fn missing_permissions_leave_everything_unchanged() {
    let Some(sandbox) = super::sandbox_with_locked_dir() else { return };
    let args = "train --epochs 1 --out locked/new";
    refused(&sandbox, args, FAILED, &["locked/new: cannot create"], "locked/new");
    super::set_mode(&sandbox, "data/features.npy", 0o000);
    refused(&sandbox, "train data --out new", FAILED, &["features.npy: cannot open"], "new");
    super::set_mode(&sandbox, "locked", 0o755);
}

#[test]
fn untrainable_datasets_are_refused_with_the_missing_part() {
    let sandbox = Sandbox::new();
    let base = sandbox.dataset("data");
    let save = |name: &str, change: fn(&mut Dataset)| {
        let mut dataset = base.clone();
        dataset.name = name.to_string();
        change(&mut dataset);
        dataset.save(sandbox.path(name)).unwrap();
    };
    save("unsplit", |d| d.split = Default::default());
    save("bare", |d| d.features = Default::default());
    save("unlabelled", |d| {
        let class: Buffer<i32> = vec![-1; d.num_nodes()].into();
        d.labels = Labels::Single { class, classes: 0 };
        d.split = Default::default();
    });
    for (name, says) in [
        ("unsplit", ["unsplit", "no training nodes", "--split"]),
        ("bare", ["bare", "no features", "import it with"]),
        ("unlabelled", ["unlabelled", "no labels", "import it with"]),
    ] {
        refused(&sandbox, &format!("train {name} --out new"), FAILED, &says, "new");
    }
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run() {
    let sandbox = sandbox_with_run();
    let args = "train data --lr 1e30 --optimizer sgd --epochs 5 --hidden 8 --quiet --out";
    for json in ["", " --json"] {
        let outcome = sandbox.run(&format!("{args} new{}{json}", json.len()));
        assert_eq!(outcome.status, Some(FAILED), "{}", outcome.stderr);
        for word in ["the loss is", "epoch", "batch", "--lr"] {
            assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
        }
        assert!(!outcome.stderr.contains("panicked"));
    }
}

#[test]
fn errors_of_a_configuration_file_name_the_position() {
    let sandbox = sandbox_with_run();
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
        sandbox.write("c.toml", text);
        refused(&sandbox, "train data --config c.toml --out new", FAILED, &says, "new");
    }
    sandbox.write("c.toml", [0xff, 0xfe]);
    refused(&sandbox, "train data --config c.toml --out new", FAILED, &["c.toml"], "new");
    sandbox.write("c.toml", "model = \"nope\"\n");
    refused(&sandbox, "train data --config c.toml --out new", USAGE, &["nope", "sage, gcn"], "new");
}
