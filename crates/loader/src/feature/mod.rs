//! Node ids to feature rows: tiers that nest, with counters.

pub mod cached;
pub mod disk;
pub mod host;
mod lent;
pub mod link;
mod scatter;
mod stream;

use std::{sync::Arc, time::Instant};

use graphmill_graph::{Block, Matrix, NodeId, Result, accelerator::DeviceMemory, matrix::TableData};

use rayon::prelude::*;

pub use disk::{Disk, DiskOptions};
pub use host::Host;
pub use link::{Link, LinkOptions, Linked};

/// Rows and bytes read from one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Rows.
    pub rows: u64,
    /// Bytes that were read for them: more than the rows hold where a tier reads whole blocks.
    pub bytes: u64,
    /// Nanoseconds that passed in the tier itself, those behind it not counted.
    pub nanos: u64,
}

impl Rows {
    /// These rows and bytes, read since `began`.
    pub fn since(began: Instant, rows: u64, bytes: u64) -> Self {
        Self { rows, bytes, nanos: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) }
    }
}

impl std::ops::AddAssign for Rows {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.nanos += other.nanos;
    }
}

/// What a read cost, tier by tier from the nearest to the farthest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accelerator memory.
    pub device: Rows,
    /// The memory of other accelerators beside it.
    pub peer: Rows,
    /// Host memory.
    pub host: Rows,
    /// Files.
    pub disk: Rows,
    /// Other machines.
    pub remote: Rows,
}

impl Traffic {
    /// All tiers together.
    pub fn total(&self) -> Rows {
        let mut total = Rows::default();
        self.tiers().into_iter().for_each(|tier| total += tier);
        total
    }

    /// The tiers from the nearest to the farthest: device, peer, host, disk, remote.
    pub fn tiers(&self) -> [Rows; 5] {
        [self.device, self.peer, self.host, self.disk, self.remote]
    }
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.device += other.device;
        self.peer += other.peer;
        self.host += other.host;
        self.disk += other.disk;
        self.remote += other.remote;
    }
}

/// Where the rows that are read go in a result of `R x F`.
#[derive(Clone, Copy, Debug)]
pub enum Places<'p> {
    /// The `i`-th to row `i`.
    InOrder,
    /// The `i`-th to the row of that number: strictly ascending, as many as rows are read.
    At(&'p [u32]),
}

/// Where the rows of a batch are in a cache, looked up ahead of reading them (FGNN marks them in the Sample stage, section 5.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Which cache they are of: caches that hold the same rows in the same slots have the same number.
    cache: Option<u64>,
    /// The slot of each row, or none.
    slots: Vec<u32>,
}

impl Marks {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.cache = None;
        self.slots.clear();
    }
}

/// A table of feature rows, wherever it lives. Every tier returns the same bytes.
pub trait Feature: Send + Sync {
    /// `F`.
    fn dim(&self) -> usize;

    /// `V`.
    fn num_rows(&self) -> usize;

    /// Copies the rows of `ids` (each below `V`) to their `places` in `out` (`R x F`; its other rows are left alone), and says what
    /// that cost.
    ///
    /// # Errors
    /// A tier cannot be read; `out` may then hold anything.
    fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> Result<Traffic>;

    /// [`Feature::read_to`] that calls `beside` once, with the same `out`: while it waits for rows, where it can, and else behind. Says
    /// what both cost.
    ///
    /// # Errors
    /// As [`Feature::read_to`], and those of `beside`.
    fn read_beside(
        &self,
        ids: &[NodeId],
        places: Places,
        out: &mut [f32],
        beside: &mut dyn FnMut(&mut [f32]) -> Result<Traffic>,
    ) -> Result<Traffic> {
        let mut traffic = self.read_to(ids, places, out)?;
        traffic += beside(out)?;
        Ok(traffic)
    }

