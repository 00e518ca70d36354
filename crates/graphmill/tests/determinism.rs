//! The same seed gives the same bits for any number of threads.

use crate::common::Sandbox;

/// Returns true if the sampler in `options` takes a fanout.
fn takes_fanout(options: &str) -> bool {
    let sampler =
        options.split("--sampler ").nth(1).map_or("neighbor", |rest| rest.split(' ').next().unwrap());
    ["neighbor", "weighted", "labor", "random-walk"].contains(&sampler)
}

/// Trains with 1, 2 and 3 threads and compares all results and predictions.
fn same_for_any_number_of_threads(options: &str, multi_label: bool) {
    let sandbox = Sandbox::new();
    if multi_label {
        sandbox.multi_label_dataset("data")
    } else if options.contains("--sparse") {
        sandbox.sparse_dataset("data")
    } else {
        sandbox.dataset("data")
    };
    let train = |threads: usize| {
        let run = format!("run{threads}");
        let sized = options.contains("--batch-size") || options.contains("--sampler cluster");
        let batch = if sized { "" } else { "--batch-size 300" };
        let fanout = if takes_fanout(options) { "--fanout 8,5" } else { "" };
        let size = format!("--hidden 32 {fanout} {batch} --epochs 2 --seed 5");
        sandbox.ok(&format!("train data {size} {options} --threads {threads} --out {run}"));
        let predict = |kind: &str| {
            let file = format!("{run}{kind}.npy");
            sandbox.ok(&format!("predict {run} {kind} --threads {threads} --out {file}"));
            sandbox.read(&file)
        };
        (sandbox.results(&run), ["", "--probabilities", "--embeddings"].map(predict))
    };
    let (one, predictions) = train(1);
    for threads in [2, 3] {
        let (other, others) = train(threads);
        let what = format!("{threads} threads against 1, {options}");
        one.assert_same(&other, &what);
        assert!(predictions == others, "predictions: {what}");
    }
}

#[test]
fn sage_on_the_feature_table_in_place() {
    same_for_any_number_of_threads("--fused on", false);
}

#[test]
fn sage_on_gathered_rows() {
    same_for_any_number_of_threads("--fused off --optimizer adamw --weight-decay 0.01", false);
}

#[test]
fn sage_max_pool() {
    same_for_any_number_of_threads("--aggregator max-pool", false);
}

#[test]
fn gcn() {
    same_for_any_number_of_threads("--model gcn --optimizer sgd --lr 0.05 --input-dropout 0.2", false);
}

#[test]
fn pinsage() {
    same_for_any_number_of_threads("--model pinsage", false);
}

#[test]
fn mixhop() {
    // two hops: one layer of order 2, or two layers of order 1
    same_for_any_number_of_threads("--model mixhop --head-layers 1", false);
    same_for_any_number_of_threads("--model mixhop --hops 1 --norm layer", false);
}

#[test]
fn gat_with_attention_dropout() {
    same_for_any_number_of_threads(
        "--model gat --heads 2 --attention-dropout 0.3 --activation elu --lr 0.01",
        false,
    );
}

#[test]
fn gin_with_batch_norm() {
    same_for_any_number_of_threads("--model gin --norm batch", false);
}

#[test]
fn several_labels() {
    same_for_any_number_of_threads("--norm l2 --clip 1", true);
}

#[test]
fn sparse_features() {
    same_for_any_number_of_threads("--sparse on --residual linear --input-dropout 0.3", false);
    same_for_any_number_of_threads("--sparse on --model gcn --batch-size 0 --precision bf16", false);
}

#[test]
fn input_layer_head_and_residual() {
    same_for_any_number_of_threads(
        "--input-layer --head-layers 2 --residual linear --norm layer --schedule cosine --warmup 1",
        false,
    );
}

#[test]
fn all_neighbours() {
    same_for_any_number_of_threads("--sampler full --order sequential", false);
}

