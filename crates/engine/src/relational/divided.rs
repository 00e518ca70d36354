//! Edges of edge types without a link task, divided by `--split-edges`.
//!
//! # Algorithm
//!
//! At random, the edges of each type are divided by the shares. By time, those of all types are cut
//! at the same times, so that no training edge of one type is later than a held-out edge of
//! another.
//!
//! With their own times (`--link-times edges`), every stored edge is learned once, at its time:
//! parallel edges at several times are several edges, and both directions of an undirected edge are
//! one, whose direction is drawn. They are cut by time.
//!
//! # Source
//!
//! As for `crate::link::split`; Fey and Lenssen, PyTorch Geometric: `edge_label_time` of
//! `LinkNeighborLoader` (times of edges).
//!
//! # Cost
//!
//! O(E log E).

use std::ops::Range;

use graphmill_core::{Graph, NodeId, keyed::key};
use graphmill_data::typed::{EdgeData, TypedDataset};
use rayon::prelude::*;

use super::edges::{LinkEdges, Relation, Triple, known, rows_of};
use crate::{
    Error, Result, TrainConfig,
    config::link::{EdgeShares, LINK, LinkOptions},
    link::split::{self, Edge, TimedEdges},
};

/// Part of the key of the direction in which an undirected edge is learned.
const DIRECTION: u64 = 0x6564_6765_6469_7220;

/// Reason why no other edges validate.
const BY_SHARES: &str = "the edges are of no task of the dataset, so --split-edges divides them";

/// Edges that train, validate and test, each with its time.
type TimedParts = [Vec<(Triple, i64)>; 3];

/// Edge types whose edges are divided, as relations.
struct Divided<'d> {
    of: Vec<&'d EdgeData>,
    /// True for undirected types, which store each edge in both directions.
    undirected: Vec<bool>,
    relations: Vec<Relation>,
    /// Node types of the rows, with the rows of each.
    types: Vec<(usize, Range<NodeId>)>,
}

impl<'d> Divided<'d> {
    /// Numbers the ends of the edges of these types.
    ///
    /// # Errors
    /// There are 2^32 nodes or more.
    fn new(data: &'d TypedDataset, numbers: &[usize]) -> Result<Self> {
        let schema = data.schema()?;
        let of: Vec<&EdgeData> = numbers.iter().map(|&r| &data.edges[r]).collect();
        let ends_of = |edges: &EdgeData| -> Result<[usize; 2]> {
            let on = &edges.edge_type;
            Ok([schema.node_type(&on.source)?, schema.node_type(&on.destination)?])
        };
        let ends: Vec<[usize; 2]> = of.iter().map(|edges| ends_of(edges)).collect::<Result<_>>()?;
        let rows = rows_of(data, ends.as_flattened())?;
        let relation = |(edges, types): (&&EdgeData, [usize; 2])| Relation {
            name: if data.edges.len() == 1 {
                edges.edge_type.name.clone()
            } else {
                edges.edge_type.to_string()
            },
            on: edges.edge_type.clone(),
            candidates: types.map(|t| rows[&t].clone()),
            types,
        };
        let relations = of.iter().zip(ends).map(relation).collect();
        let undirected = of.iter().map(|edges| edges.is_undirected()).collect();
        Ok(Self { of, undirected, relations, types: rows.into_iter().collect() })
    }

    /// An edge of relation `r` by the rows of its ends.
    fn triple(&self, r: usize, (u, v): Edge) -> Triple {
        let [sources, destinations] = &self.relations[r].candidates;
        [sources.start + u, r as u32, destinations.start + v]
    }

    /// Distinct edges of relation `r`, of an undirected one in one direction; without those of a
    /// node to itself.
    fn distinct(&self, r: usize) -> Result<Vec<Edge>> {
        let of = self.of[r];
        let graph = Graph::of_sound_edges(of.indptr.clone(), of.indices.clone(), None)?;
        let [source, destination] = self.relations[r].types;
        Ok(if source == destination {
            split::distinct(&graph, self.undirected[r])
        } else {
            split::all(&graph)
        })
    }

    /// The edges that train, validate and test.
    ///
    /// # Errors
    /// The split is by time, and edges have no times or too few.
    fn split(&self, option: EdgeShares, seed: u64) -> Result<[Vec<Triple>; 3], String> {
        let edges: Vec<Vec<Edge>> =
            (0..self.of.len()).map(|r| self.distinct(r)).collect::<Result<_>>().map_err(|e| e.to_string())?;
        let mut parts = [const { Vec::new() }; 3];
        if option.by_time {
            let time = self.latest(&edges);
            let all =
                edges.iter().enumerate().flat_map(|(r, edges)| edges.iter().map(move |&edge| (r, edge)));
            parts = split::split_at_times(option, all.collect(), time.as_deref(), seed)?;
        } else {
            for (r, edges) in edges.into_iter().enumerate() {
                for (part, edges) in parts.iter_mut().zip(split::split(edges, option.shares, seed)) {
                    part.extend(edges.into_iter().map(|edge| (r, edge)));
                }
            }
        }
        for (r, edge) in &mut parts[0] {
            if self.undirected[*r] {
                split::directed(std::slice::from_mut(edge), seed);
            }
        }
        Ok(parts.map(|part| part.into_iter().map(|(r, edge)| self.triple(r, edge)).collect()))
    }

