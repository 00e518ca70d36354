//! Draws of a graph with times over ranks: the owner of a node bounds its edges by the time that
//! comes with the request.
//!
//! ```text
//!   destinations ─┬─ own ───────────────────────────────────────► drawn here ─┐
//!   with times    └─ remote ─► ids, times ~~► owner bounds, draws ~~► edges ──┴─► block, in destination order
//! ```
//!
//! An owner has all edges into its nodes with their times, and the times of all nodes, so an edge
//! is visible from the same time as in a single process. Draws are keyed by (seed, epoch, batch,
//! hop, relation, node, admitted edges), so blocks equal those of a single process, too.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::{Error, NodeId, ObjectPool, Result, memory};
use graphmill_loader::time::{
    Admitted, OwnTimeRows, TimeDestinations, TimeDrawn, TimeHop, TimeOptions, TimeSource, TimedGraph,
};

use crate::{
    Messenger, NodeOwnership,
    answer::{Answer, Merged, Part, REPLY_WORDS, has, time_of, words_of_time},
    messenger::{HEADER, PendingReply, Service},
    ownership::Share,
};

/// Number of the service that draws edges.
pub const TIME_DRAWS: u32 = 6;
/// Number of the service that returns the times of the last admitted edges.
pub const TIME_LAST: u32 = 7;
/// Words of a request for draws before the nodes: relation, fanout, the key, and the columns of the
/// reply.
const HOP_WORDS: usize = 6;

/// Part of a rank's graph, from which it draws for all ranks.
struct OwnPart {
    graph: Arc<TimedGraph>,
    options: TimeOptions,
    /// Owners of the nodes of each type.
    owners: Vec<Arc<NodeOwnership>>,
    /// Number of this rank's first edge by each relation; empty if positions are not read.
    first_edges: Vec<NodeId>,
    spare: ObjectPool<Drawn>,
}

/// Buffers of the draws of a hop.
#[derive(Default)]
struct Drawn {
    admitted: Vec<Admitted>,
    indptr: Vec<u32>,
    sources: Vec<NodeId>,
    positions: Vec<u64>,
    /// Numbers of the edges over all ranks; empty unless they are asked for.
    numbers: Vec<u32>,
    times: Vec<i64>,
    /// Words of the times; empty unless they are asked for.
    time_words: Vec<[u32; 2]>,
}

impl OwnPart {
    /// Owners of the destinations of relation `r`.
    fn owners(&self, r: usize) -> &NodeOwnership {
        &self.owners[self.graph.schema().relations()[r].dst]
    }

    /// Number of nodes of the type of the sources of relation `r`.
    fn num_sources(&self, r: usize) -> usize {
        self.owners[self.graph.schema().relations()[r].src].num_nodes()
    }

    fn rows(&self, parallel: bool) -> OwnTimeRows<'_> {
        OwnTimeRows { graph: &self.graph, options: &self.options, parallel }
    }

    /// Empty lists of admitted edges, one for each relation.
    fn lists(&self) -> Vec<Vec<Admitted>> {
        vec![Vec::new(); self.graph.schema().num_relations()]
    }

    /// Number of this rank's first edge by relation `r`; 0 if positions are not read.
    fn first_edge(&self, r: usize) -> NodeId {
        self.first_edges.get(r).copied().unwrap_or(0)
    }

    /// Draws for own nodes on the calling thread, with the columns `arrays` of a reply.
    fn draw(&self, hop: &TimeHop, of: TimeDestinations, arrays: u32, drawn: &mut Drawn) -> Result<()> {
        let Drawn { admitted, indptr, sources, positions, numbers, times, time_words } = drawn;
        // these draws weight no edges
        let weights = &mut Vec::new();
        let with_times = (arrays & has::TIMES > 0).then_some(&mut *times);
        let to = TimeDrawn { indptr, sources, weights, positions, times: with_times };
        admitted.clear();
        self.rows(false).draw(hop, of, admitted, to)?;
        numbers.clear();
        time_words.clear();
        if arrays & has::POSITIONS > 0 {
            // the numbers of all ranks' edges have 32 bits
            let first = self.first_edge(hop.relation);
            memory::demand_extend(numbers, positions.iter().map(|&position| first + position as NodeId));
        }
        if arrays & has::TIMES > 0 {
            memory::demand_extend(time_words, times.iter().map(|&time| words_of_time(time)));
        }
        Ok(())
    }
}

