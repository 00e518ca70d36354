//! Table of the commands under test, and the inputs that they share.

use super::client::Question;

/// Command under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// Arguments, separated by spaces.
    pub(super) arguments: &'static str,
    /// Commands that write further inputs.
    pub(super) inputs: &'static [&'static str],
    /// File or directory that the command writes, if it writes any.
    pub(super) target: Option<&'static str>,
    /// Command that writes the state of the target that the command replaces.
    pub(super) earlier: Option<&'static str>,
    /// Way to continue a run or a sweep.
    pub(super) resume: Option<Resume>,
    /// Questions to the service that the command starts; empty for other commands.
    pub(super) questions: &'static [Question],
    /// True if the command examines the machine, so that a limit may be what it reports.
    pub(super) examines: bool,
    /// Optional part of the program without which the command does nothing.
    pub(super) part: Option<&'static str>,
    /// Attacks of the short form.
    pub(super) short: &'static [Attacks],
}

/// Command that continues the work, if a file exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resume {
    pub(super) marker: &'static str,
    pub(super) arguments: &'static str,
}

/// Group of attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attacks {
    /// A system call fails.
    Calls,
    /// The process is killed at a system call.
    Kills,
    /// An allocation fails.
    Allocations,
}

use Attacks::{Allocations, Calls, Kills};

/// Text files that every scenario may read.
pub(super) const FILES: &[(&str, &str)] = &[
    ("edges.txt", "0 1\n1 2\n2 3\n3 0\n"),
    ("nodes.csv", "id,kind,size\nx,a,1\ny,b,2\nz,a,\n"),
    ("links.csv", "a,b\nx,y\ny,z\nz,x\n"),
    ("more-nodes.csv", "id,size\nu,3\nv,\n"),
    ("more-links.csv", "a,b\nu,x\nz,u\nv,y\n"),
    ("grown-nodes.csv", "id,kind,size\nu,a,3\nv,b,\n"),
    ("targets.csv", "id,day,left\nx,1,no\ny,2,yes\nz,3,no\nx,4,yes\n"),
    ("ml_visits.csv", VISITS),
    ("wiki/tgbl-wiki_edgelist.csv", WIKI),
    // pickles: {(1, 5, 70): [3, 6]} and {(2, 3, 80): [4, 5], (0, 3, 90): [5]}
    ("wiki/tgbl-wiki_val_ns.pkl", "}((K\x01K\x05KFt](K\x03K\x06eu."),
    ("wiki/tgbl-wiki_test_ns.pkl", "}((K\x02K\x03KPt](K\x04K\x05e(K\x00K\x03KZt](K\x05eu."),
    ("triples/train.txt", TRIPLES),
    ("triples/valid.txt", "g\ts\tf\n"),
    ("triples/test.txt", "l\ts\tk\n"),
    // the tables are written by commands
    ("relbench/manifest.json", RELBENCH),
    ("relbench/db/rows.txt", "0\n1\n2\n3\n4\n5\n6\n7\n"),
    ("relbench/tasks/score/manifest.json", SCORE),
    ("relbench/tasks/score/train.txt", "0\n1\n2\n3\n"),
    ("relbench/tasks/score/val.txt", "4\n5\n"),
    ("relbench/tasks/score/test.txt", "6\n7\n"),
];

/// Keys of a database of RelBench.
const RELBENCH: &str = "{\"tables\": {\"users\": {\"pkey\": \"node\"}, \
                        \"visits\": {\"fkeys\": {\"node\": \"users\"}}}}";

/// Task of a database of RelBench.
const SCORE: &str = "{\"task_type\": \"regression\", \"entity_table\": \"users\", \
                     \"entity_col\": \"node\", \"target_col\": \"embedding_0\"}";

/// Stream of events.
const VISITS: &str = "u,i,ts,label,idx\n1,5,10,0,1\n2,6,20,0,2\n3,7,30,0,3\n4,5,40,0,4\n1,6,50,0,5\n\
                      2,7,60,0,6\n3,5,70,0,7\n4,6,80,0,8\n1,7,90,0,9\n2,5,100,0,10\n3,6,110,0,11\n\
                      4,7,120,0,12\n1,5,130,0,13\n2,6,140,0,14\n3,7,150,0,15\n4,5,160,0,16\n\
                      1,6,170,0,17\n2,7,180,0,18\n3,5,190,0,19\n4,6,200,0,20\n";

/// Events of the Temporal Graph Benchmark.
const WIKI: &str = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n\
                    0,0,0.0,0,0.5,1\n1,1,10.0,0,0,2\n2,2,20.0,1,1,3\n0,1,30.0,0,0,4\n1,0,40.0,0,0,5\n\
                    2,1,50.0,0,0,6\n0,2,60.0,0,0,7\n1,2,70.0,0,0,8\n2,0,80.0,0,0,9\n0,0,90.5,0,0,10\n";

