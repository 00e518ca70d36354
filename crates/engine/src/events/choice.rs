//! The events of a run: a task of the dataset on edges with times, or the edges of a type with
//! times, which are divided by time.

use std::{borrow::Cow, ops::Range};

use graphmill_core::Buffer;
use graphmill_data::typed::{EdgeData, Task, TaskKind, TaskOn, TypedDataset};

use super::{
    destinations::{self, Destinations},
    opening::RUN,
};
use crate::{
    Error, Result, TrainConfig,
    config::link::{LINK, LinkOptions},
};

/// Largest number of events: each is two edges of a history, whose positions have 32 bits.
pub(super) const MAX_EVENTS: usize = (u32::MAX / 2) as usize;
/// Shares of the edges of a type that train, validate and test by default: those of the papers of
/// TGN, JODIE and DyGFormer.
pub(super) const SHARES: [f64; 3] = [70.0, 15.0, 15.0];

/// Names of the parts of a split.
pub(super) const PARTS: [&str; 3] = ["train", "valid", "test"];

/// The events of a run: the rows of a task, or all edges of a type.
pub(super) struct Chosen<'d> {
    /// The task; of edges of a type one without a split.
    pub(super) task: Cow<'d, Task>,
    /// Shares of the edges that train, validate and test, by time.
    pub(super) shares: Option<[f64; 3]>,
}

/// The task that the run learns, or the edges of a type in the shares of `--split-edges time:...`.
///
/// # Errors
/// As for [`choose`], or the option has shares and the task has a split.
pub(super) fn of_run<'d>(config: &TrainConfig, data: &'d TypedDataset) -> Result<Chosen<'d>> {
    let option = config.own.get::<LinkOptions>().split_edges;
    let chosen = choose(data, &config.task, if option.by_time { option.shares } else { SHARES })?;
    if option.by_time && chosen.shares.is_none() {
        return Err(Error::usage(format!(
            "--split-edges {option}: task '{}' has a split; name an edge type by --task \
             SOURCE:NAME:DESTINATION, or leave --split-edges out",
            chosen.task.name
        )));
    }
    Ok(chosen)
}

impl<'d> Chosen<'d> {
    fn of_task(task: &'d Task) -> Self {
        Self { task: Cow::Borrowed(task), shares: None }
    }

    /// Number of events.
    ///
    /// # Errors
    /// They are too many.
    pub(super) fn count(&self, data: &TypedDataset, edges: &EdgeData) -> Result<usize> {
        let of_parts = || self.task.split.parts().iter().map(|(_, ids)| ids.len()).sum();
        let (count, what) = match self.shares {
            None => (of_parts(), "events".to_string()),
            Some(_) => (self.edges(edges).count(), format!("edges {}", edges.edge_type)),
        };
        if count > MAX_EVENTS {
            let message =
                format!("{count} {what}: at most {MAX_EVENTS} events can be numbered; split the task");
            return Err(Error::dataset(&data.name, message));
        }
        Ok(count)
    }

    /// Edges that are events, ascending: an undirected edge is one.
    pub(super) fn edges<'e>(&self, edges: &'e EdgeData) -> impl Iterator<Item = usize> + Clone + use<'e> {
        let on = &edges.edge_type;
        let is_undirected = edges.reverse.as_ref().is_some_and(|name| on.reversed(name) == *on);
        let mut found = Destinations::new(&edges.indptr);
        (0..edges.num_edges()).filter(move |&e| {
            if is_undirected && e % RUN == 0 {
                destinations::release(edges);
            }
            !is_undirected || edges.indices[e] <= found.of(e)
        })
    }

    /// Parts of `count` edges in the order of their times; empty for a task.
    pub(super) fn cut(&self, count: usize) -> [Range<usize>; 3] {
        let Some(shares) = self.shares else { return [const { 0..0 }; 3] };
        let (first, sum) = (shares[0], shares.iter().sum::<f64>());
        let [train, valid] = [first, first + shares[1]].map(|share| (count as f64 * (share / sum)) as usize);
        [0..train, train..valid, valid..count]
    }
}

/// The task called `name`, or the edges of the type `name` in these shares. If it is empty or
/// `link`, the only link task with times; or the only edge type with times, unless a task says what
/// its edges are for.
///
/// # Errors
/// There is none or more than one, the task is not on edges, or the edge type has no times.
pub(super) fn choose<'d>(data: &'d TypedDataset, name: &str, shares: [f64; 3]) -> Result<Chosen<'d>> {
    if !name.is_empty() && name != LINK {
        return named(data, name, shares);
    }
    let of_links = data.tasks.iter().filter(|task| task.kind() == Some(TaskKind::LinkPrediction));
    let all: Vec<&Task> = of_links.filter(|task| times(data, task).is_some()).collect();
    let several = |what: &str, names: Vec<String>| {
        let names = names.join(", ");
        Err(Error::dataset(
            &data.name,
            format!("it has several {what} with times; choose one: --task {names}"),
        ))
    };
    match all[..] {
        [task] => return Ok(Chosen::of_task(task)),
        [] if has_other_tasks(data, name) => {
            let message = "it has no link prediction task with times; choose a task on edges or an edge type";
            let types = data.edges.iter().map(|edges| edges.edge_type.to_string());
            let known: Vec<String> = data.tasks.iter().map(|task| task.name.clone()).chain(types).collect();
            return Err(Error::dataset(&data.name, format!("{message}: --task {}", known.join(", "))));
        }
        [] => {}
        _ => return several("link tasks", all.iter().map(|task| task.name.clone()).collect()),
    }
    let timed = data.edges.iter().enumerate().filter(|(_, edges)| edges.time.is_some());
    let timed: Vec<&EdgeData> =
        timed.filter(|(r, _)| !is_reverse(data, *r)).map(|(_, edges)| edges).collect();
    match timed[..] {
        [edges] => of_edges(data, edges, shares),
        [] => Err(Error::dataset(
            &data.name,
            "it has no edges with times, which models of events learn; import a table with graphmill import \
             tables --edge-time COLUMN, or a stream with import events or temporal",
        )),
        _ => several("edge types", timed.iter().map(|edges| edges.edge_type.to_string()).collect()),
    }
}

