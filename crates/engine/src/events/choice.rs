//! The events of a run: a task of the dataset on edges with times, or the edges of a type with
//! times, which are divided by time.

use std::borrow::Cow;

use graphmill_core::{Buffer, NodeId, Split};
use graphmill_data::typed::{EdgeData, Task, TaskKind, TaskOn, TypedDataset};

use crate::{
    Error, Result, TrainConfig,
    config::link::{LINK, LinkOptions},
};

/// Largest number of events: each is two edges of a history, whose positions have 32 bits.
pub(super) const MAX_EVENTS: usize = (u32::MAX / 2) as usize;
/// Shares of the edges of a type that train, validate and test by default: those of the papers of
/// TGN, JODIE and DyGFormer.
const SHARES: [f64; 3] = [70.0, 15.0, 15.0];

/// The task that the run learns, or the edges of a type in the shares of `--split-edges time:...`.
///
/// # Errors
/// As for [`choose`], or the option has shares and the task has a split.
pub(super) fn of_run<'d>(config: &TrainConfig, data: &'d TypedDataset) -> Result<Cow<'d, Task>> {
    let option = config.own.get::<LinkOptions>().split_edges;
    let task = choose(data, &config.task, if option.by_time { option.shares } else { SHARES })?;
    if option.by_time && matches!(task, Cow::Borrowed(_)) {
        return Err(Error::usage(format!(
            "--split-edges {option}: task '{}' has a split; name an edge type by --task \
             SOURCE:NAME:DESTINATION, or leave --split-edges out",
            task.name
        )));
    }
    Ok(task)
}

/// The task called `name`, or the edges of the type `name` in these shares. If it is empty or
/// `link`, the only link task with times; or the only edge type with times, unless a task says what
/// its edges are for.
///
/// # Errors
/// There is none or more than one, the task is not on edges, or the edge type has no times.
fn choose<'d>(data: &'d TypedDataset, name: &str, shares: [f64; 3]) -> Result<Cow<'d, Task>> {
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
        [task] => return Ok(Cow::Borrowed(task)),
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
        [edges] => of_edges(data, edges, shares).map(Cow::Owned),
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
fn named<'d>(data: &'d TypedDataset, name: &str, shares: [f64; 3]) -> Result<Cow<'d, Task>> {
    let is_task = data.tasks.iter().any(|task| task.name == name);
    if !is_task && let Some(edges) = data.edges.iter().find(|edges| edges.edge_type.to_string() == name) {
        return of_edges(data, edges, shares).map(Cow::Owned);
    }
    let task = data.task(name).map_err(|error| {
        let types: Vec<String> = data.edges.iter().map(|edges| edges.edge_type.to_string()).collect();
        Error::usage(format!("--task {name}: {error}, or an edge type: {}", types.join(", ")))
    })?;
    if task.kind().is_some_and(TaskKind::is_on_edges) {
        return Ok(Cow::Borrowed(task));
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
/// last test. An undirected edge is one event.
///
/// # Errors
/// The edges have no times, or are too many.
fn of_edges(data: &TypedDataset, edges: &EdgeData, shares: [f64; 3]) -> Result<Task> {
    let on = &edges.edge_type;
    let Some(time) = &edges.time else {
        return Err(Error::dataset(
            &data.name,
            format!(
                "the edges {on} have no times, which models of events learn; import them with a time column \
                 (--edge-time), or train --model sage --task link"
            ),
        ));
    };
    let is_undirected = edges.reverse.as_ref().is_some_and(|name| on.reversed(name) == *on);
    let destinations = if is_undirected { edges.destinations() } else { Vec::new() };
    let is_event = |&e: &usize| !is_undirected || edges.indices[e] <= destinations[e];
    let mut rows: Vec<usize> = (0..edges.num_edges()).filter(is_event).collect();
    if rows.len() > MAX_EVENTS {
        let message = format!("{} edges {on}: at most {MAX_EVENTS} events can be numbered", rows.len());
        return Err(Error::dataset(&data.name, message));
    }
    rows.sort_by_key(|&e| time[e]); // stable: equal times keep their order
    let rows: Vec<NodeId> = rows.into_iter().map(|e| e as NodeId).collect();
    let (first, sum) = (shares[0], shares.iter().sum::<f64>());
    let [train, valid] = [first, first + shares[1]].map(|share| (rows.len() as f64 * (share / sum)) as usize);
    let part = |range: &[NodeId]| {
        let mut rows = range.to_vec();
        rows.sort_unstable();
        Buffer::from(rows)
    };
    let split =
        Split { train: part(&rows[..train]), valid: part(&rows[train..valid]), test: part(&rows[valid..]) };
    Ok(Task { split, ..Task::new(on.to_string(), TaskOn::Edges(on.clone())) })
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
mod tests {
    use graphmill_data::typed::TypedBuilder;

    use super::*;

    /// Users who visit shops and, if `calls`, call each other.
    fn data(calls: bool) -> TypedDataset {
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

    /// Times of the parts.
    fn parts(data: &TypedDataset, task: &Task) -> Vec<Vec<i64>> {
        let times = times(data, task).unwrap();
        let of_part = |(_, rows): (&str, &Buffer<NodeId>)| {
            assert!(rows.is_sorted_by(|a, b| a < b));
            let mut found: Vec<i64> = rows.iter().map(|&row| times[row as usize]).collect();
            found.sort_unstable();
            found
        };
        task.split.parts().into_iter().map(of_part).collect()
    }

    #[test]
    fn edges_with_times_are_divided_by_time() {
        let data = data(false);
        for name in ["", LINK, "user:visits:shop"] {
            let task = choose(&data, name, SHARES).unwrap();
            assert_eq!(task.name, "user:visits:shop");
            let expected: [Vec<i64>; 3] = [(0..28).collect(), (28..34).collect(), (34..40).collect()];
            assert_eq!(parts(&data, &task), expected, "{name}");
        }
        let task = choose(&data, "shop:visited-by:user", SHARES).unwrap();
        assert_eq!(parts(&data, &task)[2], (34..40).collect::<Vec<_>>(), "the reverses, if they are named");
        let task = choose(&data, "", [2.0, 1.0, 1.0]).unwrap();
        let expected: [Vec<i64>; 3] = [(0..20).collect(), (20..30).collect(), (30..40).collect()];
        assert_eq!(parts(&data, &task), expected, "in shares");
    }

    #[test]
    fn an_undirected_edge_is_one_event() {
        let data = data(true);
        let task = choose(&data, "user:calls:user", SHARES).unwrap();
        assert_eq!(parts(&data, &task).concat(), [2, 4, 7]);
        let message = choose(&data, "", SHARES).unwrap_err().to_string();
        assert!(message.ends_with("choose one: --task user:visits:shop, user:calls:user"), "{message}");
    }

    #[test]
    fn edges_without_times_are_refused() {
        let data = data(false);
        let message = choose(&data, "shop:near:shop", SHARES).unwrap_err().to_string();
        assert!(message.contains("the edges shop:near:shop have no times"), "{message}");
        let message = choose(&data, "shop:far:shop", SHARES).unwrap_err().to_string();
        assert!(message.contains("or an edge type: user:visits:shop,"), "{message}");
    }
}
