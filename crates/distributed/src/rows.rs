//! Feature rows of remote nodes: the remote tier, behind an optional cache.

#![forbid(unsafe_code)]

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use graphmill_core::{Error, Matrix, NodeId, Result, matrix::TableType, memory};
use graphmill_loader::{
    Feature, Traffic,
    feature::{
        Capabilities, OutputRows, OverlappedFeature, OverlappedWork, TierTraffic, no_work, read_overlapped,
    },
};

use crate::{
    Messenger, NodeOwnership,
    messenger::{HEADER, Service},
    row_requests::{place, read_shares, rows_of_an_answer},
    row_words::{append_f32, append_rows, words_of_rows, write_rows},
    transport::Lane,
};

/// Number of the feature-row service. The services of other tables follow.
pub const ROWS: u32 = 16;
/// Bytes on the wire for requesting `rows` rows of `dim` values from a rank, and for the reply in
/// values of type `kind`.
pub fn bytes_of_rows(rows: usize, dim: usize, kind: TableType) -> [u64; 2] {
    let most = rows_of_an_answer(dim);
    let (messages, last) = (rows.div_ceil(most), rows % most);
    let mut replies = (rows / most) * words_of_rows(most, dim, kind);
    if last > 0 {
        replies += words_of_rows(last, dim, kind);
    }
    [HEADER * messages + rows, HEADER * messages + replies].map(|words| 4 * words as u64)
}

/// Rows of remote nodes. It is never asked for own rows.
pub struct Remote {
    post: Arc<Messenger>,
    book: Arc<NodeOwnership>,
    service: u32,
    dim: usize,
    kind: TableType,
}

impl Remote {
    /// Creates the tier of rows of `dim` values, read by the owners' service of that number.
    pub fn new(post: Arc<Messenger>, book: Arc<NodeOwnership>, service: u32, dim: usize) -> Self {
        Self { post, book, service, dim, kind: TableType::F32 }
    }

    /// Expects rows in values of type `kind` (f32 if not called): [`Feature::row_bytes`] depends on
    /// it. Rows of any type are read, because replies name theirs.
    #[must_use]
    pub fn stored_in(self, kind: TableType) -> Self {
        Self { kind, ..self }
    }
}

impl Feature for Remote {
    fn dim(&self) -> usize {
        self.dim
    }

    fn num_rows(&self) -> usize {
        self.book.num_nodes()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.read_overlapped(ids, places, out, &mut no_work)
    }

    fn row_bytes(&self) -> u64 {
        (self.dim * self.kind.width()) as u64
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { overlapped: Some(self), ..Capabilities::default() }
    }
}

impl OverlappedFeature for Remote {
    fn read_overlapped(
        &self,
        ids: &[NodeId],
        places: OutputRows,
        out: &mut [f32],
        work: &mut OverlappedWork,
    ) -> Result<Traffic> {
        let shares = self.book.by_owner(ids);
        read_shares((&self.post, self.service), self.dim, (&shares, places), out, work)
    }
}

/// Service that replies with own rows, indexed by ascending own node.
pub struct RowService {
    book: Arc<NodeOwnership>,
    table: Table,
}

/// Source of the own rows.
#[derive(Clone)]
pub enum Table {
    /// Constant table.
    Constant(Arc<dyn Feature>),
    /// Table that is rewritten from time to time, while no requests are pending.
    Written(Arc<RwLock<Matrix>>),
}

impl RowService {
    /// Creates the service of this table.
    pub fn new(book: Arc<NodeOwnership>, table: Table) -> Self {
        Self { book, table }
    }
}

impl Service for RowService {
    fn answer(&self, _: usize, ids: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        self.table.append(&self.book.places(ids)?, answer)
    }

    fn lane(&self) -> Lane {
        Lane::Rows
    }
}

impl Table {
    /// Copies these rows to positions in `out`.
    fn read_to(&self, rows: &[u32], at: &[u32], out: &mut [f32]) -> Result<Traffic> {
        match self {
            Self::Constant(feature) => feature.read_to(rows, OutputRows::At(at), out),
            Self::Written(table) => {
                let began = Instant::now();
                let table = table.read().unwrap_or_else(PoisonError::into_inner);
                let (dim, view) = (table.num_cols(), table.view());
                let from = view.host();
                write_rows(at, dim, out, &|i, to| {
                    to.copy_from_slice(&from[rows[i] as usize * dim..][..dim]);
                });
                let count = rows.len() as u64;
                let host = TierTraffic::since(began, count, count * 4 * dim as u64);
                Ok(Traffic { host, ..Traffic::default() })
            }
        }
    }

