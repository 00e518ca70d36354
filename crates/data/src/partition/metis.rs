//! METIS: multilevel k-way partitioning by the library of that name.
//!
//! # Algorithm
//!
//! Multilevel k-way partitioning with two balance constraints, nodes and training nodes, with the
//! parameters that DGL uses. It is the quality baseline.
//!
//! # Source
//!
//! Karypis and Kumar, *A fast and high quality multilevel scheme for partitioning irregular
//! graphs*, SIAM J. Sci. Comput. 20(1), 1998.
//!
//! # Cost
//!
//! About linear in the edges, single-threaded. A stop does not end the library's thread: it runs
//! on until the process ends, or its call returns.
//!
//! # Memory
//!
//! Several copies of the graph. The library accepts fewer than 2^31 edges.

use std::{
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use graphmill_core::{
    Error, Graph, NodeId, Result, memory,
    progress::{Progress, Unit},
    signals::SavedHandler,
};

use super::{Options, PartitionBook, Partitioner, limits::fill_empty, trains};
use crate::reorder::adjacency::both_ways;

/// Lock for calls of the library. METIS draws from the C library's `rand`, whose state belongs to
/// the process: concurrent calls would take numbers from each other, and their parts would depend
/// on timing.
static LIBRARY: Mutex<()> = Mutex::new(());

/// METIS partitioner with its options. Calls from several threads wait for each other.
pub(super) struct Metis(Options);

impl Metis {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for Metis {
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook> {
        self.0.check(graph, train)?;
        let (nodes, parts) = (graph.num_nodes(), self.0.parts);
        let trains = trains(nodes, train)?;
        if parts == 1 {
            return PartitionBook::new(1, memory::zeroed::<u16>(nodes)?);
        }
        progress.stage("partitioning by METIS", None, Unit::Edges);
        let both = both_ways(graph)?;
        let too_large = |_| {
            Error::invalid(format!(
                "{} edges: METIS takes fewer than 2^31; use the method bgl",
                both.num_edges()
            ))
        };
        i32::try_from(both.num_edges()).map_err(too_large)?;
        // METIS does not accept self-loops.
        let mut starts: Vec<i32> = memory::reserve(nodes + 1)?;
        let mut neighbors: Vec<i32> = memory::reserve(both.num_edges())?;
        starts.push(0);
        for v in 0..nodes as NodeId {
            neighbors.extend(both.in_neighbors(v).iter().filter(|&&u| u != v).map(|&u| u as i32));
            starts.push(neighbors.len() as i32);
        }
        let several = !train.is_empty() && train.len() < nodes;
        let weights: Vec<i32> = if several {
            trains.iter().flat_map(|&trains| [1, i32::from(trains)]).collect()
        } else {
            memory::filled(1, nodes)?
        };
        let all_train = train.len() == nodes;
        let slack = if all_train { self.0.slack.min(self.0.train_slack) } else { self.0.slack };
        let most = [1.0 + slack as f32, 1.0 + self.0.train_slack as f32];
        let constraints = if several { 2 } else { 1 };
        let seed = (self.0.seed & 0x7fff_ffff) as i32;
        let call = Call { constraints, parts: parts.into(), starts, neighbors, weights, most, seed };
        let found = call.run(progress)?;
        fill_empty(graph, &trains, parts, found.into_iter().map(|part| part as u16).collect())
    }
}

/// Time between two checks for a stop.
const CHECKED: Duration = Duration::from_millis(20);
/// Time in which the library replaces the handler of SIGTERM after a call began.
const REPLACED: Duration = Duration::from_millis(20);

/// Arguments of a call of the library.
struct Call {
    constraints: i32,
    parts: i32,
    starts: Vec<i32>,
    neighbors: Vec<i32>,
    weights: Vec<i32>,
    /// Largest weights of a part, as ratios of the mean.
    most: [f32; 2],
    seed: i32,
}

impl Call {
    /// Calls the library on a thread of its own, because nothing interrupts it: after a stop, the
    /// thread ends by itself. SIGTERM has its handler during the call.
    ///
    /// # Errors
    /// The library fails, the system refuses the thread, or `progress` stops the work.
    fn run(self, progress: &dyn Progress) -> Result<Vec<i32>> {
        let failed = |e: &dyn std::fmt::Display| Error::invalid(format!("METIS failed: {e}"));
        let (begins, begun) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        let work = move || {
            let library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
            let handler = SavedHandler::save();
            // the receivers are gone after a stop
            let _ = begins.send(handler);
            let found = self.parts();
            handler.restore();
            drop(library);
            let _ = ends.send(found);
        };
        thread::Builder::new().name("metis".into()).spawn(work).map_err(|e| failed(&e))?;
        let handler = loop {
            match begun.recv_timeout(CHECKED) {
                Ok(handler) => break handler,
                Err(mpsc::RecvTimeoutError::Timeout) => progress.check()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(failed(&"its thread ended")),
            }
        };
        let began = Instant::now();
        while !handler.restore() && began.elapsed() < REPLACED {
            thread::yield_now();
        }
        loop {
            match ended.recv_timeout(CHECKED) {
                Ok(found) => return found.map_err(|e| failed(&e)),
                Err(mpsc::RecvTimeoutError::Timeout) => progress.check()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(failed(&"its thread ended")),
            }
            handler.restore();
        }
    }

    /// Part of every node.
    fn parts(&self) -> Result<Vec<i32>, String> {
        let mut found = memory::zeroed(self.starts.len() - 1).map_err(|e| e.to_string())?;
        metis::Graph::new(self.constraints, self.parts, &self.starts, &self.neighbors)
            .map_err(|e| e.to_string())?
            .set_vwgt(&self.weights)
            .set_ubvec(&self.most[..self.constraints as usize])
            .set_option(metis::option::Seed(self.seed))
            .part_kway(&mut found)
            .map_err(|e| e.to_string())?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use graphmill_core::{EdgeOptions, build, keyed, progress::Quiet};

    use super::*;

    #[test]
    fn a_stop_ends_the_wait_for_the_library() {
        struct Stopped;
        impl Progress for Stopped {
            fn is_stopped(&self) -> bool {
                true
            }
        }
        // the library is in use, so that the call cannot end before the check
        let library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
        let graph = build(3, &[0, 1], &[1, 2], EdgeOptions::UNDIRECTED).unwrap();
        let options = Options { parts: 2, ..Options::default() };
        let outcome = Metis::new(&options).partition(&graph, &[], &Stopped);
        assert!(matches!(outcome, Err(Error::Stopped)));
        drop(library);
    }

    #[test]
    fn parts_do_not_depend_on_calls_from_other_threads() {
        let nodes = 4000;
        let ends = |side| (0..4 * nodes).map(|e| (keyed::key(&[e, side]) % nodes) as NodeId).collect();
        let (src, dst): (Vec<_>, Vec<_>) = (ends(0), ends(1));
        let options = EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED };
        let graph = build(nodes as usize, &src, &dst, options).unwrap();
        let train: Vec<NodeId> = (0..nodes as NodeId).step_by(3).collect();
        let part = |seed| {
            let options = Options { parts: 8, seed, ..Options::default() };
            Metis::new(&options).partition(&graph, &train, &Quiet).unwrap().of().to_vec()
        };
        let alone = [0, 1].map(part);
        let together = thread::scope(|scope| {
            let calls = [0, 1].map(|seed| scope.spawn(move || part(seed)));
            calls.map(|call| call.join().unwrap())
        });
        assert!(alone == together, "a call took random numbers of another");
    }
}
