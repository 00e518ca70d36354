//! Import speed of tables with keys of 16 bytes, relative to tables with integer keys.
//!
//! `cargo bench -p graphmill-data --features tables --bench tables -- [--edges 10000000] [--nodes
//! 1000000] [--memory 2048] [--rounds 3] [--format csv] [--dir DIR]` writes a node table and an
//! edge table of random edges for either kind of key to DIR, and imports both alternately. With
//! `--targets ROWS` it writes nodes with six columns and a table of targets instead, and imports
//! both. `--memory` is in MiB, `--format` is csv or parquet. Beside the time it prints that of the
//! processor, if the system states it, which other work on the machine changes less.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use graphmill_core::{keyed::Stream, memory};
use graphmill_data::{
    dataset::Work,
    tables::{EdgeTable, Names, NodeTable, TableSchema, TargetTable, import_tables},
};
use parquet::arrow::ArrowWriter;

/// Rows that are written at a time.
const CHUNK: u64 = 1 << 16;
/// Kinds of keys.
const KINDS: [&str; 2] = ["integers", "texts"];

struct Options {
    edges: u64,
    nodes: u64,
    targets: u64,
    memory: u64,
    rounds: usize,
    format: String,
    dir: Option<PathBuf>,
}

fn options() -> Options {
    let (edges, nodes, memory, rounds, dir) = (10_000_000, 1_000_000, 2048, 3, None);
    let mut options = Options { edges, nodes, targets: 0, memory, rounds, format: "csv".into(), dir };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        let number = || value.parse().unwrap_or_else(|_| panic!("{word}: '{value}' is not a number"));
        match word.as_str() {
            "--edges" => options.edges = number(),
            "--nodes" => options.nodes = number(),
            "--targets" => options.targets = number(),
            "--memory" => options.memory = number(),
            "--rounds" => options.rounds = number() as usize,
            "--format" => options.format = value,
            "--dir" => options.dir = Some(value.into()),
            _ => panic!("unknown option {word}"),
        }
    }
    options
}

/// Seconds that the processors have worked for this process; 0 if the system does not state them.
fn processor() -> f64 {
    // The fields of Linux behind the name of the program, in hundredths of a second.
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    fields.take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Key of a node as a number, in no order.
fn number(v: u64) -> u64 {
    v.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 4
}

/// Writes a table of the columns `names`, whose rows `row` gives by node.
fn write(
    path: &Path,
    names: &[&str],
    rows: u64,
    is_text: bool,
    mut row: impl FnMut(u64) -> [u64; 2],
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    if path.extension().is_some_and(|ending| ending == "csv") {
        writeln!(out, "{}", names.join(","))?;
        for i in 0..rows {
            let [a, b] = row(i).map(number);
            match (is_text, names.len()) {
                (true, 1) => writeln!(out, "{a:016x}")?,
                (true, _) => writeln!(out, "{a:016x},{b:016x}")?,
                (false, 1) => writeln!(out, "{a}")?,
                (false, _) => writeln!(out, "{a},{b}")?,
            }
        }
        return out.flush();
    }
    let mut writer: Option<ArrowWriter<_>> = None;
    let mut out = Some(out);
    for first in (0..rows).step_by(CHUNK as usize) {
        let chunk: Vec<[u64; 2]> = (first..(first + CHUNK).min(rows)).map(|i| row(i).map(number)).collect();
        let column = |c: usize| -> ArrayRef {
            if is_text {
                let texts = chunk.iter().map(|row| format!("{:016x}", row[c]));
                Arc::new(StringArray::from_iter_values(texts))
            } else {
                Arc::new(Int64Array::from_iter_values(chunk.iter().map(|row| row[c] as i64)))
            }
        };
        let columns = names.iter().enumerate().map(|(c, name)| (*name, column(c)));
        let batch = RecordBatch::try_from_iter(columns).map_err(io::Error::other)?;
        if let Some(out) = out.take() {
            writer = Some(ArrowWriter::try_new(out, batch.schema(), None).map_err(io::Error::other)?);
        }
        if let Some(writer) = &mut writer {
            writer.write(&batch).map_err(io::Error::other)?;
        }
    }
    writer.map_or(Ok(()), |writer| writer.close().map(drop).map_err(io::Error::other))
}

/// Imports nodes with six columns and a table of targets with two further columns.
fn with_targets(options: &Options, dir: &Path) -> io::Result<()> {
    let path = |name: &str| dir.join(format!("{name}.csv"));
    let mut stream = Stream::new(1);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path("nodes"))?);
    writeln!(out, "id,amount,age,rate,country,plan,opened")?;
    for v in 0..options.nodes {
        let [amount, age, rate, country, plan] = [1_000_000, 90, 1000, 40, 3].map(|n| stream.below(n));
        let day = stream.below(28) + 1;
        writeln!(out, "{},{amount}.5,{age},0.{rate},c{country},p{plan},2024-01-{day:02}", number(v))?;
    }
    out.flush()?;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path("targets"))?);
    writeln!(out, "who,asked,visits,channel,left")?;
    for i in 0..options.targets {
        let (v, month) = (i % options.nodes, i / options.nodes % 12 + 1);
        let [visits, channel, left] = [1000, 5, 2].map(|n| stream.below(n));
        let year = 2025 + i / options.nodes / 12;
        writeln!(out, "{},{year}-{month:02}-01,{visits},h{channel},{left}", number(v))?;
    }
    out.flush()?;
    let one = |text: &str| Names::One(text.into());
    let file = |name: &str| one(&path(name).display().to_string());
    let nodes = NodeTable {
        kind: "node".into(),
        files: file("nodes"),
        id: one("id"),
        category_limit: 50,
        ..Default::default()
    };
    let targets = TargetTable {
        files: file("targets"),
        id: one("who"),
        time: Some("asked".into()),
        label: one("left"),
        ..TargetTable::default()
    };
    let schema = TableSchema { nodes: vec![nodes], targets: vec![targets], ..TableSchema::default() };
    let (mut best, mut worked) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..options.rounds {
        let work = Work { memory: Some(options.memory << 20), replace: true, ..Work::default() };
        let (began, before) = (Instant::now(), processor());
        let made = import_tables(&schema, dir.join("dataset"), None, work).map_err(io::Error::other)?;
        let (seconds, work) = (began.elapsed().as_secs_f64(), processor() - before);
        (best, worked) = (best.min(seconds), worked.min(work));
        let found = made.report.targets[0].labels.leaks.len();
        println!("{seconds:.2} s ({work:.2} s of processors), {found} columns determine the label");
    }
    println!("best {best:.2} s, {worked:.2} s of processors");
    println!("peak memory {} MiB", memory::peak().unwrap_or_default() >> 20);
    Ok(())
}