    /// Appends these rows and their type.
    fn append(&self, places: &[u32], words: &mut Vec<u32>) -> Result<()> {
        match self {
            Self::Constant(feature) => append_rows(&**feature, places, words),
            Self::Written(table) => {
                let dim = table.read().unwrap_or_else(PoisonError::into_inner).num_cols();
                let at = memory::demand_collect(0..places.len() as u32);
                append_f32(places.len() * dim, words, |out| self.read_to(places, &at, out).map(drop))
            }
        }
    }
}

/// All rows: own ones from a table, remote ones from the remote tier or a cache before it.
pub struct OwnedAndRemoteRows {
    book: Arc<NodeOwnership>,
    own: Table,
    others: Arc<dyn Feature>,
}

impl OwnedAndRemoteRows {
    /// Combines own rows from `own`, indexed by ascending own node, and remote rows from `others`.
    pub fn new(book: Arc<NodeOwnership>, own: Table, others: Arc<dyn Feature>) -> Self {
        Self { book, own, others }
    }
}

impl Feature for OwnedAndRemoteRows {
    fn dim(&self) -> usize {
        self.others.dim()
    }

    fn num_rows(&self) -> usize {
        self.book.num_nodes()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.read_overlapped(ids, places, out, &mut no_work)
    }

    fn row_bytes(&self) -> u64 {
        self.others.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { overlapped: Some(self), ..Capabilities::default() }
    }
}

impl OverlappedFeature for OwnedAndRemoteRows {
    fn read_overlapped(
        &self,
        ids: &[NodeId],
        places: OutputRows,
        out: &mut [f32],
        work: &mut OverlappedWork,
    ) -> Result<Traffic> {
        let (mut own, mut own_at, mut others, mut others_at) = (vec![], vec![], vec![], vec![]);
        for (i, &v) in ids.iter().enumerate() {
            if self.book.is_own(v) {
                memory::demand_push(&mut own, self.book.place(v));
                memory::demand_push(&mut own_at, place(places, i as u32));
            } else {
                memory::demand_push(&mut others, v);
                memory::demand_push(&mut others_at, place(places, i as u32));
            }
        }
        let mut near = |out: &mut [f32]| {
            let mut traffic = Traffic::default();
            if !own.is_empty() {
                traffic += self.own.read_to(&own, &own_at, out)?;
            }
            traffic += work(out)?;
            Ok(traffic)
        };
        if others.is_empty() {
            return near(out);
        }
        // Remote rows are in transit meanwhile.
        read_overlapped(&*self.others, &others, OutputRows::At(&others_at), out, &mut near)
    }
}

/// Concatenation of tables: the rows of several parts' nodes, ascending by node over all of them.
pub struct ConcatRows {
    tables: Vec<Arc<dyn Feature>>,
    /// Table of each row, and its index there.
    of: Vec<(u32, u32)>,
    /// True if the tables gather sparse rows.
    is_sparse: bool,
}

impl ConcatRows {
    /// Creates the concatenation of tables whose rows are those of `nodes`, ascending within each
    /// table.
    ///
    /// # Errors
    /// The tables have different widths.
    pub fn new<'n>(tables: Vec<Arc<dyn Feature>>, nodes: impl Iterator<Item = &'n [NodeId]>) -> Result<Self> {
        if let Some(other) = tables.iter().find(|table| table.dim() != tables[0].dim()) {
            let (a, b) = (tables[0].dim(), other.dim());
            return Err(Error::invalid(format!(
                "parts with rows of {a} and of {b} features; partition the dataset again"
            )));
        }
        let rows = nodes.enumerate().flat_map(|(table, nodes)| {
            nodes.iter().enumerate().map(move |(row, &v)| (v, (table as u32, row as u32)))
        });
        let mut rows: Vec<(NodeId, (u32, u32))> = rows.collect();
        rows.sort_unstable_by_key(|&(v, _)| v);
        Ok(Self { tables, of: rows.into_iter().map(|(_, of)| of).collect(), is_sparse: false })
    }

    /// The same rows of tables that gather sparse rows.
    #[must_use]
    pub fn sparse(self) -> Self {
        Self { is_sparse: true, ..self }
    }
}

impl Feature for ConcatRows {
    fn dim(&self) -> usize {
        self.tables.first().map_or(0, |table| table.dim())
    }

