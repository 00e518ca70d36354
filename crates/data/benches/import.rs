//! Import speed of an edge list larger than the memory budget, relative to the limits of its bytes.
//!
//! `cargo bench -p graphmill-data --bench import -- [--edges 50000000] [--nodes 33554432] [--memory
//! 3072] [--dir DIR]` writes a list of random edges, as text and gzipped, to DIR (some 26 bytes an
//! edge for both; the import takes 13 more). It then measures the reading of the text, its
//! decompression by the same library, the writing of an import's output, and the imports
//! themselves, with the peak memory of the process. `--memory` is in MiB.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use graphmill_core::{keyed::Stream, memory};
use graphmill_data::dataset::{
    Work,
    import::{ImportOptions, import_to},
};

struct Options {
    edges: u64,
    nodes: u64,
    memory: u64,
    dir: Option<PathBuf>,
}

fn options() -> Options {
    let mut options = Options { edges: 50_000_000, nodes: 1 << 25, memory: 3072, dir: None };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        let number = || value.parse().unwrap_or_else(|_| panic!("{word}: '{value}' is not a number"));
        match word.as_str() {
            "--edges" => options.edges = number(),
            "--nodes" => options.nodes = number(),
            "--memory" => options.memory = number(),
            "--dir" => options.dir = Some(value.into()),
            _ => panic!("unknown option {word}"),
        }
    }
    options
}

/// Writes the edges: even sources, and destinations concentrated at the small ids, as degrees are.
fn generate(options: &Options, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut stream = Stream::new(1);
    for _ in 0..options.edges {
        let (u, share) = (stream.below(options.nodes), stream.uniform());
        let v = (share * share * share * options.nodes as f64) as u64;
        writeln!(file, "{u}\t{v}")?;
    }
    file.flush()
}

fn pack(from: &Path, to: &Path) -> io::Result<()> {
    let mut packed = GzEncoder::new(BufWriter::new(File::create(to)?), Compression::fast());
    io::copy(&mut File::open(from)?, &mut packed)?;
    packed.finish()?.flush()
}

/// Reads to the end; returns bytes and seconds.
fn drain(mut reader: impl Read) -> io::Result<(u64, f64)> {
    let began = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok((bytes, began.elapsed().as_secs_f64())),
            read => bytes += read as u64,
        }
    }
}

/// Writes and syncs `bytes` bytes; returns seconds.
fn write(path: &Path, bytes: u64) -> io::Result<f64> {
    let began = Instant::now();
    let mut file = File::create(path)?;
    let piece: Vec<u8> = (0..1 << 20).map(|i| (i * 7 % 251) as u8).collect();
    for _ in 0..bytes >> 20 {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    let seconds = began.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(seconds)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options();
    let temporary = tempfile::tempdir()?;
    let dir = options.dir.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    std::fs::create_dir_all(&dir)?;
    let (text, packed) = (dir.join("edges.txt"), dir.join("edges.txt.gz"));
    if !packed.exists() {
        generate(&options, &text)?;
        pack(&text, &packed)?;
    }
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let (size, reading) = drain(File::open(&text)?)?;
    let (unpacked, unpacking) =
        drain(MultiGzDecoder::new(io::BufReader::with_capacity(1 << 18, File::open(&packed)?)))?;
    assert_eq!(size, unpacked);
    // Keys distributed to parts, then indices.
    let written = 12 * options.edges + 12 * options.nodes;
    let writing = write(&dir.join("written"), written)?;
    println!("{} edges, {} nodes, {:.2} GB of text\n", options.edges, options.nodes, gb(size));
    println!("| what | seconds | text, GB/s |\n| --- | --- | --- |");
    println!("| read the text | {reading:.1} | {:.2} |", gb(size) / reading);
    println!(
        "| unpack it from {:.2} GB | {unpacking:.1} | {:.2} |",
        gb(packed.metadata()?.len()),
        gb(size) / unpacking
    );
    println!("| write and sync {:.2} GB | {writing:.1} | |", gb(written));
    for (path, limit) in [(&text, reading + writing), (&packed, unpacking + writing)] {
        let dst = dir.join("dataset");
        let work = Work { memory: Some(options.memory << 20), replace: true, ..Work::default() };
        let began = Instant::now();
        let dataset = import_to("edges", path, &dst, &ImportOptions::default(), work)?.dataset;
        let seconds = began.elapsed().as_secs_f64();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        println!(
            "| import {name}: {:.1} M edges/s, {:.2} of the sum of its limits | {seconds:.1} | {:.2} |",
            options.edges as f64 / seconds / 1e6,
            limit / seconds,
            gb(size) / seconds
        );
        drop(dataset);
        std::fs::remove_dir_all(&dst)?;
    }
    if let Some(peak) = memory::peak() {
        println!("\npeak memory: {:.2} GB, budget: {:.2} GB", gb(peak), gb(options.memory << 20));
    }
    Ok(())
}
