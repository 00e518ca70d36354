//! A static cache of the hottest rows, loaded once.

use std::{sync::Arc, time::Instant};

use graphmill_core::{
    Error, Features, Matrix, NodeId, ObjectPool, Result, SparseRows,
    buffer::Buffer,
    keyed,
    matrix::{TableData, TableType},
    memory,
};
use half::{bf16, f16, slice::HalfFloatSliceExt};
use rayon::prelude::*;

use super::{
    CacheLayout, Level, Reader, RowFormat,
    sparse::{dense_rows, sparse_bytes},
};
use crate::{
    feature::{
        Capabilities, Feature, Host, Link, MarkedFeature, Marks, OutputRows, OverlappedFeature,
        OverlappedWork, SlottedFeature, TierTraffic, Traffic, no_work, read_overlapped,
    },
    policy::MISS,
};

/// Number of rows that are loaded together.
const LOAD_LEN: usize = 1 << 14;
/// Minimum number of ids that one task looks up.
const MIN_TASK_LEN: usize = 1 << 12;

/// A static cache, or a reader of one that several devices share.
pub struct Pinned {
    rows: Arc<PinnedRows>,
    reader: Reader,
    scratch: ObjectPool<Scratch>,
}

/// Rows of a static cache, which never change.
struct PinnedRows {
    slots: SlotMap,
    /// Cached rows by slot.
    near: Host,
    layout: CacheLayout,
    /// Hash of the rows in all slots.
    identity: u64,
}

/// Slots of the cached nodes.
enum SlotMap {
    /// Slot of each node (`V`), or [`MISS`].
    Table(Vec<u32>),
    /// The nodes below this number, each in the slot of its number: the boundary of a dataset whose
    /// hottest nodes come first (Data Tiering, section 4.1).
    Boundary(u32),
}

impl SlotMap {
    /// Map of the nodes `ids`, in the order of their slots, out of `num_nodes` nodes.
    fn new(ids: &[NodeId], num_nodes: usize) -> Self {
        if ids.iter().enumerate().all(|(slot, &v)| slot == v as usize) {
            return Self::Boundary(ids.len() as u32);
        }
        let mut slots = Vec::new();
        memory::demand_len(&mut slots, num_nodes, MISS);
        for (slot, &v) in ids.iter().enumerate() {
            slots[v as usize] = slot as u32;
        }
        Self::Table(slots)
    }

    /// Looks up the slot of each id.
    fn look_up(&self, ids: &[NodeId], slots: &mut Vec<u32>) {
        memory::demand_len(slots, ids.len(), 0);
        let pairs = slots.par_iter_mut().with_min_len(MIN_TASK_LEN).zip(ids);
        match self {
            Self::Table(table) => pairs.for_each(|(slot, &v)| *slot = table[v as usize]),
            Self::Boundary(end) => pairs.for_each(|(slot, &v)| *slot = if v < *end { v } else { MISS }),
        }
    }
}

/// Rows to read, with known slots.
#[derive(Clone, Copy)]
struct Request<'r> {
    ids: &'r [NodeId],
    slots: &'r [u32],
    places: OutputRows<'r>,
    began: Instant,
}

/// Scratch buffers of one read.
#[derive(Default)]
struct Scratch {
    slots: Vec<u32>,
    split: HitsAndMisses,
    /// Rows that are not read in place; their places are slots.
    staged: RowList,
    /// Misses of sparse rows.
    sparse: Matrix,
}

/// Rows of a request that are cached, and the others.
#[derive(Default)]
struct HitsAndMisses {
    near: RowList,
    far: RowList,
}

/// Rows of a request with their positions in the result.
#[derive(Default)]
struct RowList {
    ids: Vec<NodeId>,
    places: Vec<u32>,
}

impl RowList {
    fn clear(&mut self) {
        self.ids.clear();
        self.places.clear();
    }

    fn push(&mut self, id: NodeId, place: u32) {
        memory::demand_push(&mut self.ids, id);
        memory::demand_push(&mut self.places, place);
    }
}

