//! Import of an RDF graph with a node classification task (Schlichtkrull et al., Modeling
//! relational data with graph convolutional networks, ESWC 2018): N-Triples (`.nt`, `.nt.gz`) and,
//! beside them, `trainingSet.tsv` and `testSet.tsv`.
//!
//! - Every subject and object is a node of the type `entity`; literals are nodes too, unless
//!   `no-literals` leaves them out. Keys are IRIs without brackets, and literals and blank nodes as
//!   N-Triples write them.
//! - Every predicate is an edge type, named by the end of its IRI if that is unique.
//! - The tables have a header. The class is the column `label...`, and the node is the first other
//!   column that holds an entity. A fraction of the training nodes (`valid-fraction`, 0.2)
//!   validates.

use std::{collections::HashMap, path::Path};

use graphmill_core::Result;
use oxttl::NTriplesParser;

use super::{
    TypedOptions,
    files::Files,
    lines::{Interner, for_each_line, wrong},
    raw::{RawEdges, RawTyped, Reverse, hold_out, node_task, single_labels},
};
use crate::typed::{EdgeType, Keys};

const ENTITY: &str = "entity";

/// Reads the directory, archive or file `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let is_triples = |name: &&String| name.trim_end_matches(".gz").ends_with(".nt");
    let names: Vec<&str> = files.names().iter().filter(is_triples).map(String::as_str).collect();
    if names.is_empty() {
        files.required("graph.nt")?;
    }
    let (mut entities, mut predicates) = (Interner::default(), Interner::default());
    let mut edges: Vec<[Vec<u32>; 2]> = Vec::new();
    let (mut literals, mut dropped) = (0, 0);
    for name in &names {
        for_each_line(&files, name, |line| {
            for triple in NTriplesParser::new().for_slice(line) {
                let triple = triple.map_err(|e| e.message().to_string())?;
                let is_literal = triple.object.is_literal();
                literals += u64::from(is_literal);
                if is_literal && options.no_literals {
                    dropped += 1;
                    continue;
                }
                let p = predicates.id(triple.predicate.as_str())? as usize;
                if edges.len() <= p {
                    edges.resize_with(p + 1, Default::default);
                }
                edges[p][0].push(entities.id(&key(&triple.subject.to_string()))?);
                edges[p][1].push(entities.id(&key(&triple.object.to_string()))?);
            }
            Ok(())
        })?;
    }
    raw.report.count("triples with a literal object", literals);
    raw.report.count("triples left out with their literals", dropped);
    for (name, [src, dst]) in edge_names(&predicates).into_iter().zip(edges) {
        // R-GCN adds the reverse of every predicate, also of those that have an inverse.
        let reverse =
            if options.add_reverses { Reverse::Add(format!("rev_{name}")) } else { Reverse::ByOption };
        raw.edges.push(RawEdges { src, dst, reverse, ..RawEdges::new(EdgeType::new(ENTITY, name, ENTITY)) });
    }
    raw.add_nodes(ENTITY, entities.len(), Some(Keys::texts(entities.texts())));
    read_task(&files, &entities, options, &mut raw)?;
    raw.report.ignore_unread(files.names(), |name| {
        names.contains(&name)
            || find_table(&files, "training") == Some(name)
            || find_table(&files, "test") == Some(name)
    });
    Ok(raw)
}

/// Key of a term: an IRI without its brackets.
fn key(term: &str) -> String {
    term.strip_prefix('<').and_then(|iri| iri.strip_suffix('>')).unwrap_or(term).to_string()
}

/// Names of the edge types: the end of each IRI, or the whole IRI if the end is not unique.
fn edge_names(predicates: &Interner) -> Vec<String> {
    let end = |iri: &str| iri.rsplit(['#', '/']).next().unwrap_or_default().to_string();
    let mut uses: HashMap<String, usize> = HashMap::new();
    predicates.texts().iter().for_each(|iri| *uses.entry(end(iri)).or_default() += 1);
    let name = |iri: &str| {
        let end = end(iri);
        if end.is_empty() || uses[&end] > 1 { iri.to_string() } else { end }
    };
    predicates.texts().iter().map(|iri| name(iri)).collect()
}