/// Edges of a knowledge graph.
const TRIPLES: &str = "a\tr\tb\nb\tr\tc\nc\tr\td\nd\tr\te\ne\tr\tf\nf\tr\tg\ng\tr\th\n\
                       h\tr\ti\ni\tr\tj\nj\tr\tk\nk\tr\tl\nl\tr\tm\nm\tr\tn\nn\tr\to\n\
                       o\tr\tp\np\tr\ta\nb\ts\ta\nc\ts\tb\nd\ts\tc\ne\ts\td\nf\ts\te\n";

/// Commands that write the inputs of every scenario: dataset `data` and run `trained`.
pub(super) const COMMON: &[&str] = &[
    "generate sbm data --nodes 300 --degree 6 --classes 4 --feature-dim 8",
    "train data --epochs 1 --hidden 8 --fanout 5,5 --out trained",
];

const TABLES: &str = "import tables tables --nodes nodes.csv --id id --label kind --edges links.csv --src a \
                      --dst b --split random:0.4,0.3,0.3";

const LONGER: &str = "append tables longer --nodes grown-nodes.csv --edges more-links.csv";

const TYPED: &[&str] = &["generate typed typed --nodes 200 --feature-dim 4"];

const FACTS: &[&str] = &["import triples triples facts"];

/// Commands that write the tables of the directory `relbench`.
const DATABASE: &[&str] = &[
    "embed trained --out relbench/db/users.parquet",
    "predict trained --nodes relbench/db/rows.txt --out relbench/db/visits.parquet",
    "embed trained --nodes relbench/tasks/score/train.txt --out relbench/tasks/score/train.parquet",
    "embed trained --nodes relbench/tasks/score/val.txt --out relbench/tasks/score/val.parquet",
    "embed trained --nodes relbench/tasks/score/test.txt --out relbench/tasks/score/test.parquet",
];

/// Questions for known nodes, drawn neighbours and new feature rows, and a reload between them.
const OF_NODES: &[Question] = &[
    Question { path: "/healthz", body: "" },
    Question { path: "/v1/predict", body: "{\"ids\": [0, 7]}" },
    Question { path: "/v1/predict", body: "{\"ids\": [3], \"seed\": 1}" },
    Question { path: "/v1/reload", body: "{}" },
    Question {
        path: "/v1/predict",
        body: "{\"new\": {\"features\": [[1, 0, 0, 0, 0, 0, 0, 1]], \"edges\": [[0, 300], [300, 7]]}}",
    },
];

/// Questions for a node by its key, and for a new row of the imported tables, which is joined in a
/// temporary directory.
const OF_TABLES: &[Question] = &[
    Question { path: "/v1/predict", body: "{\"keys\": [\"x\"]}" },
    Question {
        path: "/v1/predict",
        body: "{\"new\": {\"rows\": [{\"id\": \"u\", \"size\": 3}], \
               \"edges\": [{\"a\": \"u\", \"b\": \"x\"}]}}",
    },
];

