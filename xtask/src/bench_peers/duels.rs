//! The comparisons: arguments of both sides, and the figures in their reports.

use super::options::{Options, Peer, imports};

/// Comparison of one peer process with ours.
pub(super) struct Duel {
    pub(super) peer: Peer,
    /// Arguments of `peers.py`.
    pub(super) theirs: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// Figure of both sides.
pub(super) struct Row {
    pub(super) what: String,
    pub(super) threads: usize,
    pub(super) unit: &'static str,
    /// Fields that identify the peer's line.
    pub(super) line: Vec<(&'static str, String)>,
    /// Field of that line with the figure.
    pub(super) figure: &'static str,
    /// Arguments of `graphmill bench`.
    pub(super) ours: Vec<String>,
    /// Our cases.
    pub(super) cases: Vec<String>,
    pub(super) take: Take,
}

/// Derivation of our figure from our cases.
#[derive(Clone, Copy)]
pub(super) enum Take {
    /// Median of the case in this unit: higher is better.
    Rate(&'static str),
    /// Number of items divided by the seconds of the case: higher is better.
    Per(f64),
    /// Total seconds of all cases, times this: lower is better.
    Seconds(f64),
}

/// Every comparison.
///
/// Not all of them are like for like: [`NOTES`](super::NOTES) lists the differences.
pub(super) fn duels(options: &Options) -> Vec<Duel> {
    let mut duels = Vec::new();
    for &threads in &options.threads {
        for peer in [Peer::Dgl, Peer::Pyg] {
            duels.push(sampling(options, peer, threads));
        }
        for (workload, model, fanout) in [
            ("w1", "sage", "10,25"),
            ("w1", "gcn", "15,10,5"),
            ("w1", "gat", "10,25"),
            ("w2", "sage", "10,25"),
        ] {
            duels.push(epoch(options, workload, model, fanout, threads));
        }
        duels.push(products(options, threads));
        duels.push(gather(options, threads));
        for dim in [100, 256] {
            duels.push(aggregation(options, dim, threads));
        }
    }
    duels
}

/// Splits a command line into words.
fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_string).collect()
}

/// Measuring time of the peer.
fn patience(options: &Options) -> &'static str {
    if options.quick { "--runs 1 --seconds 0.05" } else { "--runs 5 --seconds 0.6" }
}

/// Runs of each of our cases.
fn repeat(options: &Options, runs: usize) -> usize {
    if options.quick { 1 } else { runs }
}

/// Samplers of one peer.
///
/// DGL has 64-bit ids, the default allocator and, with one thread, an unfused path. The row
/// `pyg-ts` is torch-sparse's sampler, which runs on one thread.
fn sampling(options: &Options, peer: Peer, threads: usize) -> Duel {
    let system = match peer {
        Peer::Dgl => "dgl",
        // Without pyg-lib PyG samples with torch-sparse.
        _ if options.python.get(&peer).is_some_and(|python| imports(python, "import pyg_lib")) => "pyg",
        _ => "pyg-ts",
    };
    let sizes = [("15,10,5", 1024), ("15,10,5", 8000), ("10,25", 1024), ("10,25", 8000)];
    let row = |(fanout, batch): (&str, usize)| Row {
        what: format!("sample {fanout}, batch {batch}, against {system}"),
        threads,
        unit: "seeds/s",
        line: vec![("fanout", fanout.into()), ("batch", batch.to_string())],
        figure: "/seeds_per_s/median",
        ours: split(&format!(
            "sample w1 --fanout {fanout} --batch-size {batch} --threads {threads} --repeat {}",
            repeat(options, 5)
        )),
        cases: vec!["relabelled, one batch per thread".into()],
        take: Take::Rate("seeds/s"),
    };
    let theirs = format!(
        "sample --system {system} --workload w1 --fanout 15,10,5:10,25 --batch 1024,8000 --threads {threads} \
         {}",
        patience(options)
    );
    Duel { peer, theirs: split(&theirs), rows: sizes.map(row).into() }
}

