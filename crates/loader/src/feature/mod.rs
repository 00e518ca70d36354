//! Node ids to feature rows: tiers that nest, with counters.

pub mod cached;
pub mod disk;
pub mod host;
pub mod link;
mod scatter;
mod stream;
mod traffic;
mod widen;

use std::sync::Arc;

use graphmill_core::{Block, Matrix, NodeId, Result, accelerator::DeviceMemory};

use rayon::prelude::*;

pub use disk::{Disk, DiskOptions};
pub use host::Host;
pub use link::{Link, LinkOptions, Linked};
pub use traffic::{TierTraffic, Traffic};

/// Where the rows that are read go in a result of `R x F`.
#[derive(Clone, Copy, Debug)]
pub enum Places<'p> {
    /// The `i`-th to row `i`.
    InOrder,
    /// The `i`-th to the row of that number: strictly ascending, as many as rows are read.
    At(&'p [u32]),
}

/// Work that a read does while it waits for its rows: it may write rows of the result that are not
/// read.
pub type Beside<'b> = dyn FnMut(&mut [f32]) -> Result<Traffic> + 'b;

/// No work beside a read.
///
/// # Errors
/// Never.
pub fn nothing(_: &mut [f32]) -> Result<Traffic> {
    Ok(Traffic::default())
}

/// Where the rows of a batch are in a cache, looked up ahead of reading them (FGNN marks them in
/// the Sample stage, section 5.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Which cache they are of: caches that hold the same rows in the same slots have the same
    /// number.
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
///
/// ```
/// use graphmill_core::{NodeId, Result};
/// use graphmill_loader::{Feature, Traffic, feature::{Capabilities, Places}};
///
/// /// Rows that are computed when they are read: the node's id and its square.
/// struct Powers;
///
/// impl Feature for Powers {
///     fn dim(&self) -> usize {
///         2
///     }
///     fn num_rows(&self) -> usize {
///         100
///     }
///     fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> Result<Traffic> {
///         for (i, &v) in ids.iter().enumerate() {
///             let row = match places {
///                 Places::InOrder => i,
///                 Places::At(rows) => rows[i] as usize,
///             };
///             out[2 * row..][..2].copy_from_slice(&[v as f32, (v * v) as f32]);
///         }
///         Ok(Traffic::default())
///     }
///     fn row_bytes(&self) -> u64 {
///         0
///     }
///     fn capabilities(&self) -> Capabilities<'_> {
///         Capabilities::default()
///     }
/// }
///
/// let mut rows = [0.0; 4];
/// Powers.read(&[3, 9], &mut rows)?;
/// assert_eq!(rows, [3.0, 9.0, 9.0, 81.0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
///
/// Pointers to tiers (`Arc`, `Box`, `&`) deliberately do not implement it: a call through one
/// dereferences to the tier, so that no forwarding method can be missing.
pub trait Feature: Send + Sync {
    /// `F`.
    fn dim(&self) -> usize;

    /// `V`.
    fn num_rows(&self) -> usize;

    /// Copies the rows of `ids` (each below `V`) to their `places` in `out` (`R x F`; its other
    /// rows are left alone), and says what that cost.
    ///
    /// # Errors
    /// A tier cannot be read; `out` may then hold anything.
    fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> Result<Traffic>;

    /// Copies the rows of `ids` (each below `V`) to `out` (`len x F`) and says what that cost.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn read(&self, ids: &[NodeId], out: &mut [f32]) -> Result<Traffic> {
        self.read_to(ids, Places::InOrder, out)
    }

    /// Makes `out` the rows of `ids` (each below `V`), sparse where they are stored so, and says
    /// what that cost.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        out.resize(ids.len(), self.dim());
        self.read(ids, out.view_mut().host())
    }

    /// Bytes of a row where it is stored; of sparse rows in the mean.
    fn row_bytes(&self) -> u64;

    /// More that the tier can do. A tier around another decides here, for each capability, what it
    /// passes on.
    fn capabilities(&self) -> Capabilities<'_>;
}

/// The capabilities of a tier beyond [`Feature`]: none by default.
#[derive(Clone, Copy, Default)]
pub struct Capabilities<'f> {
    /// Other work runs while a read waits.
    pub overlapped: Option<&'f dyn OverlappedFeature>,
    /// The slots of a batch's rows can be looked up ahead of reading them.
    pub marked: Option<&'f dyn MarkedFeature>,
    /// Rows are read to a device's memory.
    pub device: Option<&'f dyn DeviceFeature>,
}

