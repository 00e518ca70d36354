//! Sparse feature rows over ranks: own ones from a table, those of other ranks as columns and
//! values.
//!
//! A reply has the end of every row, then the columns of all rows, then their values: 4 bytes a row
//! and 8 a stored value, instead of 4 for each of the `F` values of a dense row.

#![forbid(unsafe_code)]

use std::{collections::VecDeque, sync::Arc, time::Instant};

use graphmill_core::{Error, Matrix, NodeId, ObjectPool, Result, memory};
use graphmill_loader::{
    Feature, Traffic,
    feature::{
        Capabilities, OutputRows, TierTraffic,
        cached::{SparseCache, sparse_bytes as bytes},
        widen_sparse,
    },
};

use crate::{
    Messenger, NodeOwnership,
    messenger::{HEADER, Service},
    row_requests::{MAX_REPLY_BYTES, WINDOW},
    transport::Lane,
};

/// Bytes on the wire for a reply of `rows` rows with `stored` values, in one message.
pub fn bytes_of_sparse_rows(rows: usize, stored: usize) -> u64 {
    4 * (HEADER + rows + 2 * stored) as u64
}

/// Service that replies with own sparse rows, indexed by ascending own node.
pub struct SparseRowService {
    book: Arc<NodeOwnership>,
    table: Arc<dyn Feature>,
    scratch: ObjectPool<Matrix>,
}

impl SparseRowService {
    /// Creates the service of this table, which gathers sparse rows.
    pub fn new(book: Arc<NodeOwnership>, table: Arc<dyn Feature>) -> Self {
        Self { book, table, scratch: ObjectPool::default() }
    }
}

impl Service for SparseRowService {
    fn answer(&self, _: usize, ids: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        let places = self.book.places(ids)?;
        self.scratch.with(|rows| {
            self.table.gather(&places, rows)?;
            let Some(sparse) = rows.view().sparse() else {
                return Err(Error::invalid("this rank stores dense rows; use the same options on all ranks"));
            };
            memory::demand(answer, places.len() + 2 * sparse.indices.len());
            answer.extend_from_slice(&sparse.indptr[1..]);
            answer.extend_from_slice(sparse.indices);
            answer.extend_from_slice(bytemuck::cast_slice(sparse.values));
            Ok(())
        })
    }

    fn lane(&self) -> Lane {
        Lane::Rows
    }
}

/// Reply of an owner.
struct Reply {
    words: Vec<u32>,
    rows: usize,
    stored: usize,
}

impl Reply {
    /// Checks the words of a reply for `rows` rows of `dim` columns.
    fn read(words: Vec<u32>, rows: usize, dim: usize) -> Result<Self> {
        let bad = || Error::invalid("a reply of sparse rows differs from its declared length");
        let ends = words.get(HEADER..HEADER + rows).ok_or_else(bad)?;
        let stored = ends.last().map_or(0, |&end| end as usize);
        if words.len() != HEADER + rows + 2 * stored || !ends.is_sorted() {
            return Err(bad());
        }
        let columns = &words[HEADER + rows..HEADER + rows + stored];
        match columns.iter().find(|&&j| j as usize >= dim) {
            Some(j) => Err(Error::invalid(format!("column {j} of rows with {dim} columns"))),
            None => Ok(Self { words, rows, stored }),
        }
    }

    /// Columns and values of row `i`.
    fn row(&self, i: usize) -> (&[u32], &[f32]) {
        let (ends, rest) = self.words[HEADER..].split_at(self.rows);
        let (columns, values) = rest.split_at(self.stored);
        let run = i.checked_sub(1).map_or(0, |before| ends[before] as usize)..ends[i] as usize;
        (&columns[run.clone()], bytemuck::cast_slice(&values[run]))
    }
}

/// All rows, sparse: own ones from a table, those of other ranks from their owners or a cache.
pub struct SparseRankRows {
    post: Arc<Messenger>,
    book: Arc<NodeOwnership>,
    service: u32,
    own: Arc<dyn Feature>,
    /// Mean number of stored values of a row, by which requests are cut.
    mean_stored: usize,
    cache: Option<SparseCache>,
    scratch: ObjectPool<Matrix>,
}

