//! Tasks that recommend nodes: a list of destinations for each source and time.

use graphmill_core::Result;

use super::{
    super::{
        profile::Shape,
        schema::{LinkTable, Names},
    },
    Database, DatabaseTask, check_entity, file, profile_of,
};

/// Metric of a task whose number of recommended nodes is not recorded; its cutoff is that of
/// training.
const METRIC: &str = "map";

/// Table of links of a task on two entities, or the reason for which it has none. The destination
/// is that of the manifest, else the only column of lists.
///
/// # Errors
/// A file cannot be read.
pub(super) fn link_table(db: &Database, task: &DatabaseTask) -> Result<Result<LinkTable, String>> {
    if task.entities.len() > 2 {
        return Ok(Err(format!("its rows have {} entities", task.entities.len())));
    }
    let Some(time) = task.time.clone() else {
        return Ok(Err("it recommends nodes, and its table records no time".into()));
    };
    let [src, dst] = match &task.recommends {
        Some(columns) => columns.clone(),
        None => {
            let mut lists = Vec::new();
            for column in task.entities.keys() {
                let shape = profile_of(task, column)?.shape();
                if shape.is_some_and(|(shape, _)| shape == Shape::List) {
                    lists.push(column.clone());
                }
            }
            let [dst] = &lists[..] else {
                let columns: Vec<&str> = task.entities.keys().map(|name| &name[..]).collect();
                return Ok(Err(format!(
                    "it recommends nodes, and {} of the columns {} have lists of them instead of one",
                    lists.len(),
                    columns.join(" and ")
                )));
            };
            let mut others = task.entities.keys().filter(|column| *column != dst);
            [others.next().unwrap_or(dst).clone(), dst.clone()]
        }
    };
    let of = |column: &String| task.entities.get(column).cloned().unwrap_or_default();
    let (source, destination) = (of(&src), of(&dst));
    if let Err(why) = check_entity(db, &source).and_then(|()| check_entity(db, &destination)) {
        return Ok(Err(why));
    }
    let part = |part: usize| task.parts[part].as_deref().map_or(Ok(Names::None), file);
    Ok(Ok(LinkTable {
        name: task.name.clone(),
        train: part(0)?,
        valid: part(1)?,
        test: part(2)?,
        source: Some(source),
        destination: Some(destination),
        src: Names::One(src),
        dst: Names::One(dst),
        time,
        metric: Some(task.cutoff.map_or_else(|| METRIC.into(), |k| format!("{METRIC}@{k}"))),
        ..LinkTable::default()
    }))
}