impl Pinned {
    /// Loads the rows of `layout` from `behind`, to store them in this format, which is that of all
    /// its rows. Takes `4 V` bytes besides the rows, or none if they are the first of the table, in
    /// order.
    ///
    /// # Errors
    /// The rows cannot be read, or the memory cannot be allocated.
    pub fn new(
        layout: CacheLayout,
        format: impl Into<RowFormat>,
        behind: Arc<dyn Feature>,
        level: Level,
    ) -> Result<Self> {
        let slots = SlotMap::new(&layout.ids, behind.num_rows());
        let (ids, from, dim) = (&layout.ids, &*behind, behind.dim());
        let near = match format.into() {
            RowFormat::Sparse => Host::new(&Features::csr(load_sparse(ids, from)?)),
            RowFormat::Dense(kind) => {
                let data = match kind {
                    TableType::F32 => TableData::F32(load(ids, from, |from, to| to.copy_from_slice(from))?),
                    TableType::F16 => TableData::F16(load(ids, from, |from, to: &mut [f16]| {
                        to.convert_from_f32_slice(from)
                    })?),
                    TableType::Bf16 => TableData::Bf16(load(ids, from, |from, to: &mut [bf16]| {
                        to.convert_from_f32_slice(from)
                    })?),
                };
                Host::of_table(dim, data)
            }
        };
        let identity = layout.ids.iter().fold(0, |sum, &v| keyed::key(&[sum, v.into()]));
        let rows = Arc::new(PinnedRows { slots, near, layout, identity });
        Ok(Self { rows, reader: Reader::new(behind, level), scratch: ObjectPool::default() })
    }

    /// The same rows as device `reader` reads them; `behind` is the tier of its misses.
    #[must_use]
    pub fn reader(&self, reader: usize, behind: Arc<dyn Feature>) -> Self {
        let reader = self.reader.on(reader, behind);
        Self { rows: self.rows.clone(), reader, scratch: ObjectPool::default() }
    }

    /// The same cache with a link over which it reads the rows of other devices.
    #[must_use]
    pub fn with_peer_link(mut self, link: Arc<Link>) -> Self {
        self.reader.peer_link = Some(link);
        self
    }

    /// Tests whether the row in a slot is on the reader's own device, if several share the cache.
    fn is_own(&self) -> impl Fn(u32) -> bool + Sync {
        let (layout, level) = (&self.rows.layout, self.reader.level);
        let replicas = if level.has_rows() { layout.replicated } else { 0 };
        move |slot| {
            let slot = slot as usize;
            level.devices() == 1 || slot < replicas || level.is_own(layout.owners[slot].into())
        }
    }

    /// Number of rows in slots of the reader's own device, and of its peers.
    fn count(&self, slots: &[u32]) -> (u64, u64) {
        let all = slots.len() as u64;
        if self.reader.level.devices() == 1 {
            return (all, 0);
        }
        let is_own = self.is_own();
        let own = slots.par_iter().with_min_len(MIN_TASK_LEN).filter(|&&slot| is_own(slot)).count() as u64;
        (own, all - own)
    }

    /// Gathers sparse rows whose slots are known: cached `rows`, and the others from the next tier.
    fn gather_sparse(
        &self,
        rows: &SparseRows,
        Request { ids, slots, began, .. }: Request,
        HitsAndMisses { near, far }: &mut HitsAndMisses,
        missed: &mut Matrix,
        out: &mut Matrix,
    ) -> Result<Traffic> {
        near.clear();
        far.clear();
        let (level, held, is_own) = (self.reader.level, rows.num_rows() as u32, self.is_own());
        let (mut own, mut peers) = (TierTraffic::default(), TierTraffic::default());
        for (&slot, &v) in slots.iter().zip(ids) {
            if slot == MISS {
                // numbers from `held` on are misses
                memory::demand_push(&mut near.ids, held + far.ids.len() as u32);
                memory::demand_push(&mut far.ids, v);
                continue;
            }
            memory::demand_push(&mut near.ids, slot);
            let side = if is_own(slot) { &mut own } else { &mut peers };
            side.rows += 1;
            side.bytes += sparse_bytes(1, rows.row(slot as usize).0.len());
        }
        own.nanos = TierTraffic::since(began, 0, 0).nanos;
        let mut traffic = level.traffic(own, self.reader.cross(peers, began));
        if !far.ids.is_empty() {
            traffic += self.reader.behind.gather(&far.ids, missed)?;
            if !missed.is_sparse() {
                return Err(dense_rows());
            }
        }
        let (began, missed) = (Instant::now(), missed.view());
        out.gather_sparse_with(self.dim(), &near.ids, |number| match number.checked_sub(held) {
            None => rows.row(number as usize),
            Some(miss) => missed.sparse_row(miss as usize).unwrap_or_default(),
        });
        traffic += level.traffic(TierTraffic::since(began, 0, 0), TierTraffic::default());
        Ok(traffic)
    }

