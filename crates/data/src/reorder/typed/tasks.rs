//! Tasks of a rearranged dataset.

use graphmill_core::{Buffer, Error, Labels, NodeId, Result, Split};

use super::{Arrangement, NONE, RowOrder, edges::Positions};
use crate::{
    external::Scratch,
    typed::{CandidateLists, EdgeData, Negatives, Seeds, Targets, Task, TaskOn},
};

/// Node types of a task's seeds, by number.
#[derive(Clone, Copy)]
enum Ends {
    Nodes(usize),
    Edges(usize, usize),
}

impl Ends {
    /// Types of the sources and of the destinations.
    fn types(self) -> [usize; 2] {
        match self {
            Self::Nodes(t) => [t, t],
            Self::Edges(source, destination) => [source, destination],
        }
    }
}

/// Rows of a task in their new order.
struct TaskRows {
    /// Old row of each new one.
    kept: Vec<u64>,
    /// New row of each old one; [`NONE`] for those that are left out.
    place: Vec<NodeId>,
}

impl TaskRows {
    fn new(kept: Vec<u64>, count: usize) -> Self {
        let mut place = vec![NONE; count];
        kept.iter().enumerate().for_each(|(i, &row)| place[row as usize] = i as NodeId);
        Self { kept, place }
    }

    /// The rows of a part of the split, ascending.
    fn part(&self, ids: &[NodeId]) -> Buffer<NodeId> {
        let new = ids.iter().map(|&row| self.place[row as usize]);
        let mut rows: Vec<NodeId> = new.filter(|&row| row != NONE).collect();
        rows.sort_unstable();
        rows.into()
    }
}