/// Table `trainingSet.tsv` or `testSet.tsv`, in any case.
fn find_table<'f>(files: &'f Files, part: &str) -> Option<&'f str> {
    let wanted = [format!("{part}set.tsv"), format!("{part}set.tsv.gz")];
    files.names().iter().map(String::as_str).find(|name| {
        let base = name.rsplit('/').next().unwrap_or_default().to_lowercase();
        wanted.contains(&base)
    })
}

/// Adds the task of the tables, if there are any.
fn read_task(files: &Files, entities: &Interner, options: &TypedOptions, raw: &mut RawTyped) -> Result<()> {
    let Some(training) = find_table(files, "training") else {
        raw.report.note("there is no trainingSet.tsv: the dataset has no task");
        return Ok(());
    };
    let mut classes = Interner::default();
    let (label, train) = read_table(files, training, entities, &mut classes)?;
    let test = match find_table(files, "test") {
        Some(name) => read_table(files, name, entities, &mut classes)?.1,
        None => Vec::new(),
    };
    let ids = |pairs: &[(u32, u32)]| pairs.iter().map(|&(v, _)| v).collect::<Vec<_>>();
    let (train_ids, mut test_ids) = (ids(&train), ids(&test));
    test_ids.sort_unstable();
    if let Some(v) = train_ids.iter().find(|v| test_ids.binary_search(v).is_ok()) {
        let message = format!("'{}' is also in the test set", entities.texts()[*v as usize]);
        return Err(wrong(files, training, message));
    }
    let labels = single_labels(entities.len(), &[train, test].concat(), classes.len())?;
    let (train, valid) = hold_out(train_ids, options.valid_fraction.unwrap_or(0.2), options.split_seed);
    let name = label.trim_start_matches("label_");
    let mut task = node_task(name, ENTITY, labels, [train, valid, test_ids]);
    task.names = classes.texts().iter().map(|name| name.to_string()).collect();
    raw.tasks.push(task);
    Ok(())
}

/// Reads a table: the name of its label, and pairs of a node and a class.
fn read_table(
    files: &Files,
    name: &str,
    entities: &Interner,
    classes: &mut Interner,
) -> Result<(String, Vec<(u32, u32)>)> {
    let (mut columns, mut pairs) = (None, Vec::new());
    let (mut header, mut seen): (Vec<String>, HashMap<u32, ()>) = Default::default();
    for_each_line(files, name, |line| {
        let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
        if header.is_empty() {
            header = fields.iter().map(|name| name.to_string()).collect();
            return Ok(());
        }
        if fields.len() != header.len() {
            return Err(format!("{} fields, but the header has {}", fields.len(), header.len()));
        }
        let (node, label) = match columns {
            Some(columns) => columns,
            None => {
                let label = header.iter().position(|name| name.starts_with("label"));
                let label = label.ok_or("the header has no column whose name begins with 'label'")?;
                let node = (0..fields.len()).find(|&j| j != label && entities.get(fields[j]).is_some());
                let node = node.ok_or("no column of this row is an entity of the graph")?;
                *columns.insert((node, label))
            }
        };
        let v = entities
            .get(fields[node])
            .ok_or_else(|| format!("'{}' is not an entity of the graph", fields[node]))?;
        if seen.insert(v, ()).is_some() {
            return Err(format!("'{}' has two rows", fields[node]));
        }
        pairs.push((v, classes.id(fields[label])?));
        Ok(())
    })?;
    let label = columns.map_or_else(String::new, |(_, label)| header[label].clone());
    if label.is_empty() {
        return Err(wrong(files, name, "there are no rows below the header"));
    }
    Ok((label, pairs))
}