/// Rows of all nodes of a graph with times: own ones from memory, the others at their owners. The
/// graph of a rank has all nodes with their times, and the edges into its own ones.
pub struct TimesOverRanks {
    post: Arc<Messenger>,
    own: Arc<OwnPart>,
}

impl TimesOverRanks {
    /// Creates the rows of all nodes, of which `graph` has those of this rank, and draws from these
    /// for the other ranks. `owners` are those of the nodes of each type. If blocks name their
    /// edges, `first_edges` are the numbers of this rank's first edge by each relation
    /// ([`crate::edges`]), and else empty.
    pub fn serve(
        post: Arc<Messenger>,
        owners: Vec<Arc<NodeOwnership>>,
        (graph, options): (Arc<TimedGraph>, TimeOptions),
        first_edges: Vec<NodeId>,
    ) -> Self {
        let own = Arc::new(OwnPart { graph, options, owners, first_edges, spare: ObjectPool::default() });
        post.serve(TIME_DRAWS, Arc::new(Draws(own.clone())));
        post.serve(TIME_LAST, Arc::new(LastTimes(own.clone())));
        Self { post, own }
    }

    /// Asks the owners of remote destinations, each with its nodes and their times after the words
    /// `question`.
    fn ask<'s>(
        &self,
        service: u32,
        shares: &'s [Share],
        of: TimeDestinations,
        question: &[u32],
    ) -> Vec<(&'s Share, PendingReply<'_>)> {
        let with_nodes = |&to: &usize| !shares[to].ids.is_empty();
        let ask = |to: usize| {
            let share = &shares[to];
            let say = |words: &mut Vec<u32>| {
                memory::demand(words, question.len() + 3 * share.ids.len());
                words.extend_from_slice(question);
                words.extend_from_slice(&share.ids);
                words.extend(share.at.iter().flat_map(|&i| words_of_time(of.times[i as usize])));
            };
            (share, self.post.ask(to, service, say))
        };
        self.post.others().filter(with_nodes).map(ask).collect()
    }
}

/// Times of the destinations of a share.
fn times_of(share: &Share, of: TimeDestinations) -> Vec<i64> {
    memory::demand_collect(share.at.iter().map(|&i| of.times[i as usize]))
}

impl TimeSource for TimesOverRanks {
    fn draw(
        &self,
        hop: &TimeHop,
        of: TimeDestinations,
        admitted: &mut Vec<Admitted>,
        drawn: TimeDrawn,
    ) -> Result<()> {
        if self.post.size() == 1 {
            // all nodes are own ones, and positions are the numbers
            return self.own.rows(true).draw(hop, of, admitted, drawn);
        }
        let TimeDrawn { indptr, sources, weights, positions, times } = drawn;
        let mut arrays = if hop.positions { has::POSITIONS } else { 0 };
        arrays |= if times.is_some() { has::TIMES } else { 0 };
        let shares = self.own.owners(hop.relation).by_owner(of.nodes);
        let fanout = u32::try_from(hop.fanout).unwrap_or(u32::MAX);
        let [low, high] = [hop.key as u32, (hop.key >> 32) as u32];
        let question: [u32; HOP_WORDS] = [hop.relation as u32, hop.hop as u32, fanout, low, high, arrays];
        let asked = self.ask(TIME_DRAWS, &shares, of, &question);
        let own = &shares[self.post.rank()];
        self.own.spare.with(|mine| {
            if !own.ids.is_empty() {
                let of = TimeDestinations { nodes: &own.ids, times: &times_of(own, of) };
                self.own.draw(hop, of, arrays, mine)?;
            }
            let mut answers = Vec::with_capacity(asked.len());
            let count = self.own.num_sources(hop.relation);
            for (share, asked) in asked {
                answers.push((share, Answer::read(asked.wait()?, share.ids.len(), count)?));
            }
            let mut parts: Vec<Part> = answers.iter().map(|(share, answer)| answer.part(share)).collect();
            if !own.ids.is_empty() {
                parts.push(Part {
                    at: &own.at,
                    ends: &mine.indptr[1..],
                    indices: &mine.sources,
                    weights: &[],
                    positions: &mine.numbers,
                    times: &mine.time_words,
                });
            }
            positions.clear();
            let positions = hop.positions.then_some(positions);
            Merged { indptr, indices: sources, weights, positions, times }.fill(of.nodes.len(), &parts)
        })
    }