/// A tier whose reads wait, so that other work can run meanwhile.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_core::{Features, matrix::TableType};
/// use graphmill_loader::{
///     Feature,
///     feature::{Host, Places, cached::{Level, Pinned, Placement, placed}, nothing},
/// };
///
/// let host = Arc::new(Host::new(&Features::f32(1, vec![0.0, 10.0, 20.0])));
/// let cache = Pinned::new(placed(&[2], 1, 1, Placement::Shard), TableType::F32, host, Level::Host)?;
/// let tier = cache.capabilities().overlapped.expect("a cache passes work on to the tier behind it");
/// let mut rows = [0.0; 3];
/// let mut beside = |rows: &mut [f32]| {
///     rows[2] = -1.0;
///     nothing(rows)
/// };
/// tier.read_overlapped(&[1, 2], Places::At(&[0, 1]), &mut rows, &mut beside)?;
/// assert_eq!(rows, [10.0, 20.0, -1.0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait OverlappedFeature: Feature {
    /// [`Feature::read_to`] that calls `beside` once, with the same `out`, while it waits for rows
    /// if it does. Returns the cost of both. A tier in front of another passes `beside` on to it.
    ///
    /// # Errors
    /// As [`Feature::read_to`], and those of `beside`.
    fn read_overlapped(
        &self,
        ids: &[NodeId],
        places: Places,
        out: &mut [f32],
        beside: &mut Beside,
    ) -> Result<Traffic>;
}

/// A cache whose slots can be looked up ahead of reading them.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_core::{Features, Matrix, matrix::TableType};
/// use graphmill_loader::{
///     Feature,
///     feature::{Host, Marks, cached::{Level, Pinned, Placement, placed}},
/// };
///
/// let host = Arc::new(Host::new(&Features::f32(1, vec![0.0, 10.0, 20.0])));
/// let cache = Pinned::new(placed(&[2], 1, 1, Placement::Shard), TableType::F32, host, Level::Host)?;
/// let tier = cache.capabilities().marked.expect("the slots of pinned rows do not change");
/// let (ids, mut marks, mut rows) = ([1, 2], Marks::default(), Matrix::default());
/// tier.mark(&ids, &mut marks);
/// tier.gather_marked(&ids, &marks, &mut rows)?;
/// assert_eq!(rows.view().host(), [10.0, 20.0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait MarkedFeature: Feature {
    /// Looks up the slots of the rows of `ids` (each below `V`), for
    /// [`MarkedFeature::gather_marked`].
    fn mark(&self, ids: &[NodeId], marks: &mut Marks);

    /// [`Feature::gather`] with the marks of these `ids`; those of another cache are ignored.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather_marked(&self, ids: &[NodeId], marks: &Marks, out: &mut Matrix) -> Result<Traffic>;
}

/// A tier that reads rows to a device's memory.
///
/// ```
/// use graphmill_core::Features;
/// use graphmill_loader::{Feature, feature::Host};
///
/// // tiers of devices have the capability, those of the host have not
/// let host = Host::new(&Features::f32(1, vec![0.0, 10.0]));
/// assert!(host.capabilities().device.is_none());
/// ```
pub trait DeviceFeature: Feature {
    /// [`Feature::gather`] of ids that a device has too, u32 each.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather_on_device(
        &self,
        ids: &[NodeId],
        on_device: &Arc<dyn DeviceMemory>,
        out: &mut Matrix,
    ) -> Result<Traffic>;

    /// Copies blocks to the device ahead of their use there.
    ///
    /// # Errors
    /// The device's memory is not enough.
    fn place_blocks(&self, blocks: &[Block]) -> Result<()>;
}

/// [`OverlappedFeature::read_overlapped`] of any tier: without the capability `beside` runs after
/// the read.
///
/// # Errors
/// As [`Feature::read_to`], and those of `beside`.
pub fn read_overlapped(
    feature: &dyn Feature,
    ids: &[NodeId],
    places: Places,
    out: &mut [f32],
    beside: &mut Beside,
) -> Result<Traffic> {
    if let Some(feature) = feature.capabilities().overlapped {
        return feature.read_overlapped(ids, places, out, beside);
    }
    let mut traffic = feature.read_to(ids, places, out)?;
    traffic += beside(out)?;
    Ok(traffic)
}

/// Runs of a request side by side: `work` gets some of `ids`, their places from the start of the
/// part of `out` that it gets, and that part. Each row of `out` is in one part at most.
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

/// [`in_runs`] of rows with places, `out` beginning at row `first`: in halves, as long as they are
/// longer than a run.
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