#[test]
fn all_training_nodes_at_once() {
    same_for_any_number_of_threads("--batch-size 0", false);
}

#[test]
fn another_seed_gives_other_results() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for seed in [1, 2] {
        sandbox.ok(&format!("train data --hidden 16 --epochs 1 --seed {seed} --out run{seed}"));
    }
    assert_ne!(sandbox.epochs("run1"), sandbox.epochs("run2"));
    assert_ne!(sandbox.read("run1/best.safetensors"), sandbox.read("run2/best.safetensors"));
}

/// Rows that are read in place are those that would be gathered, and are summed in the same order.
#[test]
fn rows_in_place_and_gathered_rows_give_the_same_bits() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for model in ["sage", "gcn", "gin"] {
        let train = |fused: &str| {
            let run = format!("{model}-{fused}");
            let options = "--hidden 32 --fanout 8,5 --batch-size 300 --epochs 3 --dropout 0.2";
            sandbox.ok(&format!("train data --model {model} {options} --fused {fused} --out {run}"));
            sandbox.results(&run)
        };
        let (on, off) = (train("on"), train("off"));
        for (a, b) in on.epochs.iter().zip(&off.epochs) {
            for field in ["sampled_edges", "loss", "valid_score"] {
                assert_eq!(a[field], b[field], "{model}: {field}");
            }
        }
        assert_eq!((&on.best, &on.test), (&off.best, &off.test), "{model}");
        assert!(on.weights == off.weights, "the bytes of the weights: {model}");
    }
}

#[test]
fn subgraphs() {
    for options in [
        "--sampler saint-node --model gcn",
        "--sampler saint-edge --model gin",
        "--sampler saint-rw --inductive",
        "--sampler frontier --frontier-size 50 --model mixhop --hops 1",
        "--sampler forest-fire --sample-coverage 0 --model gat",
        "--sampler cluster --parts 20 --parts-per-batch 4",
    ] {
        // cluster has no batch size: its parts determine it
        let batch = if options.contains("--parts") { "" } else { "--batch-size 700" };
        same_for_any_number_of_threads(&format!("{options} {batch}"), false);
    }
    same_for_any_number_of_threads("--sampler frontier --frontier-size 50 --batch-size 700", true);
}

#[test]
fn samplers_from_seeds() {
    for options in [
        "--sampler weighted --edge-weights inverse-in-degree --replace",
        "--sampler labor --model gin",
        "--sampler random-walk --model pinsage",
    ] {
        same_for_any_number_of_threads(options, false);
    }
}

#[test]
fn strategies() {
    for options in [
        "--strategy pipelined",
        "--strategy pipelined --allocation naive --queue-depth 3",
        "--strategy pipelined --allocation 1,1,2 --model gin --norm batch --dropout 0.3",
        "--strategy factored --devices virtual:2 --dropout 0.3",
        "--strategy factored --devices virtual:3 --num-samplers 1 --cache degree --cache-ratio 0.2",
        "--strategy time-sharing --devices virtual:2",
    ] {
        same_for_any_number_of_threads(options, false);
    }
}

/// All strategies give the same weights if each batch makes an update.
#[test]
fn strategies_agree() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let options = "--hidden 32 --fanout 8,5 --batch-size 200 --epochs 2 --dropout 0.3 --fused off";
    let train = |run: &str, strategy: &str| {
        sandbox.ok(&format!("train data {options} --strategy {strategy} --out {run}"));
        sandbox.results(run)
    };
    let reference = train("sequential", "sequential");
    for (run, strategy) in
        [("a", "pipelined"), ("b", "pipelined --allocation 1,1,1"), ("c", "factored --devices virtual:2")]
    {
        let other = train(run, strategy);
        assert_eq!(reference.best, other.best, "{strategy}");
        assert_eq!(reference.test, other.test, "{strategy}");
        assert!(reference.weights == other.weights, "the bytes of the weights: {strategy}");
    }
}
