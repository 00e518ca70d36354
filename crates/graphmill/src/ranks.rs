//! Ranks: this process among those that `mpirun` started together.

use std::{
    env,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use graphmill_data::partition::{PartitionDir, TypedPartitionDir};
use graphmill_distributed::{Messenger, MessengerOptions, local};
use graphmill_engine::{Error, Result, TrainConfig};

/// Messenger of this process, once it has joined the other ranks.
static MESSENGER: OnceLock<Arc<Messenger>> = OnceLock::new();

/// Environment variables of each launcher: rank, number of ranks, number of ranks on this machine.
const LAUNCHERS: [[&str; 3]; 2] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"],
];

/// Position of this process among those that the launcher started.
#[derive(Clone, Copy, Debug)]
struct Launch {
    rank: usize,
    /// Number of ranks.
    size: usize,
    /// Number of ranks on this machine.
    local_size: usize,
}

/// Reads the launcher's environment; `None` if no launcher started this process.
fn launch() -> Option<Launch> {
    let number = |name: &str| env::var(name).ok()?.parse().ok();
    LAUNCHERS.iter().find_map(|[rank, size, local_size]| {
        let size = number(size)?;
        Some(Launch { rank: number(rank)?, size, local_size: number(local_size).unwrap_or(1) })
    })
}

/// Returns true for the first or only process, which prints the results.
pub(crate) fn is_first() -> bool {
    launch().is_none_or(|launch| launch.rank == 0)
}

/// Partitioned dataset of one of the kinds that ranks train on.
pub(crate) enum Partition {
    /// Nodes and edges of one type.
    OneType(Box<PartitionDir>),
    /// Several types of nodes or edges.
    Typed(Box<TypedPartitionDir>),
}

impl Partition {
    /// Opens the partition in `dir`.
    fn open(dir: &Path) -> Result<Self> {
        Ok(match TypedPartitionDir::is_in(dir) {
            true => Self::Typed(Box::new(TypedPartitionDir::open(dir)?)),
            false => Self::OneType(Box::new(PartitionDir::open(dir)?)),
        })
    }

    /// Name of the partitioned dataset.
    pub(crate) fn source(&self) -> &str {
        match self {
            Self::OneType(dir) => dir.source(),
            Self::Typed(dir) => dir.source(),
        }
    }

    /// Name, sizes and method in one line.
    pub(crate) fn describe(&self) -> String {
        let (nodes, edges, parts, method) = match self {
            Self::OneType(dir) => (dir.num_nodes(), dir.num_edges(), dir.parts(), dir.method()),
            Self::Typed(dir) => (dir.schema().num_nodes(), dir.num_edges(), dir.parts(), dir.method()),
        };
        format!("{}: {nodes} nodes, {edges} edges, {parts} parts by {method}", self.source())
    }
}

/// Opens the partitioned dataset that the options name; `None` if the dataset is not partitioned.
///
/// # Errors
/// The partition cannot be opened, or several processes were started on another kind of dataset.
pub(crate) fn partition(config: &TrainConfig) -> Result<Option<Partition>> {
    let dir = Path::new(&config.dataset);
    if !config.dataset.is_empty() && dir.join("partition.json").is_file() {
        return Ok(Some(Partition::open(dir)?));
    }
    match launch() {
        Some(Launch { size, rank, .. }) if size > 1 && config.dataset.is_empty() => {
            Err(Error::usage(format!(
                "{size} processes were started, but rank {rank} has no dataset; pass the partitioned \
                 DATASET, also with --resume if the run directory is on another machine"
            )))
        }
        Some(Launch { size, .. }) if size > 1 => Err(Error::usage(format!(
            "{size} processes were started, but the dataset is not partitioned; run graphmill partition \
             DATASET DST --parts {size}, then train DST"
        ))),
        _ => Ok(None),
    }
}

/// Number of cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Number of threads of this process: as configured, or its share of the machine's cores.
pub(crate) fn threads(config: &TrainConfig) -> usize {
    launch().map_or(config.threads, |launch| threads_of(config, launch))
}

/// Number of threads of a process that a launcher started.
fn threads_of(config: &TrainConfig, launch: Launch) -> usize {
    match config.threads {
        0 => (cores() / launch.local_size.max(1)).max(1),
        threads => threads,
    }
}

/// Returns true if `ranks` ranks with `threads` threads each have a core for every thread.
fn fits(threads: usize, ranks: usize, cores: usize) -> bool {
    threads.saturating_mul(ranks) <= cores
}

/// Joins the other ranks; without a launcher this process is the only rank.
pub(crate) fn join(config: &TrainConfig) -> Result<Arc<Messenger>> {
    let patience = Duration::try_from_secs_f64(config.peer_timeout)
        .map_err(|error| Error::usage(format!("--peer-timeout {}: {error}", config.peer_timeout)))?;
    let is_store = launch().is_some_and(|launch| launch.rank + config.graph_stores >= launch.size);
    // a graph store has no other work
    let threads = if config.graph_stores > 0 && is_store { threads(config).max(1) } else { 1 };
    let may_spin = launch().is_none_or(|launch| fits(threads_of(config, launch), launch.local_size, cores()));
    let options = MessengerOptions { patience, threads, may_spin, ..MessengerOptions::default() };
    let messenger = match launch() {
        Some(launch) if launch.size > 1 => join_ranks(options, launch)?,
        _ => Messenger::start(options, || Ok(local(1).remove(0)))?,
    };
    Ok(MESSENGER.get_or_init(|| messenger).clone())
}

#[cfg(feature = "mpi")]
fn join_ranks(options: MessengerOptions, launch: Launch) -> Result<Arc<Messenger>> {
    let messenger = Messenger::start(options, graphmill_distributed::transport::mpi::Mpi::join)?;
    if (messenger.rank(), messenger.size()) != (launch.rank, launch.size) {
        return Err(Error::usage(format!(
            "the launcher started rank {} of {}, but MPI reports rank {} of {}; use the mpirun of the MPI \
             that graphmill was built with",
            launch.rank,
            launch.size,
            messenger.rank(),
            messenger.size()
        )));
    }
    Ok(messenger)
}

#[cfg(not(feature = "mpi"))]
fn join_ranks(_: MessengerOptions, Launch { size, .. }: Launch) -> Result<Arc<Messenger>> {
    Err(Error::usage(format!(
        "{size} processes were started, but this graphmill was built without MPI; build it with cargo build \
         --release --features mpi"
    )))
}

/// Ends the other ranks, if any, with the reason `why`.
pub(crate) fn abort(why: &str) {
    if let Some(messenger) = MESSENGER.get() {
        messenger.abort(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_more_threads_than_cores_do_not_fit() {
        assert!(fits(2, 4, 8) && fits(1, 1, 1));
        assert!(!fits(3, 4, 8) && !fits(1, 2, 1) && !fits(usize::MAX, 2, 8));
    }

    #[test]
    fn a_rank_takes_its_share_of_the_cores_unless_it_is_configured() {
        let launch = |local_size| Launch { rank: 0, size: 1024, local_size };
        let config = |threads| TrainConfig { threads, ..TrainConfig::default() };
        assert_eq!(threads_of(&config(0), launch(1)), cores());
        assert_eq!(threads_of(&config(0), launch(2 * cores())), 1, "more ranks than cores");
        assert_eq!(threads_of(&config(7), launch(2)), 7);
    }
}