/// Returns true if the dataset has tasks on edges, or if `name` asks for links, tasks of links.
fn has_other_tasks(data: &TypedDataset, name: &str) -> bool {
    let kinds = data.tasks.iter().filter_map(Task::kind);
    kinds.into_iter().any(|kind| match name {
        LINK => kind == TaskKind::LinkPrediction,
        _ => kind.is_on_edges(),
    })
}

/// The task or edge type called `name`.
fn named<'d>(data: &'d TypedDataset, name: &str, shares: [f64; 3]) -> Result<Chosen<'d>> {
    let is_task = data.tasks.iter().any(|task| task.name == name);
    if !is_task && let Some(edges) = data.edges.iter().find(|edges| edges.edge_type.to_string() == name) {
        return of_edges(data, edges, shares);
    }
    let task = data.task(name).map_err(|error| {
        let types: Vec<String> = data.edges.iter().map(|edges| edges.edge_type.to_string()).collect();
        Error::usage(format!("--task {name}: {error}, or an edge type: {}", types.join(", ")))
    })?;
    if task.kind().is_some_and(TaskKind::is_on_edges) {
        return Ok(Chosen::of_task(task));
    }
    let kind = task.kind().map_or("without targets", TaskKind::name);
    let message = format!("task '{name}' is {kind}, and models of events learn tasks on edges");
    Err(Error::dataset(&data.name, format!("{message}; choose another task, or leave --task out")))
}

/// Returns true if edge type `r` holds the reverses of an earlier one.
fn is_reverse(data: &TypedDataset, r: usize) -> bool {
    let own = &data.edges[r].edge_type;
    let reverse = |of: &EdgeData| of.reverse.as_ref().map(|name| of.edge_type.reversed(name));
    data.edges[..r].iter().any(|of| reverse(of).as_ref() == Some(own))
}

/// Prediction of the edges of a type, divided by their times in these shares: the first train, the
/// last test.
///
/// # Errors
/// The edges have no times.
fn of_edges<'d>(data: &TypedDataset, edges: &EdgeData, shares: [f64; 3]) -> Result<Chosen<'d>> {
    let on = &edges.edge_type;
    if edges.time.is_none() {
        return Err(Error::dataset(
            &data.name,
            format!(
                "the edges {on} have no times, which models of events learn; import them with a time column \
                 (--edge-time), or train --model sage --task link"
            ),
        ));
    }
    let task = Task::new(on.to_string(), TaskOn::Edges(on.clone()));
    Ok(Chosen { task: Cow::Owned(task), shares: Some(shares) })
}

/// Time of each row of a task on edges.
pub(super) fn times<'d>(data: &'d TypedDataset, task: &'d Task) -> Option<&'d Buffer<i64>> {
    let TaskOn::Edges(on) = &task.on else { return None };
    match &task.seeds {
        None => task.time.as_ref().or(data.edge_type(on).ok()?.time.as_ref()),
        Some(_) => task.time.as_ref(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use graphmill_core::NodeId;
    use graphmill_data::typed::TypedBuilder;

    use super::*;

    /// Users who visit shops and, if `calls`, call each other.
    pub(crate) fn data(calls: bool) -> TypedDataset {
        let mut builder = TypedBuilder::new("town");
        builder.node_type("user", 10);
        builder.node_type("shop", 4);
        let (src, dst): (Vec<NodeId>, Vec<NodeId>) = (0..40u32).map(|e| (e * 7 % 10, e % 4)).unzip();
        let time: Vec<i64> = (0..40).map(|e| e * 13 % 40).collect();
        builder.edge_type("user", "visits", "shop").edges(src, dst).time(time).with_reverse("visited-by");
        if calls {
            let edges = builder.edge_type("user", "calls", "user");
            edges.edges(vec![0, 3, 3, 5, 5, 9], vec![3, 0, 5, 3, 9, 5]).time(vec![4, 4, 2, 2, 7, 7]);
            edges.reverse_of("calls");
        }
        builder.edge_type("shop", "near", "shop").edges(vec![0, 1], vec![1, 2]);
        builder.build().unwrap()
    }

    #[test]
    fn the_only_edges_with_times_are_the_default() {
        let town = data(false);
        for name in ["", LINK, "user:visits:shop"] {
            let chosen = choose(&town, name, SHARES).unwrap();
            assert_eq!((&chosen.task.name[..], chosen.shares), ("user:visits:shop", Some(SHARES)), "{name}");
        }
        let message = choose(&data(true), "", SHARES).err().unwrap().to_string();
        assert!(message.ends_with("choose one: --task user:visits:shop, user:calls:user"), "{message}");
    }

    #[test]
    fn edges_without_times_are_refused() {
        let data = data(false);
        let message = choose(&data, "shop:near:shop", SHARES).err().unwrap().to_string();
        assert!(message.contains("the edges shop:near:shop have no times"), "{message}");
        let message = choose(&data, "shop:far:shop", SHARES).err().unwrap().to_string();
        assert!(message.contains("or an edge type: user:visits:shop,"), "{message}");
    }
}