    /// Latest time of each of the `edges` of each relation, one relation after the other; `None` if
    /// edges have no times.
    fn latest(&self, edges: &[Vec<Edge>]) -> Option<Vec<i64>> {
        let mut all = Vec::new();
        for ((of, &undirected), edges) in self.of.iter().zip(&self.undirected).zip(edges) {
            let timed = TimedEdges { indptr: &of.indptr, indices: &of.indices, time: of.time.as_deref()? };
            all.extend(timed.latest(edges, undirected));
        }
        Some(all)
    }

    /// Every stored edge of the only relation with its time, without those of a node to itself:
    /// ascending by destination, source and time, each once. If every edge is stored in both
    /// directions at the same time, both are one edge; otherwise the relation counts as directed.
    /// `None` if edges have no times.
    fn stored(&mut self, seed: u64) -> Option<Vec<(Edge, i64)>> {
        let of = self.of[0];
        let time = of.time.as_deref()?;
        let is_one_type = self.relations[0].types[0] == self.relations[0].types[1];
        let mut all: Vec<(NodeId, NodeId, i64)> = Vec::with_capacity(time.len());
        for (v, ends) in (0..).zip(of.indptr.windows(2)) {
            let row = (ends[0] as usize..ends[1] as usize).map(|e| (v, of.indices[e], time[e]));
            all.extend(row.filter(|&(v, u, _)| !is_one_type || u != v));
        }
        all.par_sort_unstable();
        all.dedup();
        let has_reverse = |&(v, u, time): &(NodeId, NodeId, i64)| all.binary_search(&(u, v, time)).is_ok();
        self.undirected[0] &= all.par_iter().all(has_reverse);
        let undirected = self.undirected[0];
        all.retain(|&(v, u, _)| !undirected || u < v);
        let is_turned = |u: NodeId, v: NodeId, time: i64| {
            undirected && key(&[seed, DIRECTION, u64::from(u) << 32 | u64::from(v), time as u64]) & 1 == 1
        };
        let edge = |(v, u, time)| (if is_turned(u, v, time) { (v, u) } else { (u, v) }, time);
        Some(all.into_iter().map(edge).collect())
    }

    /// The relations with these parts of their edges.
    fn with(self, data: &TypedDataset, parts: [Vec<Triple>; 3]) -> Result<LinkEdges> {
        if parts[0].is_empty() {
            return Err(Error::dataset(&data.name, "it has no edges to learn; import it with edges"));
        }
        let Self { undirected, relations, types, .. } = self;
        let [learned, known] = known(&parts, &|r| undirected[r as usize])?;
        let names: Vec<&str> = relations.iter().map(|relation| &relation.name[..]).collect();
        let task = if data.edges.len() == 1 { LINK.into() } else { names.join(",") };
        Ok(LinkEdges {
            is_of_tasks: false,
            task,
            undirected: undirected == [true],
            relations,
            types,
            parts,
            learned,
            known,
            pairs: [None, None],
            metric: None,
            times: None,
        })
    }
}

impl LinkEdges {
    /// Splits the edges of these edge types by `--split-edges`.
    ///
    /// # Errors
    /// There are no edges, or 2^32 nodes or more, or the edges cannot be split by time.
    pub(super) fn of_shares(data: &TypedDataset, types: &[usize], config: &TrainConfig) -> Result<Self> {
        let LinkOptions { split_edges: option, valid_fraction, .. } = config.own.get();
        split::refuse_hold_out(valid_fraction, BY_SHARES)?;
        let divided = Divided::new(data, types)?;
        let parts = divided.split(option, config.seed).map_err(|why| Error::dataset(&data.name, why))?;
        divided.with(data, parts)
    }

    /// Splits all edges of an edge type by their times, and returns the time of each of the edges
    /// that train, validate and test.
    ///
    /// # Errors
    /// The edges have no times or too few, the split is not by time, or there are 2^32 nodes or
    /// more.
    pub(super) fn of_stored(
        data: &TypedDataset,
        r: usize,
        config: &TrainConfig,
    ) -> Result<(Self, [Vec<i64>; 3])> {
        let LinkOptions { split_edges: option, valid_fraction, .. } = config.own.get();
        split::refuse_hold_out(valid_fraction, BY_SHARES)?;
        let mut divided = Divided::new(data, &[r])?;
        if !option.by_time {
            let timed = EdgeShares { by_time: true, ..option };
            return Err(Error::usage(format!(
                "--split-edges {option} with --link-times edges: edges that train would be later than those \
                 that validate or test; use --split-edges {timed}"
            )));
        }
        let fault = |why: String| Error::dataset(&data.name, why);
        let Some(stored) = divided.stored(config.seed) else {
            let on = &divided.relations[0].on;
            return Err(fault(format!("edges of type {on} have no times; leave out --link-times edges")));
        };
        let times: Vec<i64> = stored.iter().map(|&(_, time)| time).collect();
        let items: Vec<(Triple, i64)> =
            stored.into_iter().map(|(edge, time)| (divided.triple(0, edge), time)).collect();
        let parts: TimedParts =
            split::split_by_time(items, &times, option.shares, config.seed).map_err(|why| {
                fault(format!("its edges cannot be divided by time: {why}; leave out --link-times edges"))
            })?;
        let times = parts.each_ref().map(|part| part.iter().map(|&(_, time)| time).collect());
        let edges = divided.with(data, parts.map(|part| part.into_iter().map(|(edge, _)| edge).collect()))?;
        Ok((edges, times))
    }
}
