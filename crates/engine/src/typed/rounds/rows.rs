//! Learned rows between updates: the newest and earlier versions, which devices read.
//!
//! # Algorithm
//!
//! A rank has the rows of its own nodes. Its devices request a version of those of other nodes
//! ([`crate::versions`]) from the owners, which serve them from threads that wait for no rank. All
//! ranks meet after each update, before a device starts a batch that reads its rows, so an owner
//! has every version that is requested. No rank makes an update before all shares of its gradient
//! are there, so an owner still has the version if it keeps as many as gradients are stale.
//!
//! # Source
//!
//! Li et al., *Scaling distributed machine learning with the parameter server*, OSDI 2014, with
//! updates in lockstep.
//!
//! # Cost
//!
//! A request and a reply between each two ranks for each batch and type, and an empty message each
//! way for each update.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use graphmill_core::{Error as CoreError, NodeId, Result as CoreResult};
use graphmill_distributed::{
    Messenger, NodeOwnership, Service,
    messenger::{HEADER, PendingReply, service_of_type},
    transport::Lane,
};
use graphmill_loader::typed::TypedExtracted;
use graphmill_nn::{
    Matrix,
    typed::{LearnedRows, TypedModel},
};

use super::{
    super::ranks::{RowOwners, learned_types},
    learner::RoundLearner,
};
use crate::{Result, distributed::LEARNED, versions::PublishedParameters};

/// The learned rows of each type that has some; the model has none meanwhile.
#[derive(Default)]
pub(super) struct PublishedRows {
    newest: Vec<LearnedRows>,
    /// The parameters of the same version, with the rows that earlier updates replaced.
    versions: Arc<PublishedParameters>,
}

impl PublishedRows {
    /// Exchanges the rows of a model with these.
    pub(super) fn swap(&mut self, learner: &mut impl RoundLearner) {
        let rows = learner.encoder_mut().learned_rows_mut().zip(&mut self.newest);
        rows.for_each(|((_, rows), other)| std::mem::swap(rows, other));
    }

    /// Copies a version of the rows at `places` of the type at place `i`.
    ///
    /// A thread that serves other ranks must not run other work while it has the lock, so the rows
    /// are copied one after the other.
    ///
    /// # Errors
    /// A place has no row.
    ///
    /// # Panics
    /// This version is not yet made, or was removed.
    fn read(&self, i: usize, version: u64, places: &[NodeId], out: &mut Matrix) -> CoreResult<()> {
        let Some(table) = self.newest.get(i).map(LearnedRows::table) else {
            return Err(CoreError::invalid(format!("learned rows of type {i} are not served")));
        };
        let (count, width) = (table.num_rows(), table.num_cols());
        if let Some(place) = places.iter().find(|&&place| place as usize >= count) {
            return Err(CoreError::invalid(format!("learned rows: row {place} of {count} is requested")));
        }
        out.resize(places.len(), width);
        let (view, to) = (table.view(), out.view_mut().host());
        for (to, &place) in to.chunks_exact_mut(width.max(1)).zip(places) {
            to.copy_from_slice(&view.host()[place as usize * width..][..width]);
        }
        self.versions.restore_rows(version, i, places, out);
        Ok(())
    }
}

/// The learned rows of a run between updates. Over ranks, the devices of all ranks read them.
pub(super) struct RowVersions {
    rows: Arc<RwLock<PublishedRows>>,
    /// The ranks that share rows, if there are several and the model has some.
    over: Option<RowOwners>,
    /// Types with learned rows, and the width of their rows.
    types: Vec<(usize, usize)>,
}

/// Request of rows of other ranks.
pub(super) struct RowRequest<'p> {
    node_type: usize,
    /// Positions of the rows in the batch.
    at: Vec<usize>,
    rank: usize,
    reply: PendingReply<'p>,
}

impl RowVersions {
    /// Rows of a model with this encoder, which a rank serves to the others.
    pub(super) fn new(encoder: &TypedModel, over: Option<&RowOwners>) -> Self {
        let (types, rows) = (learned_types(encoder), Arc::<RwLock<PublishedRows>>::default());
        let over = over.filter(|_| !types.is_empty()).cloned();
        for (i, &(t, _)) in types.iter().enumerate().filter(|_| over.is_some()) {
            let Some(over) = &over else { break };
            let service = RowServer { rows: rows.clone(), owners: over.owners[t].clone(), place: i };
            over.ranks.post().serve(service_of_type(LEARNED, t), Arc::new(service));
        }
        Self { rows, over, types }
    }

    /// Takes the learned rows of the model, whose parameters `versions` has, until
    /// [`RowVersions::end`].
    pub(super) fn begin(&self, learner: &mut impl RoundLearner, versions: Arc<PublishedParameters>) {
        let mut rows = self.write();
        let none = |&(_, width): &(usize, usize)| LearnedRows::of_nodes(&[], width, 0);
        *rows = PublishedRows { newest: self.types.iter().map(none).collect(), versions };
        rows.swap(learner);
    }

    /// Returns the learned rows to the model.
    pub(super) fn end(&self, learner: &mut impl RoundLearner) {
        std::mem::take(&mut *self.write()).swap(learner);
    }

    /// Returns true if devices of other ranks read the rows.
    pub(super) fn are_shared(&self) -> bool {
        self.over.is_some()
    }