/// Row of a request: the memory that holds it, and its number there.
#[derive(Clone, Copy)]
enum Place {
    Own(u32),
    Cached(u32),
    Remote { reply: u32, row: u32 },
}

impl SparseRankRows {
    /// Combines own rows from `own`, indexed by ascending own node and gathered in sparse form, and
    /// those of other ranks from their service of that number. Rows have `mean_stored` values on
    /// average.
    pub fn new(
        post: Arc<Messenger>,
        book: Arc<NodeOwnership>,
        service: u32,
        own: Arc<dyn Feature>,
        mean_stored: usize,
    ) -> Self {
        Self { post, book, service, own, mean_stored, cache: None, scratch: ObjectPool::default() }
    }

    /// The same rows with a cache of other ranks' rows.
    #[must_use]
    pub fn with_cache(self, cache: SparseCache) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Fetches the rows `ids` of other ranks into the cache.
    ///
    /// # Errors
    /// A rank did not reply.
    pub fn fill(&self, ids: &[NodeId]) -> Result<()> {
        let Some(cache) = &self.cache else { return Ok(()) };
        for ids in ids.chunks(1 << 14) {
            let mut from = vec![Place::Own(0); ids.len()];
            let all: Vec<u32> = (0..ids.len() as u32).collect();
            let replies = self.fetch(ids, &all, &mut from, &mut || Ok(()))?;
            let row = |i: usize| match from[i] {
                Place::Remote { reply, row } => replies[reply as usize].row(row as usize),
                Place::Own(_) | Place::Cached(_) => (&[][..], &[][..]),
            };
            cache.admit(ids, row, true);
        }
        Ok(())
    }

    /// Requests `ids` from their owners and calls `work` while the replies are in transit. Writes
    /// the place of each to `from`, at the position in `at`.
    fn fetch(
        &self,
        ids: &[NodeId],
        at: &[u32],
        from: &mut [Place],
        work: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Reply>> {
        let shares = self.book.by_owner(ids);
        let most = (MAX_REPLY_BYTES / 4 / (1 + 2 * self.mean_stored)).max(1);
        let longest = shares.iter().map(|share| share.ids.len()).max().unwrap_or(0);
        let questions =
            (0..longest.div_ceil(most)).flat_map(|i| self.post.others().map(move |to| (to, i * most)));
        let mut questions = questions.filter(|&(to, from)| from < shares[to].ids.len());
        let window = WINDOW * (self.post.size() - 1).max(1);
        let (mut asked, mut replies) = (VecDeque::with_capacity(window), Vec::new());
        let mut is_done = false;
        loop {
            while asked.len() < window
                && let Some((to, first)) = questions.next()
            {
                let share = &shares[to];
                let range = first..(first + most).min(share.ids.len());
                let ids = &share.ids[range.clone()];
                let asking = self.post.ask(to, self.service, |words| memory::demand_append(words, ids));
                asked.push_back((to, &share.at[range], asking));
            }
            if !std::mem::replace(&mut is_done, true) {
                work()?;
            }
            let Some((to, positions, asking)) = asked.pop_front() else { return Ok(replies) };
            let reply = Reply::read(asking.wait()?, positions.len(), self.own.dim())
                .map_err(|error| Error::Peer { rank: to, message: error.to_string() })?;
            for (row, &i) in (0..).zip(positions) {
                from[at[i as usize] as usize] = Place::Remote { reply: replies.len() as u32, row };
            }
            replies.push(reply);
        }
    }
}

impl Feature for SparseRankRows {
    fn dim(&self) -> usize {
        self.own.dim()
    }