    /// Reads the rows of ids whose slots are known. Cached rows are read, and `work` is called,
    /// while the next tier waits for the others.
    fn serve(
        &self,
        Request { ids, slots, places, began }: Request,
        HitsAndMisses { near, far }: &mut HitsAndMisses,
        out: &mut [f32],
        work: &mut OverlappedWork,
    ) -> Result<Traffic> {
        near.clear();
        far.clear();
        for (i, (&slot, &v)) in slots.iter().zip(ids).enumerate() {
            let place = match places {
                OutputRows::InOrder => i as u32,
                OutputRows::At(at) => at[i],
            };
            if slot == MISS { far.push(v, place) } else { near.push(slot, place) }
        }
        let looking = TierTraffic::since(began, 0, 0);
        let mut traffic = self.reader.level.traffic(looking, TierTraffic::default());
        if far.ids.is_empty() {
            traffic += self.read_near(slots, places, out)?;
            traffic += work(out)?;
            return Ok(traffic);
        }
        let mut read_near = |out: &mut [f32]| {
            let mut traffic = Traffic::default();
            if !near.ids.is_empty() {
                traffic += self.read_near(&near.ids, OutputRows::At(&near.places), out)?;
            }
            traffic += work(out)?;
            Ok(traffic)
        };
        traffic += read_overlapped(
            &*self.reader.behind,
            &far.ids,
            OutputRows::At(&far.places),
            out,
            &mut read_near,
        )?;
        Ok(traffic)
    }

    /// Reads cached rows.
    fn read_near(&self, slots: &[u32], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let began = Instant::now();
        let near = &self.rows.near;
        let read = near.read_to(slots, places, out)?.host;
        let (own, peers) = self.count(slots);
        let part = |rows: u64| TierTraffic {
            rows,
            bytes: rows * near.row_bytes(),
            nanos: read.nanos * rows / read.rows.max(1),
        };
        Ok(self.reader.level.traffic(part(own), self.reader.cross(part(peers), began)))
    }
}

/// Reads the rows of `ids` in their order.
fn load<T: bytemuck::Pod + Send + Sync>(
    ids: &[NodeId],
    behind: &dyn Feature,
    convert: impl Fn(&[f32], &mut [T]),
) -> Result<Buffer<T>> {
    let dim = behind.dim();
    Buffer::filled_huge_pages(ids.len() * dim, |rows| {
        if dim == 0 {
            return Ok(());
        }
        let mut run = vec![0.0; LOAD_LEN.min(ids.len()) * dim];
        // in ascending order, as in a file
        let mut by_id: Vec<u32> = (0..ids.len() as u32).collect();
        by_id.par_sort_unstable_by_key(|&slot| ids[slot as usize]);
        let mut wanted = Vec::with_capacity(LOAD_LEN);
        for slots in by_id.chunks(LOAD_LEN) {
            wanted.clear();
            wanted.extend(slots.iter().map(|&slot| ids[slot as usize]));
            let run = &mut run[..slots.len() * dim];
            behind.read(&wanted, run)?;
            for (&slot, row) in slots.iter().zip(run.chunks_exact(dim)) {
                convert(row, &mut rows[slot as usize * dim..(slot as usize + 1) * dim]);
            }
        }
        Ok(())
    })
}

/// Reads the sparse rows of `ids` in their order.
fn load_sparse(ids: &[NodeId], behind: &dyn Feature) -> Result<SparseRows> {
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut run = Matrix::default();
    for ids in ids.chunks(LOAD_LEN) {
        behind.gather(ids, &mut run)?;
        let Some(rows) = run.view().sparse() else { return Err(dense_rows()) };
        let before = indices.len() as u64;
        indptr.extend(rows.indptr[1..].iter().map(|&end| before + u64::from(end)));
        indices.extend_from_slice(rows.indices);
        values.extend_from_slice(rows.values);
    }
    SparseRows::new(behind.dim(), indptr.into(), indices.into(), values.into())?.to_huge_pages()
}

