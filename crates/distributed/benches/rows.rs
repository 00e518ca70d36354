//! Benchmark of reading own rows while remote rows are in transit, against sequential reads.
//!
//! `cargo bench -p graphmill-distributed --bench rows -- [--mbit 1000] [--dim 100] [--own 20000]
//! [--others 20000] [--rounds 60]` runs two ranks as threads of this process. Frames between them
//! are delayed as by a link of `--mbit` megabits a second. Rank 0 reads batches of `--own` own rows
//! and `--others` rows of rank 1 in four ways, alternating over `--rounds` rounds, and prints the
//! median and the quartiles of each: own rows only, remote rows only, both sequentially, and both
//! concurrently (`OwnedAndRemoteRows`, as in training).

use std::{
    collections::VecDeque,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use graphmill_core::{Features, NodeId, Result, keyed};
use graphmill_data::partition::PartitionBook;
use graphmill_distributed::{
    Collective, Messenger, MessengerOptions, NodeOwnership, local,
    rows::{OwnedAndRemoteRows, ROWS, Remote, RowService, Table},
    transport::{Frame, Transport, local::Local},
};
use graphmill_loader::{
    Feature,
    feature::{Host, OutputRows},
};

/// Rows of the whole table: more than the caches hold.
const NODES: usize = 1 << 19;

struct Options {
    mbit: f64,
    dim: usize,
    own: usize,
    others: usize,
    rounds: usize,
}

fn options() -> Options {
    let mut options = Options { mbit: 1000.0, dim: 100, own: 20_000, others: 20_000, rounds: 60 };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        let number = || value.parse().unwrap_or_else(|_| panic!("{word}: '{value}' is not a number"));
        match word.as_str() {
            "--mbit" => options.mbit = number() as f64,
            "--dim" => options.dim = number(),
            "--own" => options.own = number(),
            "--others" => options.others = number(),
            "--rounds" => options.rounds = number(),
            _ => panic!("{word}: unknown option"),
        }
    }
    options
}

/// Transport of a rank whose incoming frames are delayed by the link.
struct Limited {
    end: Local,
    /// Nanoseconds per word.
    word: f64,
    coming: VecDeque<(Instant, usize, Frame)>,
}

impl Transport for Limited {
    fn rank(&self) -> usize {
        self.end.rank()
    }

    fn size(&self) -> usize {
        self.end.size()
    }

    fn send(&mut self, to: usize, frame: Frame) -> Result<()> {
        self.end.send(to, frame)
    }

    fn poll(&mut self) -> Result<Option<(usize, Frame)>> {
        while let Some((from, frame)) = self.end.poll()? {
            let begins = self.coming.back().map_or_else(Instant::now, |last| last.0.max(Instant::now()));
            let takes = Duration::from_nanos((self.word * frame.words().len() as f64) as u64);
            self.coming.push_back((begins + takes, from, frame));
        }
        let has_arrived = self.coming.front().is_some_and(|(due, ..)| *due <= Instant::now());
        Ok(self.coming.pop_front_if(|_| has_arrived).map(|(_, from, frame)| (from, frame)))
    }
}

fn rank(end: Local, options: &Options) {
    let link = Limited { end, word: 32e3 / options.mbit, coming: VecDeque::new() };
    let post = Messenger::start(MessengerOptions::default(), move || Ok(link)).unwrap();
    let parts: Vec<u16> = (0..NODES as u64).map(|v| (keyed::mix(v) & 1) as u16).collect();
    let parts = PartitionBook::new(2, parts).unwrap();
    let book = Arc::new(NodeOwnership::new(parts, post.rank(), post.size()).unwrap());
    let dim = options.dim;
    let rows: Vec<f32> = book.own().flat_map(|v| (0..dim).map(move |i| v as f32 + i as f32)).collect();
    let table: Arc<dyn Feature> = Arc::new(Host::new(&Features::f32(dim, rows)));
    post.serve(ROWS, Arc::new(RowService::new(book.clone(), Table::Constant(table.clone()))));
    let all = Collective::new(post.clone());
    all.barrier(1).unwrap();
    if post.rank() == 0 {
        measure(&post, &book, &table, options);
    }
    all.barrier(2).unwrap();
    post.close().unwrap();
}

fn measure(post: &Arc<Messenger>, book: &Arc<NodeOwnership>, table: &Arc<dyn Feature>, options: &Options) {
    let remote = Arc::new(Remote::new(post.clone(), book.clone(), ROWS, options.dim));
    let both = OwnedAndRemoteRows::new(book.clone(), Table::Constant(table.clone()), remote.clone());
    let names = ["own alone", "others alone", "sequential", "concurrent"];
    let mut seconds = names.map(|_| Vec::with_capacity(options.rounds));
    let mut out = vec![0.0; (options.own + options.others) * options.dim];
    let mut expected = out.clone();
    // The first rounds warm up caches and queues.
    for round in 0..options.rounds + 3 {
        let (ids, places) = batch(book, round as u64, options);
        let [own, others] = &places;
        let read_own = |out: &mut [f32]| {
            let rows: Vec<u32> = own.iter().map(|&i| book.place(ids[i as usize])).collect();
            table.read_to(&rows, OutputRows::At(own), out).unwrap();
        };
        let read_others = |out: &mut [f32]| {
            let rows: Vec<NodeId> = others.iter().map(|&i| ids[i as usize]).collect();
            remote.read_to(&rows, OutputRows::At(others), out).unwrap();
        };
        for turn in 0..names.len() {
            let way = (turn + round) % names.len();
            let began = Instant::now();
            match way {
                0 => read_own(&mut out),
                1 => read_others(&mut out),
                2 => {
                    read_others(&mut expected);
                    read_own(&mut expected);
                }
                _ => drop(both.read(&ids, &mut out).unwrap()),
            }
            if round >= 3 {
                seconds[way].push(began.elapsed().as_secs_f64());
            }
        }
        both.read(&ids, &mut out).unwrap();
        assert!(out == expected, "all ways read the same rows");
    }
    let Options { mbit, dim, own, others, rounds } = options;
    println!(
        "{own} own rows and {others} remote rows of {dim} f32 at {mbit} Mbit/s, {rounds} alternating rounds, \
         ms:"
    );
    for (name, seconds) in names.iter().zip(&mut seconds) {
        seconds.sort_by(f64::total_cmp);
        let at = |part: usize| 1e3 * seconds[part * (seconds.len() - 1) / 4];
        println!("{name:20} {:8.2} ({:.2} .. {:.2})", at(2), at(1), at(3));
    }
}

/// Nodes of a batch in a mixed order, and the positions of own ones and of remote ones.
fn batch(book: &NodeOwnership, number: u64, options: &Options) -> (Vec<NodeId>, [Vec<u32>; 2]) {
    let mut left = [options.own, options.others];
    let (mut ids, mut places) = (Vec::new(), [Vec::new(), Vec::new()]);
    // A permutation of all nodes.
    let step = (keyed::mix(number) as usize | 1) % NODES;
    let mut node = keyed::mix(!number) as usize % NODES;
    while left != [0, 0] {
        node = (node + step) % NODES;
        let of = usize::from(!book.is_own(node as NodeId));
        if left[of] > 0 {
            left[of] -= 1;
            places[of].push(ids.len() as u32);
            ids.push(node as NodeId);
        }
    }
    (ids, places)
}

fn main() {
    let options = &options();
    thread::scope(|scope| local(2).into_iter().for_each(|end| drop(scope.spawn(move || rank(end, options)))));
}