    fn num_rows(&self) -> usize {
        self.book.num_nodes()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.scratch.with(|rows| {
            let traffic = self.gather(ids, rows)?;
            widen_sparse(rows.view(), places, out);
            Ok(traffic)
        })
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        let (mut own, mut others, mut at) = (Vec::new(), Vec::new(), Vec::new());
        let mut from = Vec::new();
        memory::demand(&mut from, ids.len());
        for (i, &v) in ids.iter().enumerate() {
            from.push(Place::Own(own.len() as u32));
            if self.book.is_own(v) {
                memory::demand_push(&mut own, self.book.place(v));
            } else {
                memory::demand_push(&mut others, v);
                memory::demand_push(&mut at, i as u32);
            }
        }
        let mut traffic = Traffic::default();
        let mut cached = Vec::new();
        if let Some(cache) = &self.cache {
            let began = Instant::now();
            let found = cache.look_up(&others);
            let mut missing = (Vec::new(), Vec::new());
            for (i, row) in found.into_iter().enumerate() {
                match row {
                    Some(row) => {
                        from[at[i] as usize] = Place::Cached(cached.len() as u32);
                        memory::demand_push(&mut cached, row);
                    }
                    None => {
                        memory::demand_push(&mut missing.0, others[i]);
                        memory::demand_push(&mut missing.1, at[i]);
                    }
                }
            }
            (others, at) = missing;
            let stored: usize = cached.iter().map(|row| row.0.len()).sum();
            traffic.host += TierTraffic::since(began, cached.len() as u64, bytes(cached.len(), stored));
        }
        let mut own_rows = self.scratch.take_or_default();
        let mut began = Instant::now();
        let mut read_own = || {
            let clock = Instant::now();
            if !own.is_empty() {
                traffic += self.own.gather(&own, &mut own_rows)?;
            }
            began += clock.elapsed();
            Ok(())
        };
        let replies = self.fetch(&others, &at, &mut from, &mut read_own)?;
        let (near, cached, replied) = (own_rows.view(), &cached[..], &replies[..]);
        let row = |i: NodeId| match from[i as usize] {
            Place::Own(row) => near.sparse_row(row as usize).unwrap_or_default(),
            Place::Cached(row) => (&cached[row as usize].0[..], &cached[row as usize].1[..]),
            Place::Remote { reply, row } => replied[reply as usize].row(row as usize),
        };
        let all = memory::demand_collect(0..ids.len() as NodeId);
        out.gather_sparse_with(self.dim(), &all, row);
        let stored = replies.iter().map(|reply| reply.stored).sum();
        traffic.remote += TierTraffic::since(began, others.len() as u64, bytes(others.len(), stored));
        if let (Some(cache), false) = (&self.cache, others.is_empty()) {
            cache.admit(&others, |i| row(at[i]), false);
        }
        self.scratch.put(own_rows);
        Ok(traffic)
    }

    fn row_bytes(&self) -> u64 {
        bytes(1, self.mean_stored)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of a reply with rows of 2, 0 and 1 values.
    fn words() -> Vec<u32> {
        let mut words = vec![0; HEADER];
        words.extend([2, 2, 3, 0, 4, 1]);
        words.extend([1.0f32, 2.0, 3.0].map(f32::to_bits));
        words
    }

    #[test]
    fn replies_are_split_into_rows() {
        let reply = Reply::read(words(), 3, 5).unwrap();
        let rows: Vec<_> = (0..3).map(|i| reply.row(i)).collect();
        assert_eq!(rows, [(&[0, 4][..], &[1.0, 2.0][..]), (&[], &[]), (&[1], &[3.0])]);
        assert_eq!(bytes_of_sparse_rows(3, 3), 4 * words().len() as u64);
    }

    #[test]
    fn damaged_replies_are_refused() {
        let refused = |words: Vec<u32>, rows, dim| Reply::read(words, rows, dim).err().is_some();
        assert!(refused(words()[..HEADER + 8].to_vec(), 3, 5), "a value is missing");
        assert!(refused(words()[..HEADER + 2].to_vec(), 3, 5), "an end is missing");
        assert!(refused(words(), 3, 4), "column 4 of 4");
        let mut falling = words();
        falling.swap(HEADER, HEADER + 2);
        assert!(refused(falling, 3, 5), "ends fall");
    }
}
