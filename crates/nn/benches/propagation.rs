//! Aggregation on sampled subgraphs: slices of columns against whole rows.
//!
//! `cargo bench -p graphmill-nn --bench propagation [-- THREADS]` prints, for one thread and for
//! two, the best time of several runs per method, its cycles over all threads (a busy machine
//! disturbs them less than time), and the bytes moved from memory, beside the bound of Zeng et al.,
//! JPDC 2021, theorem 2: for any partition, every feature is read once, `8 n f` bytes of their f64
//! and `4 n f` of our f32. Cycles and bytes are hardware counters; the columns report if the system
//! has none. Degrees are exponentially distributed, sources uniform: a subgraph without locality.

use std::time::Instant;

use graphmill_core::{Block, keyed::Stream};
use graphmill_nn::{
    Matrix,
    backend::{
        AggregationWeights, Cpu,
        cpu::{Slicing, with_slicing},
        ops::{Aggregate, AggregateTransposed},
    },
};

/// `n`, average degree, `f`.
const SHAPES: [[usize; 3]; 12] = [
    [8000, 15, 512],
    [8000, 15, 128],
    [8000, 15, 256],
    [8000, 15, 1024],
    [2000, 15, 128],
    [2000, 15, 512],
    [32_000, 15, 128],
    [32_000, 15, 512],
    [2000, 50, 512],
    [8000, 50, 256],
    [8000, 50, 512],
    [32_000, 50, 512],
];

const METHODS: [(&str, Slicing); 5] = [
    ("whole rows", Slicing::Rows),
    ("cost model", Slicing::Auto),
    ("slices of 32", Slicing::Columns(32)),
    ("slices of 64", Slicing::Columns(64)),
    ("slices of 128", Slicing::Columns(128)),
];

/// Rounds over all methods, and runs of each in a round: the first run of a round finds other
/// methods' rows in the caches.
const ROUNDS: usize = 8;
const RUNS: usize = 3;

fn main() {
    let only = std::env::args().skip(1).find_map(|a| a.parse().ok());
    let largest = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size");
    println!("second-level cache: {}", largest.as_deref().map_or("unknown", str::trim));
    for threads in only.map_or(vec![1, 2], |threads| vec![threads]) {
        // threads created later inherit the counters
        let mut counters = Counters::new();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        for [n, degree, cols] in SHAPES {
            for backward in [false, true] {
                // one shape suffices for the backward pass
                if !backward || [n, degree, cols] == SHAPES[0] {
                    compare(&pool, &mut counters, n, degree, cols, backward);
                }
            }
        }
    }
}

/// Best measurements: seconds, cycles, bytes from memory.
type Best = [f64; 3];

fn compare(
    pool: &rayon::ThreadPool,
    counters: &mut Counters,
    n: usize,
    degree: usize,
    cols: usize,
    backward: bool,
) {
    let cpu = Cpu::default();
    let block = subgraph(n, degree);
    let mut stream = Stream::new(2);
    let data: Vec<f32> = (0..n * cols).map(|_| stream.uniform() as f32 - 0.5).collect();
    let (x, mut out) = (Matrix::from_slice(n, cols, &data), Matrix::zeros(n, cols));
    let mut best = [[f64::INFINITY; 3]; METHODS.len()];
    let mut expected: Vec<f32> = Vec::new();
    for _ in 0..ROUNDS {
        for (best, (name, slicing)) in best.iter_mut().zip(METHODS) {
            for _ in 0..RUNS {
                let counted = counters.during(|| {
                    pool.install(|| {
                        with_slicing(slicing, || match backward {
                            false => Aggregate {
                                block: &block,
                                weights: AggregationWeights::STORED,
                                src: x.view(),
                                beta: 0.0,
                                dst: out.view_mut(),
                            }
                            .run(&cpu),
                            true => {
                                let to = out.view_mut();
                                AggregateTransposed {
                                    block: &block,
                                    weights: AggregationWeights::STORED,
                                    dst_grad: x.view(),
                                    beta: 0.0,
                                    src_grad: to,
                                }
                                .run(&cpu);
                            }
                        });
                    });
                });
                best.iter_mut().zip(counted).for_each(|(best, now)| *best = best.min(now));
            }
            if expected.is_empty() {
                expected = out.view().host().to_vec();
            }
            assert!(expected == out.view().host(), "{name} gives other numbers");
        }
    }
    let edges = block.num_edges();
    let bound = (4 * n * cols) as f64;
    let slices = (bound / (1 << 20) as f64).ceil().max(pool.current_num_threads() as f64);
    let model = bound + slices * (8 * edges + 4 * n) as f64;
    println!(
        "\n{} thread(s), n = {n}, {:.1} edges a node, f = {cols}{}; bound {:.1} MB, \
         algorithm 7 with 1 MiB of cache {:.1} MB",
        pool.current_num_threads(),
        edges as f64 / n as f64,
        if backward { ", backward" } else { "" },
        bound / 1e6,
        model / 1e6
    );
    let first = best[0];
    for (best, (name, _)) in best.iter().zip(METHODS) {
        let [seconds, cycles, bytes] = *best;
        print!("  {name:<14}{:8.2} ms {:5.2} x", 1e3 * seconds, first[0] / seconds);
        print!("{:7.1} GB/s gathered", (4 * edges * cols) as f64 / seconds / 1e9);
        if cycles.is_finite() {
            print!("{:8.2} Mcycles {:5.2} x", cycles / 1e6, first[1] / cycles);
        } else {
            print!("  (no cycle counter)");
        }
        if bytes.is_finite() {
            print!("{:8.1} MB from memory, {:5.2} of the bound", bytes / 1e6, bytes / bound);
        } else {
            print!("  (no memory counter)");
        }
        println!();
    }
}