    fn last_admitted(
        &self,
        relations: &[usize],
        of: TimeDestinations,
        admitted: &mut [Vec<Admitted>],
        out: &mut Vec<i64>,
    ) -> Result<()> {
        let Some(&first) = relations.first().filter(|_| self.post.size() > 1) else {
            return self.own.rows(true).last_admitted(relations, of, admitted, out);
        };
        let shares = self.own.owners(first).by_owner(of.nodes);
        let count = relations.len() as u32;
        let question: Vec<u32> = [count].into_iter().chain(relations.iter().map(|&r| r as u32)).collect();
        let asked = self.ask(TIME_LAST, &shares, of, &question);
        let own = &shares[self.post.rank()];
        let rows = TimeDestinations { nodes: &own.ids, times: &times_of(own, of) };
        let mut last = Vec::new();
        self.own.rows(true).last_admitted(relations, rows, &mut self.own.lists(), &mut last)?;
        out.clear();
        memory::demand_len(out, of.nodes.len(), i64::MIN);
        own.at.iter().zip(&last).for_each(|(&i, &time)| out[i as usize] = time);
        for (share, asked) in asked {
            let words = asked.wait()?;
            let (times, rest) = words[HEADER..].as_chunks::<2>();
            if (times.len(), rest.len()) != (share.ids.len(), 0) {
                return Err(Error::invalid(format!("{} times of {} nodes", times.len(), share.ids.len())));
            }
            share.at.iter().zip(times).for_each(|(&i, &words)| out[i as usize] = time_of(words));
        }
        Ok(())
    }
}

/// Nodes of a request with their times, from the words after those of the question.
///
/// # Errors
/// The words are not nodes with times, a relation is unknown, or a node belongs to another rank.
fn read_rows<'w>(own: &OwnPart, relations: &[usize], words: &'w [u32]) -> Result<(&'w [NodeId], Vec<i64>)> {
    let known = own.graph.schema().num_relations();
    if !words.len().is_multiple_of(3) || relations.is_empty() || relations.iter().any(|&r| r >= known) {
        return Err(Error::invalid("a malformed request of draws; use the same build on all ranks"));
    }
    let (nodes, times) = words.split_at(words.len() / 3);
    // checks that this rank owns the nodes
    own.owners(relations[0]).places(nodes)?;
    Ok((nodes, memory::demand_collect(times.as_chunks::<2>().0.iter().map(|&words| time_of(words)))))
}

/// Service that draws edges of own nodes.
struct Draws(Arc<OwnPart>);

impl Service for Draws {
    fn answer(&self, _: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        let Some((&[relation, hop, fanout, low, high, arrays], rest)) =
            words.split_first_chunk::<HOP_WORDS>()
        else {
            return Err(Error::invalid("a request of too few words"));
        };
        let relation = relation as usize;
        let (nodes, times) = read_rows(&self.0, &[relation], rest)?;
        let hop = TimeHop {
            relation,
            hop: hop as usize,
            fanout: if fanout == u32::MAX { usize::MAX } else { fanout as usize },
            key: u64::from(high) << 32 | u64::from(low),
            positions: arrays & has::POSITIONS > 0,
        };
        let arrays = arrays & (has::POSITIONS | has::TIMES);
        self.0.spare.with(|drawn| {
            self.0.draw(&hop, TimeDestinations { nodes, times: &times }, arrays, drawn)?;
            let Drawn { indptr, sources, numbers, time_words, .. } = &*drawn;
            let edges = sources.len() + numbers.len() + 2 * time_words.len();
            memory::demand(answer, REPLY_WORDS + nodes.len() + edges);
            answer.extend([sources.len() as u32, arrays]);
            answer.extend_from_slice(&indptr[1..]);
            answer.extend_from_slice(sources);
            answer.extend_from_slice(numbers);
            answer.extend_from_slice(time_words.as_flattened());
            Ok(())
        })
    }
}

/// Service that returns the times of the last admitted edges of own nodes.
struct LastTimes(Arc<OwnPart>);

impl Service for LastTimes {
    fn answer(&self, _: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        let question = words.split_first().and_then(|(&count, rest)| rest.split_at_checked(count as usize));
        let Some((relations, rest)) = question else {
            return Err(Error::invalid("a request of too few words"));
        };
        let relations: Vec<usize> = relations.iter().map(|&r| r as usize).collect();
        let (nodes, times) = read_rows(&self.0, &relations, rest)?;
        let mut last = Vec::new();
        let of = TimeDestinations { nodes, times: &times };
        self.0.rows(false).last_admitted(&relations, of, &mut self.0.lists(), &mut last)?;
        memory::demand(answer, 2 * last.len());
        answer.extend(last.iter().flat_map(|&time| words_of_time(time)));
        Ok(())
    }
}
