//! This process among those that `mpirun` started with it.

use std::{
    env,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use graphmill_data::partition::PartitionDir;
use graphmill_distributed::{Messenger, MessengerOptions, local};
use graphmill_engine::{Error, Result, TrainConfig};

/// The post of this process, once it has joined the others.
static POST: OnceLock<Arc<Messenger>> = OnceLock::new();

/// How launchers tell a process which one it is, how many there are, and how many on this machine.
const LAUNCHERS: [[&str; 3]; 2] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"],
];

/// What the launcher says.
#[derive(Clone, Copy, Debug)]
struct Launch {
    rank: usize,
    size: usize,
    /// On this machine.
    beside: usize,
}

fn launch() -> Option<Launch> {
    let number = |name: &str| env::var(name).ok()?.parse().ok();
    LAUNCHERS.iter().find_map(|[rank, size, beside]| {
        let size = number(size)?;
        Some(Launch { rank: number(rank)?, size, beside: number(beside).unwrap_or(1) })
    })
}

/// Whether this is the process that speaks for all: the first, or the only one.
pub(crate) fn is_first() -> bool {
    launch().is_none_or(|launch| launch.rank == 0)
}

/// The partitioned dataset that the options name; none where they name another kind. Where several
/// processes were started, there has to be one.
pub(crate) fn partition(config: &TrainConfig) -> Result<Option<PartitionDir>> {
    let dir = Path::new(&config.dataset);
    if !config.dataset.is_empty() && dir.join("partition.json").is_file() {
        return Ok(Some(PartitionDir::open(dir)?));
    }
    match launch() {
        Some(Launch { size, rank, .. }) if size > 1 && config.dataset.is_empty() => {
            Err(Error::usage(format!(
                "{size} processes were started, and rank {rank} does not know the dataset: name the partitioned DATASET; --resume needs it too \
             where the run directory is on another machine"
            )))
        }
        Some(Launch { size, .. }) if size > 1 => Err(Error::usage(format!(
            "{size} processes were started, but the dataset is not partitioned: graphmill partition DATASET DST --parts {size}, and \
             train DST"
        ))),
        _ => Ok(None),
    }
}

/// Threads of this process where the options leave it open: its share of those of the machine.
pub(crate) fn threads(config: &TrainConfig) -> usize {
    match launch() {
        Some(Launch { beside, .. }) if config.threads == 0 => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            (cores / beside.max(1)).max(1)
        }
        _ => config.threads,
    }
}

/// Joins the processes that were started together, or is the only rank.
pub(crate) fn join(config: &TrainConfig) -> Result<Arc<Messenger>> {
    let patience = Duration::try_from_secs_f64(config.peer_timeout)
        .map_err(|error| Error::usage(format!("--peer-timeout {}: {error}", config.peer_timeout)))?;
    let options = MessengerOptions { patience, ..MessengerOptions::default() };
    let post = match launch() {
        Some(launch) if launch.size > 1 => several(options, launch)?,
        _ => Messenger::start(options, || Ok(local(1).remove(0)))?,
    };
    Ok(POST.get_or_init(|| post).clone())
}

#[cfg(feature = "mpi")]
fn several(options: MessengerOptions, launch: Launch) -> Result<Arc<Messenger>> {
    let post = Messenger::start(options, graphmill_distributed::transport::mpi::Mpi::join)?;
    if (post.rank(), post.size()) != (launch.rank, launch.size) {
        return Err(Error::usage(format!(
            "the launcher says that this is rank {} of {}, MPI that it is {} of {}: start it with the mpirun of the MPI that it was built with",
            launch.rank,
            launch.size,
            post.rank(),
            post.size()
        )));
    }
    Ok(post)
}

#[cfg(not(feature = "mpi"))]
fn several(_: MessengerOptions, Launch { size, .. }: Launch) -> Result<Arc<Messenger>> {
    Err(Error::usage(format!(
        "{size} processes were started, but this graphmill was built without MPI: cargo build --release --features mpi"
    )))
}

/// Ends the other processes too, where there are some.
pub(crate) fn abort(why: &str) {
    if let Some(post) = POST.get() {
        post.abort(why);
    }
}