    /// Copies the rows of `ids` (each below `V`) to `out` (`len x F`) and says what that cost.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn read(&self, ids: &[NodeId], out: &mut [f32]) -> Result<Traffic> {
        self.read_to(ids, Places::InOrder, out)
    }

    /// Makes `out` the rows of `ids` (each below `V`), sparse where they are stored so, and says what that cost.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        out.resize(ids.len(), self.dim());
        self.read(ids, out.view_mut().host())
    }

    /// Looks up where the rows of `ids` (each below `V`) are, for [`Feature::gather_marked`]; a tier whose rows come and go has
    /// nothing to say.
    fn mark(&self, _ids: &[NodeId], marks: &mut Marks) {
        marks.clear();
    }

    /// [`Feature::gather`] with the marks of these `ids`; those of another cache are passed over.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather_marked(&self, ids: &[NodeId], _marks: &Marks, out: &mut Matrix) -> Result<Traffic> {
        self.gather(ids, out)
    }

    /// [`Feature::gather_marked`] of ids that a device has too, u32 each.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather_drawn(
        &self,
        ids: &[NodeId],
        _on_device: &Arc<dyn DeviceMemory>,
        marks: &Marks,
        out: &mut Matrix,
    ) -> Result<Traffic> {
        self.gather_marked(ids, marks, out)
    }

    /// Puts blocks where the rows are read to, ahead of who works with them there; on the host they are there already.
    ///
    /// # Errors
    /// There is no room.
    fn place_blocks(&self, _blocks: &[Block]) -> Result<()> {
        Ok(())
    }

    /// Bytes of a row where it is stored; of sparse rows in the mean.
    fn row_bytes(&self) -> u64;

    /// The whole table (`V x F`), where it can be read in place: dense, in host memory.
    fn table(&self) -> Option<TableData> {
        None
    }
}

impl<T: Feature + ?Sized> Feature for Arc<T> {
    fn dim(&self) -> usize {
        (**self).dim()
    }
    fn num_rows(&self) -> usize {
        (**self).num_rows()
    }
    fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> Result<Traffic> {
        (**self).read_to(ids, places, out)
    }
    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        (**self).gather(ids, out)
    }
    fn mark(&self, ids: &[NodeId], marks: &mut Marks) {
        (**self).mark(ids, marks);
    }
    fn gather_marked(&self, ids: &[NodeId], marks: &Marks, out: &mut Matrix) -> Result<Traffic> {
        (**self).gather_marked(ids, marks, out)
    }
    fn gather_drawn(
        &self,
        ids: &[NodeId],
        on_device: &Arc<dyn DeviceMemory>,
        marks: &Marks,
        out: &mut Matrix,
    ) -> Result<Traffic> {
        (**self).gather_drawn(ids, on_device, marks, out)
    }
    fn place_blocks(&self, blocks: &[Block]) -> Result<()> {
        (**self).place_blocks(blocks)
    }
    fn row_bytes(&self) -> u64 {
        (**self).row_bytes()
    }
    fn table(&self) -> Option<TableData> {
        (**self).table()
    }
}

/// Runs of a request side by side: `work` gets some of `ids`, their places from the start of the part of `out` that it gets, and that
/// part. Each row of `out` is in one part at most.
pub(crate) fn in_runs(
    ids: &[NodeId],
    places: Places,
    dim: usize,
    out: &mut [f32],
    run: usize,
    work: &(impl Fn(&[NodeId], Option<(&[u32], u32)>, &mut [f32]) + Sync),
) {
    let Places::At(at) = places else {
        assert_eq!(out.len(), ids.len() * dim, "room for {} rows of {dim}", ids.len());
        if dim > 0 {
            ids.par_chunks(run)
                .zip(out.par_chunks_mut(run * dim))
                .for_each(|(ids, out)| work(ids, None, out));
        }
        return;
    };
    assert_eq!(at.len(), ids.len(), "a place for each row");
    split(ids, at, 0, dim, out, run, work);
}

/// [`in_runs`] of rows with places, `out` beginning at row `first`: in halves, as long as they are longer than a run.
fn split(
    ids: &[NodeId],
    at: &[u32],
    first: u32,
    dim: usize,
    out: &mut [f32],
    run: usize,
    work: &(impl Fn(&[NodeId], Option<(&[u32], u32)>, &mut [f32]) + Sync),
) {
    if ids.len() <= run {
        return work(ids, Some((at, first)), out);
    }
    let half = ids.len() / 2;
    let middle = at[half];
    let (before, behind) = out.split_at_mut((middle - first) as usize * dim);
    rayon::join(
        || split(&ids[..half], &at[..half], first, dim, before, run, work),
        || split(&ids[half..], &at[half..], middle, dim, behind, run, work),
    );
}