    /// Waits until all ranks that share rows call this.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(super) fn meet(&self) -> Result<()> {
        self.over.as_ref().map_or(Ok(()), |over| over.ranks.meet())
    }

    /// The rows, which do not change meanwhile.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, PublishedRows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows, which nothing else reads meanwhile.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, PublishedRows> {
        self.rows.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a version of the learned rows of a batch's nodes of other ranks.
    pub(super) fn request(&self, version: u64, batch: &TypedExtracted) -> Vec<RowRequest<'_>> {
        let mut requests = Vec::new();
        let Some(RowOwners { ranks, owners }) = &self.over else { return requests };
        let post: &Messenger = ranks.post();
        for &(t, _) in &self.types {
            let mut shares = vec![(Vec::new(), Vec::new()); ranks.size()];
            for (i, &v) in batch.sampled.input_nodes[t].iter().enumerate() {
                let (ids, at) = &mut shares[owners[t].owner(v)];
                ids.push(v);
                at.push(i);
            }
            for rank in post.others() {
                let (ids, at) = std::mem::take(&mut shares[rank]);
                if ids.is_empty() {
                    continue;
                }
                let reply = post.ask(rank, service_of_type(LEARNED, t), |words| {
                    words.extend([version as u32, (version >> 32) as u32]);
                    words.extend(ids);
                });
                requests.push(RowRequest { node_type: t, at, rank, reply });
            }
        }
        requests
    }

    /// Copies a version of the learned rows of a batch's nodes to its features; of a rank, those of
    /// its own nodes. Returns the bytes of the rows of all nodes.
    ///
    /// # Errors
    /// A node has no row.
    ///
    /// # Panics
    /// As [`PublishedParameters::copy_to`].
    pub(super) fn copy_own(
        &self,
        rows: &PublishedRows,
        version: u64,
        batch: &mut TypedExtracted,
    ) -> Result<u64> {
        let TypedExtracted { sampled, features, .. } = batch;
        let (mut bytes, mut own) = (0, Matrix::default());
        for (i, &(t, width)) in self.types.iter().enumerate() {
            let (nodes, out) = (&sampled.input_nodes[t], &mut features[t]);
            bytes += (nodes.len() * width * size_of::<f32>()) as u64;
            let Some(over) = &self.over else {
                rows.newest[i].gather(nodes, out)?;
                rows.versions.restore_rows(version, i, nodes, out);
                continue;
            };
            let owners = &over.owners[t];
            let is_own = |&(_, v): &(usize, &NodeId)| owners.is_own(*v);
            let (at, places): (Vec<usize>, Vec<NodeId>) =
                nodes.iter().enumerate().filter(is_own).map(|(i, &v)| (i, owners.place(v))).unzip();
            rows.read(i, version, &places, &mut own)?;
            out.resize(nodes.len(), width);
            place(own.view().host(), width, &at, out);
        }
        Ok(bytes)
    }

    /// Copies requested rows to the features of their batch.
    ///
    /// # Errors
    /// A rank did not reply.
    pub(super) fn receive(&self, requests: Vec<RowRequest>, batch: &mut TypedExtracted) -> Result<()> {
        for RowRequest { node_type, at, rank, reply } in requests {
            let out = &mut batch.features[node_type];
            let (words, width) = (reply.wait()?, out.num_cols());
            let words = words.get(HEADER..).unwrap_or_default();
            if words.len() != at.len() * width {
                let message = format!(
                    "{} words of {} learned rows of {width} values; use the same build on all machines",
                    words.len(),
                    at.len()
                );
                return Err(CoreError::Peer { rank, message }.into());
            }
            let values: Vec<f32> = words.iter().map(|&bits| f32::from_bits(bits)).collect();
            place(&values, width, &at, out);
        }
        Ok(())
    }
}

/// Copies rows of `width` values to these positions of `out`.
fn place(rows: &[f32], width: usize, at: &[usize], out: &mut Matrix) {
    let to = out.view_mut().host();
    for (row, &i) in rows.chunks_exact(width.max(1)).zip(at) {
        to[i * width..][..width].copy_from_slice(row);
    }
}

/// Service for the own rows of a type: a request is a version, in two words, and nodes.
struct RowServer {
    rows: Arc<RwLock<PublishedRows>>,
    owners: Arc<NodeOwnership>,
    /// Place of the type among those with learned rows.
    place: usize,
}

impl Service for RowServer {
    fn answer(&self, _: usize, words: &[u32], answer: &mut Vec<u32>) -> CoreResult<()> {
        let [low, high, nodes @ ..] = words else {
            return Err(CoreError::invalid("a request of learned rows without a version"));
        };
        let (version, places) = (u64::from(*low) | u64::from(*high) << 32, self.owners.places(nodes)?);
        let mut out = Matrix::default();
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        if !rows.versions.has(version) {
            return Err(CoreError::invalid(format!(
                "learned rows after {version} updates of the epoch are requested, and the newest are those \
                 after {}",
                rows.versions.newest()
            )));
        }
        rows.read(self.place, version, &places, &mut out)?;
        drop(rows);
        answer.extend(out.view().host().iter().map(|x| x.to_bits()));
        Ok(())
    }

    fn lane(&self) -> Lane {
        Lane::Rows
    }
}
