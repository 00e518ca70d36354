//! Tables of tasks: seeds of their own, and negatives.

use graphmill_core::Result;
use serde_json::{Value, json};

use super::{
    Export,
    columns::{Columns, write_key, write_value},
};
use crate::typed::{Keys, Negatives, Seeds, Task, TaskOn, file_name};

/// Negative of a task: the part, its positive, source and destination.
type Row = (&'static str, Option<usize>, Option<u32>, Option<u32>);

impl Export<'_> {
    /// Keys of the sources and destinations of a task, or of its nodes.
    fn keys_of(&self, task: &Task) -> Result<[Option<&Keys>; 2]> {
        let keys = |name: &str| Ok::<_, graphmill_core::Error>(self.data.node_type(name)?.keys.as_ref());
        Ok(match &task.on {
            TaskOn::Nodes(name) => [keys(name)?, None],
            TaskOn::Edges(edge_type) => [keys(&edge_type.source)?, keys(&edge_type.destination)?],
        })
    }

    /// Writes the seeds and negatives of a task that has its own, and returns its entry.
    pub(super) fn task(&mut self, task: &Task) -> Result<Value> {
        let mut seeds = None;
        if let Some(ids) = &task.seeds {
            let path = self.path("tasks", file_name(&task.name))?;
            let [sources, destinations] = self.keys_of(task)?;
            let mut columns = Columns::default();
            match ids {
                Seeds::Nodes(ids) => columns.add("key", |i, out| write_key(sources, ids[i] as usize, out)),
                Seeds::Pairs(ids) => {
                    columns.add("source", |i, out| write_key(sources, ids[2 * i] as usize, out));
                    columns
                        .add("destination", |i, out| write_key(destinations, ids[2 * i + 1] as usize, out));
                }
            }
            if let Some(time) = &task.time {
                columns.add("time", |i, out| write_value(&time[i], out));
            }
            columns.add_task(task, &task.name);
            let header = columns.names().to_vec();
            self.table(&path, &header, ids.len(), |i, fields| columns.write(i, fields))?;
            seeds = Some(path);
        }
        let negatives =
            if task.negatives.iter().any(Option::is_some) { Some(self.negatives(task)?) } else { None };
        Ok(json!({
            "name": task.name, "kind": task.kind().map(|kind| kind.name()), "on": task.on, "file": seeds,
            "negatives": negatives, "names": task.names, "metric": task.metric,
        }))
    }

    /// Writes the negatives of a task, and returns the path.
    fn negatives(&mut self, task: &Task) -> Result<String> {
        let path = self.path("negatives", file_name(&task.name))?;
        let [sources, destinations] = self.keys_of(task)?;
        let mut rows: Vec<Row> = Vec::new();
        for ((part, _), negatives) in task.split.parts().into_iter().zip(&task.negatives) {
            let positive = |i: usize, each: usize| Some(i / each.max(1));
            match negatives {
                None => {}
                Some(Negatives::Pairs(pairs)) => {
                    rows.extend(pairs.chunks_exact(2).map(|pair| (part, None, Some(pair[0]), Some(pair[1]))));
                }
                Some(Negatives::Destinations { each, nodes }) => {
                    let of = |(i, &v): (usize, &u32)| (part, positive(i, *each), None, Some(v));
                    rows.extend(nodes.iter().enumerate().map(of));
                }
                Some(Negatives::Sources { each, nodes }) => {
                    let of = |(i, &u): (usize, &u32)| (part, positive(i, *each), Some(u), None);
                    rows.extend(nodes.iter().enumerate().map(of));
                }
                Some(Negatives::Lists(lists)) => {
                    let of = |i: usize| lists.list(i).iter().map(move |&v| (part, Some(i), None, Some(v)));
                    rows.extend((0..lists.len()).flat_map(of));
                }
            }
        }
        let header = ["split", "positive", "source", "destination"].map(String::from);
        self.table(&path, &header, rows.len(), |i, fields| {
            let (part, positive, source, destination) = rows[i];
            fields[0].push_str(part);
            if let Some(positive) = positive {
                write_value(&positive, &mut fields[1]);
            }
            if let Some(source) = source {
                write_key(sources, source as usize, &mut fields[2]);
            }
            if let Some(destination) = destination {
                write_key(destinations, destination as usize, &mut fields[3]);
            }
        })?;
        Ok(path)
    }
}