pub(super) const SCENARIOS: &[Scenario] = &[
    reads("info data").short(&[Calls]),
    writes("generate sbm new --nodes 300 --degree 6 --classes 4 --feature-dim 8", "new")
        .short(&[Calls, Allocations]),
    writes("generate sbm new --nodes 200 --degree 6 --classes 4 --feature-dim 8 --force", "new")
        .over("generate sbm new --nodes 100 --degree 4 --classes 2 --feature-dim 4"),
    writes("generate typed new --nodes 200 --feature-dim 4", "new"),
    writes("import edges edges.txt new", "new"),
    writes("import edges edges.txt new --force", "new")
        .over("generate sbm new --nodes 100 --degree 4 --classes 2 --feature-dim 4")
        .short(&[Kills]),
    writes(
        "import tables new --nodes nodes.csv --id id --label kind --edges links.csv --src a --dst b",
        "new",
    )
    .short(&[Calls]),
    writes(
        "import tables new --nodes nodes.csv --id id --edges links.csv --src a --dst b --targets targets.csv \
         --target-id id --target-time day --target-label left",
        "new",
    ),
    writes("append tables new --nodes grown-nodes.csv --edges more-links.csv", "new").after(&[TABLES]),
    writes("append tables new --edges more-links.csv --dangling add --force", "new")
        .over("append tables new --nodes grown-nodes.csv")
        .after(&[TABLES]),
    writes("import events ml_visits.csv new", "new"),
    writes("import tgb wiki new", "new"),
    writes("import triples triples new", "new"),
    writes("import relbench relbench new", "new").after(DATABASE),
    writes("export data npz new.npz", "new.npz"),
    writes("export data csv new", "new"),
    writes("partition data new --parts 2", "new"),
    writes("partition typed new --parts 2", "new").after(TYPED),
    writes("partition longer new --like parts", "new").after(&[
        TABLES,
        "partition tables parts --method ldg --parts 2",
        LONGER,
    ]),
    writes("reorder data new --by degree", "new"),
    writes("reorder typed new --by degree", "new").after(TYPED),
    reads("hotness data --fanout 5,5"),
    reads("plan data --hardware laptop --hidden 8 --fanout 5,5"),
    reads("datasets"),
    Scenario { examines: true, ..reads("doctor") }.short(&[Calls]),
    // a page that a killed run left incomplete is replaced by the next one
    reads("man pages"),
    writes("predict trained --out new.csv", "new.csv"),
    writes("predict trained --out new.csv --force", "new.csv")
        .over("predict trained --probabilities --out new.csv")
        .short(&[Kills]),
    writes("predict trained --out new.parquet", "new.parquet"),
    writes("predict run --on more-nodes.csv --edges more-links.csv --out new.csv --force", "new.csv")
        .over("predict run --probabilities --out new.csv")
        .after(&[TABLES, "train tables --epochs 1 --hidden 8 --fanout 5,5 --out run"]),
    writes("embed trained --out new.npy", "new.npy"),
    writes("export-model trained new.onnx --to onnx", "new.onnx"),
    writes("export-model trained new.safetensors --to safetensors", "new.safetensors"),
    writes("export-model trained new --to pyg", "new").short(&[Kills]),
    reads("eval trained"),
    writes("report trained", "trained/report.html").over("report trained"),
    writes("runs trained --out new.html", "new.html"),
    run("train data --epochs 2 --hidden 8 --fanout 5,5 --batch-size 50 --checkpoint-batches 1 --out new")
        .short(&[Calls, Kills, Allocations]),
    run("train data --epochs 1 --hidden 8 --fanout 5,5 --batch-size 50 --host-budget 8K --out new"),
    run("train data --epochs 1 --hidden 8 --fanout 5,5 --batch-size 50 --trace --tensorboard --out new"),
    run("train data --epochs 1 --hidden 8 --fanout 5,5 --start-from trained --out new"),
    run("train typed --epochs 1 --hidden 8 --fanout 3,3 --batch-size 50 --checkpoint-batches 1 --out new")
        .after(TYPED),
    run("train data --task link --epochs 1 --hidden 8 --fanout 3,3 --batch-size 300 --out new"),
    run("train events --model tgn --epochs 1 --hidden 8 --time-dim 4 --batch-size 5 --out new")
        .after(&["import events ml_visits.csv events"]),
    run("train events --model tgn --epochs 1 --hidden 8 --time-dim 4 --batch-size 5 --host-budget 2000 \
         --checkpoint-batches 2 --out new")
    .after(&["import events ml_visits.csv events"]),
    run("train facts --model embedding --decoder distmult --epochs 1 --hidden 8 --batch-size 4 --out new")
        .after(FACTS),
    run("train facts --model embedding --decoder distmult --epochs 1 --hidden 8 --batch-size 4 \
         --host-budget 1200 --buckets 4 --out new")
    .after(FACTS),
    Scenario {
        resume: Some(Resume { marker: "new/sweep.json", arguments: "sweep --resume --out new" }),
        ..writes("sweep data --try lr=0.01,0.1 --epochs 1 --hidden 8 --fanout 3,3 --out new", "new")
    },
    serves("serve trained --listen 127.0.0.1:0 --threads 2 --timeout 5", OF_NODES).short(&[Allocations]),
    serves("serve run --listen 127.0.0.1:0 --threads 2 --timeout 5", OF_TABLES)
        .after(&[TABLES, "train tables --epochs 1 --hidden 8 --fanout 5,5 --out run"]),
];

/// Command that writes no files.
const fn reads(arguments: &'static str) -> Scenario {
    Scenario {
        arguments,
        inputs: &[],
        target: None,
        earlier: None,
        resume: None,
        questions: &[],
        examines: false,
        part: None,
        short: &[],
    }
}

/// Service that a client asks and ends.
const fn serves(arguments: &'static str, questions: &'static [Question]) -> Scenario {
    Scenario { questions, part: Some("serve"), ..reads(arguments) }
}

/// Command that writes `target`.
const fn writes(arguments: &'static str, target: &'static str) -> Scenario {
    Scenario { target: Some(target), ..reads(arguments) }
}

/// Training run with the directory `new`.
const fn run(arguments: &'static str) -> Scenario {
    let resume = Resume { marker: "new/config.toml", arguments: "train --resume --out new" };
    Scenario { resume: Some(resume), ..writes(arguments, "new") }
}

impl Scenario {
    /// Adds commands that write inputs.
    const fn after(self, inputs: &'static [&'static str]) -> Self {
        Self { inputs, ..self }
    }

    /// Replaces what the command `earlier` writes.
    const fn over(self, earlier: &'static str) -> Self {
        Self { earlier: Some(earlier), ..self }
    }

    /// Takes part in the short form, with these attacks.
    const fn short(self, attacks: &'static [Attacks]) -> Self {
        Self { short: attacks, ..self }
    }
}