impl Arrangement<'_> {
    /// The task `task` on the rearranged dataset, where `positions` are those of the edges that are
    /// rows of tasks, by edge type.
    pub(super) fn task(&self, task: &Task, positions: &[Option<Positions>]) -> Result<Task> {
        let (ends, rows) = self.rows_of(task, positions)?;
        let Split { train, valid, test } = &task.split;
        let split = Split { train: rows.part(train), valid: rows.part(valid), test: rows.part(test) };
        let order = RowOrder { len: rows.kept.len(), at: &|i| rows.kept[i] as usize };
        let scratch = Scratch::in_memory();
        let targets = match &task.targets {
            Targets::None => Targets::None,
            Targets::Classes(Labels::Single { class, classes }) => {
                let class = order.column(class, scratch.column("class")?)?;
                Targets::Classes(Labels::Single { class, classes: *classes })
            }
            Targets::Classes(Labels::Multi { member, classes }) => {
                let member = order.rows(member, *classes, scratch.rows("member", *classes)?)?;
                Targets::Classes(Labels::Multi { member, classes: *classes })
            }
            Targets::Classes(Labels::Columns { class, columns }) => {
                let class = order.rows(class, columns.len(), scratch.rows("class", columns.len())?)?;
                Targets::Classes(Labels::Columns { class, columns: columns.clone() })
            }
            Targets::Values { width, values } | Targets::Classes(Labels::Values { values, width }) => {
                let values = order.rows(values, *width, scratch.rows("values", *width)?.with_missing())?;
                Targets::Values { width: *width, values }
            }
        };
        let seeds = task.seeds.as_ref().map(|seeds| self.seeds(ends, seeds, &rows));
        let given = task.split.parts().map(|(_, ids)| ids);
        let negatives: [Option<Negatives>; 3] = std::array::from_fn(|part| {
            let negatives = task.negatives[part].as_ref().filter(|_| self.is_whole)?;
            Some(self.negatives(ends, negatives, given[part], &rows))
        });
        Ok(Task {
            name: task.name.clone(),
            on: task.on.clone(),
            seeds,
            time: task.time.as_ref().map(|time| order.column(time, scratch.column("time")?)).transpose()?,
            targets,
            names: task.names.clone(),
            split,
            negatives,
            metric: task.metric.clone(),
        })
    }

    /// Ends of the seeds of a task, and its rows in their new order.
    fn rows_of(&self, task: &Task, positions: &[Option<Positions>]) -> Result<(Ends, TaskRows)> {
        let unknown = || Error::invalid(format!("task '{}': '{}' is not a type", task.name, task.on));
        let ends = match &task.on {
            TaskOn::Nodes(name) => {
                Ends::Nodes(self.data.nodes.iter().position(|nodes| nodes.name == *name).ok_or_else(unknown)?)
            }
            TaskOn::Edges(edge_type) => {
                let is_it = |edges: &EdgeData| edges.edge_type == *edge_type;
                let e = self.data.edges.iter().position(is_it);
                if let (None, Some(e)) = (&task.seeds, e)
                    && let Some(positions) = &positions[e]
                {
                    let (source, destination) = self.schema.ends(e);
                    let rows = TaskRows::new(positions.clone(), self.data.edges[e].num_edges());
                    return Ok((Ends::Edges(source, destination), rows));
                }
                // pairs need no edges
                let number = |name: &String| self.data.nodes.iter().position(|nodes| nodes.name == *name);
                let source = number(&edge_type.source).ok_or_else(unknown)?;
                Ends::Edges(source, number(&edge_type.destination).ok_or_else(unknown)?)
            }
        };
        let has = |t: usize, v: NodeId| self.ranks[t][v as usize] != NONE;
        let (kept, count): (Vec<u64>, usize) = match (ends, &task.seeds) {
            (Ends::Nodes(t), None) => {
                (self.orders[t].iter().map(|&v| v.into()).collect(), self.data.nodes[t].count)
            }
            (Ends::Nodes(t), Some(Seeds::Nodes(ids))) => {
                let rows = (0..ids.len()).filter(|&i| has(t, ids[i]));
                (rows.map(|i| i as u64).collect(), ids.len())
            }
            (Ends::Edges(source, destination), Some(Seeds::Pairs(ids))) => {
                let rows = 0..ids.len() / 2;
                let rows = rows.filter(|&i| has(source, ids[2 * i]) && has(destination, ids[2 * i + 1]));
                (rows.map(|i| i as u64).collect(), ids.len() / 2)
            }
            _ => {
                let message = format!("task '{}': its seeds are not those of '{}'", task.name, task.on);
                return Err(Error::invalid(message));
            }
        };
        Ok((ends, TaskRows::new(kept, count)))
    }

    /// New ids of the seeds of the kept rows.
    fn seeds(&self, ends: Ends, seeds: &Seeds, rows: &TaskRows) -> Seeds {
        let of_rows = rows.kept.iter().map(|&row| row as usize);
        match seeds {
            Seeds::Nodes(ids) => {
                let [t, _] = ends.types();
                Seeds::Nodes(of_rows.map(|i| self.ranks[t][ids[i] as usize]).collect::<Vec<_>>().into())
            }
            Seeds::Pairs(ids) => {
                let pairs: Vec<NodeId> =
                    of_rows.flat_map(|i| self.pair(ends, [ids[2 * i], ids[2 * i + 1]])).collect();
                Seeds::Pairs(pairs.into())
            }
        }
    }

    /// New ids of a pair.
    fn pair(&self, ends: Ends, [source, destination]: [NodeId; 2]) -> [NodeId; 2] {
        let [from, to] = ends.types();
        [self.ranks[from][source as usize], self.ranks[to][destination as usize]]
    }

    /// New ids of the negatives of a part of the split, which `part` lists, in the new order of its
    /// positives.
    fn negatives(&self, ends: Ends, negatives: &Negatives, part: &[NodeId], rows: &TaskRows) -> Negatives {
        let mut order: Vec<usize> = (0..part.len()).collect();
        order.sort_by_key(|&i| rows.place[part[i] as usize]);
        let [source, destination] = ends.types();
        let moved = |t: usize, each: usize, nodes: &[NodeId]| -> Buffer<NodeId> {
            let of_positive = |&i: &usize| &nodes[i * each..(i + 1) * each];
            let new_id = |&v: &NodeId| self.ranks[t][v as usize];
            order.iter().flat_map(of_positive).map(new_id).collect::<Vec<_>>().into()
        };
        match negatives {
            Negatives::Pairs(pairs) => {
                let pairs: Vec<NodeId> =
                    pairs.chunks_exact(2).flat_map(|ids| self.pair(ends, [ids[0], ids[1]])).collect();
                Negatives::Pairs(pairs.into())
            }
            Negatives::Destinations { each, nodes } => {
                Negatives::Destinations { each: *each, nodes: moved(destination, *each, nodes) }
            }
            Negatives::Sources { each, nodes } => {
                Negatives::Sources { each: *each, nodes: moved(source, *each, nodes) }
            }
            Negatives::Lists(lists) => {
                let new_id = |&v: &NodeId| self.ranks[destination][v as usize];
                Negatives::Lists(CandidateLists::new(order.iter().map(|&i| lists.list(i).iter().map(new_id))))
            }
        }
    }
}