    fn num_rows(&self) -> usize {
        self.of.len()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let mut shares = vec![(Vec::new(), Vec::new()); self.tables.len()];
        for (i, &id) in ids.iter().enumerate() {
            let (table, row) = self.of[id as usize];
            let (rows, at) = &mut shares[table as usize];
            memory::demand_push(rows, row);
            memory::demand_push(at, place(places, i as u32));
        }
        let mut traffic = Traffic::default();
        for (table, (rows, at)) in self.tables.iter().zip(&shares) {
            if !rows.is_empty() {
                traffic += table.read_to(rows, OutputRows::At(at), out)?;
            }
        }
        Ok(traffic)
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        if !self.is_sparse {
            out.resize(ids.len(), self.dim());
            return self.read(ids, out.view_mut().host());
        }
        let mut shares = vec![Vec::new(); self.tables.len()];
        let from = ids.iter().map(|&id| {
            let (table, row) = self.of[id as usize];
            let share = &mut shares[table as usize];
            memory::demand_push(share, row);
            (table, share.len() - 1)
        });
        let from: Vec<(u32, usize)> = memory::demand_collect(from);
        let mut traffic = Traffic::default();
        let mut gathered = Vec::with_capacity(self.tables.len());
        for (table, rows) in self.tables.iter().zip(&shares) {
            let mut part = Matrix::default();
            traffic += table.gather(rows, &mut part)?;
            gathered.push(part);
        }
        let views: Vec<_> = gathered.iter().map(Matrix::view).collect();
        let row = |i: NodeId| {
            let (table, row) = from[i as usize];
            views[table as usize].sparse_row(row).unwrap_or_default()
        };
        let all = memory::demand_collect(0..ids.len() as NodeId);
        out.gather_sparse_with(self.dim(), &all, row);
        Ok(traffic)
    }

    fn row_bytes(&self) -> u64 {
        self.tables.first().map_or(0, |table| table.row_bytes())
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let half = self.tables.first().and_then(|table| table.capabilities().half);
        let is_same = self.tables.iter().all(|table| table.capabilities().half == half);
        Capabilities { half: half.filter(|_| is_same), ..Capabilities::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use graphmill_core::Features;
    use graphmill_data::partition::PartitionBook;
    use graphmill_loader::feature::Host;

    use super::*;

    /// Remote rows, in transit while `travel` is set.
    struct Travelling {
        rows: Host,
        travel: Arc<AtomicBool>,
    }

    impl Feature for Travelling {
        fn dim(&self) -> usize {
            self.rows.dim()
        }

        fn num_rows(&self) -> usize {
            self.rows.num_rows()
        }

        fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
            self.rows.read_to(ids, places, out)
        }

        fn row_bytes(&self) -> u64 {
            self.rows.row_bytes()
        }

        fn capabilities(&self) -> Capabilities<'_> {
            Capabilities { overlapped: Some(self), ..Capabilities::default() }
        }
    }

    impl OverlappedFeature for Travelling {
        fn read_overlapped(
            &self,
            ids: &[NodeId],
            places: OutputRows,
            out: &mut [f32],
            work: &mut OverlappedWork,
        ) -> Result<Traffic> {
            self.travel.store(true, Relaxed);
            let mut traffic = work(out)?;
            self.travel.store(false, Relaxed);
            traffic += self.read_to(ids, places, out)?;
            Ok(traffic)
        }
    }

    /// Own rows, which record whether remote ones were in transit when they were read.
    struct Own {
        rows: Host,
        travel: Arc<AtomicBool>,
        beside: AtomicBool,
    }

    impl Feature for Own {
        fn dim(&self) -> usize {
            self.rows.dim()
        }

        fn num_rows(&self) -> usize {
            self.rows.num_rows()
        }

        fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
            self.beside.store(self.travel.load(Relaxed), Relaxed);
            self.rows.read_to(ids, places, out)
        }

        fn row_bytes(&self) -> u64 {
            self.rows.row_bytes()
        }

        fn capabilities(&self) -> Capabilities<'_> {
            Capabilities::default()
        }
    }

    #[test]
    fn own_rows_are_read_while_remote_rows_are_in_transit() {
        // Rank 0 owns the even ones of ten nodes.
        let parts = PartitionBook::new(2, (0..10).map(|v| v % 2).collect::<Vec<u16>>()).unwrap();
        let book = Arc::new(NodeOwnership::new(parts, 0, 2).unwrap());
        let table = |of: &[f32]| Host::new(&Features::f32(1, of.to_vec()));
        let travel = Arc::new(AtomicBool::new(false));
        let all: Vec<f32> = (0..10).map(|v| v as f32).collect();
        let others = Arc::new(Travelling { rows: table(&all), travel: travel.clone() });
        let own =
            Arc::new(Own { rows: table(&[0.0, 2.0, 4.0, 6.0, 8.0]), travel, beside: AtomicBool::new(false) });
        let divided = OwnedAndRemoteRows::new(book, Table::Constant(own.clone()), others);
        let mut out = [0.0; 4];
        divided.read(&[3, 8, 1, 0], &mut out).unwrap();
        assert_eq!(out, [3.0, 8.0, 1.0, 0.0]);
        assert!(own.beside.load(Relaxed), "own rows were read after the remote ones");
    }
}