/// A square block of `n` nodes.
fn subgraph(n: usize, degree: usize) -> Block {
    let mut stream = Stream::new(1);
    let mut block = Block { num_dst: n, num_src: n, indptr: vec![0], ..Block::default() };
    for _ in 0..n {
        let edges = (-(1.0 - stream.uniform()).ln() * degree as f64).round() as usize;
        block.indices.extend((0..edges).map(|_| stream.below(n as u64) as u32));
        block.indptr.push(block.indices.len() as u32);
    }
    block.edge_weight = block.indices.iter().map(|_| stream.uniform() as f32).collect();
    block.self_weight = vec![0.5; n];
    block.transpose();
    block
}

#[cfg(target_os = "linux")]
struct Counters {
    cycles: Option<perf_event::Counter>,
    /// Cache lines from memory.
    lines: Option<perf_event::Counter>,
}

#[cfg(target_os = "linux")]
impl Counters {
    fn new() -> Self {
        use perf_event::events::{Hardware, Raw};
        let cycles = Self::counter(Hardware::CPU_CYCLES);
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let lines = if info.contains("AuthenticAMD") {
            // L2_FILL_RSP_SRC (event 0x165), from local or remote memory (umask 0x48): Zen 4 and
            // later
            Self::counter(Raw::new(0x1_0000_4865))
        } else {
            // misses of the last level, if the processor counts them under the generic name
            Self::counter(Hardware::CACHE_MISSES)
        };
        Self { cycles, lines }
    }

    fn counter(event: impl perf_event::events::Event) -> Option<perf_event::Counter> {
        let mut counter = perf_event::Builder::new(event).inherit(true).build().ok()?;
        counter.enable().ok()?;
        Some(counter)
    }

    fn during(&mut self, run: impl FnOnce()) -> Best {
        let mut read = || {
            [&mut self.cycles, &mut self.lines]
                .map(|counter| counter.as_mut().and_then(|c| c.read().ok()).map(|count| count as f64))
        };
        let before = read();
        let start = Instant::now();
        run();
        let seconds = start.elapsed().as_secs_f64();
        let after = read();
        let [cycles, lines] = std::array::from_fn(|i| match (before[i], after[i]) {
            (Some(before), Some(after)) => after - before,
            _ => f64::INFINITY,
        });
        [seconds, cycles, 64.0 * lines]
    }
}

#[cfg(not(target_os = "linux"))]
struct Counters;

#[cfg(not(target_os = "linux"))]
impl Counters {
    fn new() -> Self {
        Self
    }

    fn during(&mut self, run: impl FnOnce()) -> Best {
        let start = Instant::now();
        run();
        [start.elapsed().as_secs_f64(), f64::INFINITY, f64::INFINITY]
    }
}