fn main() -> io::Result<()> {
    let options = options();
    let temporary = tempfile::tempdir()?;
    let dir = options.dir.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    fs::create_dir_all(&dir)?;
    if options.targets > 0 {
        return with_targets(&options, &dir);
    }
    let name = |kind: &str, table: &str| dir.join(format!("{kind}-{table}.{}", options.format));
    for kind in KINDS {
        let is_text = kind == "texts";
        write(&name(kind, "nodes"), &["id"], options.nodes, is_text, |v| [v, 0])?;
        let mut stream = Stream::new(1);
        let ends = |_| [stream.below(options.nodes), stream.below(options.nodes)];
        write(&name(kind, "edges"), &["src", "dst"], options.edges, is_text, ends)?;
    }
    let (mut best, mut worked) = ([f64::INFINITY; 2], [f64::INFINITY; 2]);
    for _ in 0..options.rounds {
        for (kind, (best, worked)) in KINDS.iter().zip(best.iter_mut().zip(&mut worked)) {
            let one = |text: &str| Names::One(text.into());
            let schema = TableSchema {
                nodes: vec![NodeTable {
                    kind: "node".into(),
                    files: one(&name(kind, "nodes").display().to_string()),
                    id: one("id"),
                    ..NodeTable::default()
                }],
                edges: vec![EdgeTable {
                    kind: "edge".into(),
                    files: one(&name(kind, "edges").display().to_string()),
                    src: one("src"),
                    dst: one("dst"),
                    ..EdgeTable::default()
                }],
                ..TableSchema::default()
            };
            let work = Work { memory: Some(options.memory << 20), replace: true, ..Work::default() };
            let (began, before) = (Instant::now(), processor());
            import_tables(&schema, dir.join("dataset"), None, work).map_err(io::Error::other)?;
            let seconds = began.elapsed().as_secs_f64();
            let work = processor() - before;
            (*best, *worked) = (best.min(seconds), worked.min(work));
            let rate = options.edges as f64 / seconds / 1e6;
            println!("{kind}: {seconds:.2} s ({work:.2} s of processors), {rate:.2} million edges a second");
        }
    }
    let [times, works] = [best, worked].map(|[integers, texts]| texts / integers);
    println!("texts take {times:.2} times as long as integers, and {works:.2} times the work");
    println!("peak memory {} MiB", memory::peak().unwrap_or_default() >> 20);
    Ok(())
}