impl Feature for Pinned {
    fn dim(&self) -> usize {
        self.reader.behind.dim()
    }

    fn num_rows(&self) -> usize {
        self.reader.behind.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.read_overlapped(ids, places, out, &mut no_work)
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        let Some(rows) = self.rows.near.sparse() else {
            out.resize(ids.len(), self.dim());
            return self.read(ids, out.view_mut().host());
        };
        self.scratch.with(|Scratch { slots, split, sparse, .. }| {
            let began = Instant::now();
            self.rows.slots.look_up(ids, slots);
            self.gather_sparse(
                rows,
                Request { ids, slots, places: OutputRows::InOrder, began },
                split,
                sparse,
                out,
            )
        })
    }

    fn row_bytes(&self) -> u64 {
        self.reader.behind.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let is_f32 = matches!(self.rows.near.table(), Some(TableData::F32(_)));
        let slotted = is_f32.then_some(self as &dyn SlottedFeature);
        Capabilities { overlapped: Some(self), marked: Some(self), slotted, ..Capabilities::default() }
    }
}

impl OverlappedFeature for Pinned {
    fn read_overlapped(
        &self,
        ids: &[NodeId],
        places: OutputRows,
        out: &mut [f32],
        work: &mut OverlappedWork,
    ) -> Result<Traffic> {
        self.scratch.with(|Scratch { slots, split, .. }| {
            let began = Instant::now();
            self.rows.slots.look_up(ids, slots);
            self.serve(Request { ids, slots, places, began }, split, out, work)
        })
    }
}

impl SlottedFeature for Pinned {
    fn read_slots(&self, ids: &[NodeId], slots: &mut Vec<u32>, out: &mut Matrix) -> Result<Traffic> {
        let (began, near) = (Instant::now(), &self.rows.near);
        let Some(TableData::F32(cached)) = near.table() else {
            return Err(Error::invalid("a cache of f32 alone is read in place: gather its rows"));
        };
        self.rows.slots.look_up(ids, slots);
        self.scratch.with(|Scratch { split, staged, .. }| {
            staged.clear();
            let (is_own, held) = (self.is_own(), near.num_rows() as u32);
            for (slot, &v) in slots.iter_mut().zip(ids) {
                // rows of peers cross a link once, so they are copied as those of the next tier
                if *slot == MISS || !is_own(*slot) {
                    staged.push(v, *slot);
                    *slot = held + staged.ids.len() as u32 - 1;
                }
            }
            let own = (ids.len() - staged.ids.len()) as u64;
            let own = TierTraffic::since(began, own, own * near.row_bytes());
            let mut traffic = self.reader.level.traffic(own, TierTraffic::default());
            let rows = out.set_slots(&cached, staged.ids.len(), self.dim());
            if !staged.ids.is_empty() {
                let RowList { ids, places: slots } = &*staged;
                let request = Request { ids, slots, places: OutputRows::InOrder, began: Instant::now() };
                traffic += self.serve(request, split, rows, &mut no_work)?;
            }
            Ok(traffic)
        })
    }
}

impl MarkedFeature for Pinned {
    fn mark(&self, ids: &[NodeId], marks: &mut Marks) {
        marks.cache = Some(self.rows.identity);
        self.rows.slots.look_up(ids, &mut marks.slots);
    }

    fn gather_marked(&self, ids: &[NodeId], marks: &Marks, out: &mut Matrix) -> Result<Traffic> {
        if marks.cache != Some(self.rows.identity) || marks.slots.len() != ids.len() {
            return self.gather(ids, out);
        }
        let request =
            Request { ids, slots: &marks.slots, places: OutputRows::InOrder, began: Instant::now() };
        self.scratch.with(|Scratch { split, sparse, .. }| {
            if let Some(rows) = self.rows.near.sparse() {
                return self.gather_sparse(rows, request, split, sparse, out);
            }
            out.resize(ids.len(), self.dim());
            self.serve(request, split, out.view_mut().host(), &mut no_work)
        })
    }
}