/// DGL's epoch, extrapolated from the mean of some batches, and a whole epoch of ours, both without
/// scoring.
fn epoch(options: &Options, workload: &str, model: &str, fanout: &str, threads: usize) -> Duel {
    let batches = if options.quick { 5 } else { 40 };
    let activation = if model == "gat" { "--activation elu" } else { "" };
    let row = Row {
        what: format!("epoch {model} {fanout} on {workload}"),
        threads,
        unit: "s",
        line: Vec::new(),
        figure: "/epoch_s",
        ours: split(&format!(
            "epoch {workload} --model {model} --fanout {fanout} {activation} --threads {threads} --repeat {}",
            repeat(options, 2)
        )),
        cases: vec![format!("{model} {fanout} hidden 256: epoch")],
        take: Take::Seconds(1.0),
    };
    let theirs = format!(
        "epoch --system dgl --workload {workload} --model {model} --fanout {fanout} --threads {threads} \
         --malloc thp \
         --batches {batches}"
    );
    Duel { peer: Peer::Dgl, theirs: split(&theirs), rows: vec![row] }
}

/// Products of 100000 rows, which training batches do not have.
fn products(options: &Options, threads: usize) -> Duel {
    let ours = split(&format!("gemm w1 --threads {threads} --repeat {}", repeat(options, 5)));
    let row = |theirs: String, case: String| Row {
        what: format!("product {case}"),
        threads,
        unit: "GFLOP/s",
        line: vec![("op", theirs)],
        figure: "/gflop_s/median",
        ours: ours.clone(),
        cases: vec![case],
        take: Take::Rate("GFLOP/s"),
    };
    let shapes = [(100, 256), (256, 256), (256, 47)];
    let rows = shapes.iter().flat_map(|(k, n)| {
        let plain = row(format!("mm 100000x{k}x{n}"), format!("100000 x {k} x {n}"));
        let op = format!("mm_tn {k}x100000x{n} (weight gradient)");
        [plain, row(op, format!("{k} x 100000 x {n}, weight gradient"))]
    });
    let theirs = format!("gemm --workload w1 --threads {threads} {}", patience(options));
    Duel { peer: Peer::Torch, rows: rows.collect(), theirs: split(&theirs) }
}

/// Rows of random nodes. PyTorch allocates the result of each call, and ours reuses its memory.
fn gather(options: &Options, threads: usize) -> Duel {
    let row = Row {
        what: "gather 300000 rows of 100, against torch index_select".into(),
        threads,
        unit: "rows/s",
        line: vec![("op", "index_select".into())],
        figure: "/rows_per_s/median",
        ours: split(&format!("gather w1 --threads {threads} --repeat {}", repeat(options, 5))),
        cases: vec!["f32 F=100".into()],
        take: Take::Per(300_000.0),
    };
    let theirs =
        format!("gather --system torch --workload w1 --threads {threads} --malloc thp {}", patience(options));
    Duel { peer: Peer::Torch, theirs: split(&theirs), rows: vec![row] }
}

/// Blocks of 60000 training nodes with 10 neighbours each, drawn by each side for itself.
///
/// Not like for like: DGL's block numbers sources by global id, so its edges read rows at random
/// places. Our blocks number sources as first seen, so new sources are read in sequence.
fn aggregation(options: &Options, dim: usize, threads: usize) -> Duel {
    let ours = format!(
        "aggregate w1 --fanout 10 --batch-size 60000 --dim {dim} --threads {threads} --repeat {}",
        repeat(options, 5)
    );
    let row = |what: &str, op: &str, cases: &[&str]| Row {
        what: format!("aggregate mean F={dim}{what}"),
        threads,
        unit: "ms",
        line: vec![("op", op.into())],
        figure: "/ms/median",
        ours: split(&ours),
        cases: cases.iter().map(|case| format!("{case} f32 F={dim}")).collect(),
        take: Take::Seconds(1e3),
    };
    let rows = vec![
        row("", "copy_u_mean", &["local"]),
        row(", forward and backward", "copy_u_mean fwd+bwd", &["local", "transposed"]),
    ];
    let theirs = format!(
        "spmm --system dgl --workload w1 --dim {dim} --threads {threads} --malloc thp {}",
        patience(options)
    );
    Duel { peer: Peer::Dgl, theirs: split(&theirs), rows }
}
