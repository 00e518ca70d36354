//! Import of a knowledge graph: lines `head<TAB>relation<TAB>tail` in `train.txt`, `valid.txt` and
//! `test.txt` (or `.tsv`), in a directory or an archive (FB15k-237, WN18RR, CoDEx).
//!
//! - All entities of the three files are nodes of the type `entity`, with their names as keys; each
//!   relation is an edge type whose edges are the training triples.
//! - Each relation has a link prediction task of the same name: its triples of the three files. The
//!   triples of `valid_negatives.txt` and `test_negatives.txt` are given negatives.
//! - With `add-reverses`, each relation `NAME` without an inverse in the source gets the edge type
//!   `rev_NAME`, over which encoders pass messages from tails to heads. It has no task. It is an
//!   option because tables of embeddings do not read it, and an edge type takes 8 bytes an entity.
//! - `entity2types*.json`, an object from entities to lists of types, becomes the node type `type`
//!   and the edge type `entity:has_type:type`.

use std::path::Path;

use graphmill_core::Result;
use serde_json::Value;

use super::{
    TypedOptions,
    files::Files,
    lines::{Interner, for_each_line, wrong},
    raw::{RawEdges, RawTyped, link_task},
};
use crate::typed::{EdgeType, Keys, Negatives};

/// Maximum length of a file of entity types.
const MAX_TYPES: u64 = 1 << 30;
/// Maximum number of relations: each becomes an edge type.
const MAX_RELATIONS: usize = 1 << 16;
const ENTITY: &str = "entity";
const HAS_TYPE: &str = "has_type";

/// Triples of a file by relation: pairs of head and tail.
type Triples = Vec<Vec<u32>>;

/// Reads the directory or archive `src`.
pub(super) fn read(src: &Path, _options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let (mut entities, mut relations) = (Interner::default(), Interner::default());
    let mut read = Vec::new();
    let mut part = |stem: &str, required: bool| -> Result<(Triples, usize)> {
        let endings = [".txt", ".tsv"].map(|ending| format!("{stem}{ending}"));
        let found = endings.iter().find_map(|name| files.find(name));
        let Some(name) =
            (if required && found.is_none() { Some(files.required(&endings[0])?) } else { found })
        else {
            return Ok(Default::default());
        };
        read.push(name);
        let before = entities.len();
        Ok((read_triples(&files, name, &mut entities, &mut relations)?, entities.len() - before))
    };
    let (train, _) = part("train", true)?;
    let mut held = Vec::new();
    for (stem, other) in [("valid", "dev"), ("test", "test")] {
        let (mut triples, mut new) = part(stem, false)?;
        if triples.is_empty() && other != stem {
            (triples, new) = part(other, false)?;
        }
        raw.report.count(&format!("entities that only {stem} names"), new as u64);
        held.push(triples);
    }
    let negatives = [part("valid_negatives", false)?.0, part("test_negatives", false)?.0];
    let of = |triples: &Triples, r: usize| triples.get(r).cloned().unwrap_or_default();
    for (r, name) in relations.texts().iter().enumerate() {
        let edge_type = EdgeType::new(ENTITY, &**name, ENTITY);
        let train = of(&train, r);
        let mut edges = RawEdges::new(edge_type.clone());
        (edges.src, edges.dst) =
            (train.iter().copied().step_by(2).collect(), train.iter().copied().skip(1).step_by(2).collect());
        raw.edges.push(edges);
        let given = |triples: &Triples| {
            Some(of(triples, r)).filter(|pairs| !pairs.is_empty()).map(|pairs| Negatives::Pairs(pairs.into()))
        };
        let negatives = [None, given(&negatives[0]), given(&negatives[1])];
        let mut task = link_task(name, &edge_type, [train, of(&held[0], r), of(&held[1], r)], negatives);
        task.metric = Some("mrr".into());
        raw.tasks.push(task);
    }
    read_types(&files, &mut entities, &mut read, &mut raw)?;
    raw.nodes.insert(
        0,
        crate::typed::NodeData {
            name: ENTITY.into(),
            count: entities.len(),
            keys: Some(Keys::texts(entities.texts())),
            ..Default::default()
        },
    );
    raw.report.ignore_unread(files.names(), |name| read.contains(&name));
    Ok(raw)
}

fn read_triples(
    files: &Files,
    name: &str,
    entities: &mut Interner,
    relations: &mut Interner,
) -> Result<Triples> {
    let mut triples = Triples::new();
    for_each_line(files, name, |line| {
        let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
        let &[head, relation, tail] = &fields[..] else {
            return Err(format!(
                "three fields expected, separated by tabs: head, relation, tail; {} found",
                fields.len()
            ));
        };
        if [head, relation, tail].contains(&"") {
            return Err("a field is empty".into());
        }
        let r = relations.id(relation)? as usize;
        if r >= MAX_RELATIONS {
            return Err(format!("more than {MAX_RELATIONS} relations: is the relation the second column?"));
        }
        if triples.len() <= r {
            triples.resize_with(r + 1, Vec::new);
        }
        let pair = [entities.id(head)?, entities.id(tail)?];
        triples[r].extend(pair);
        Ok(())
    })?;
    Ok(triples)
}

/// Reads the types of the entities, if there is a file of them.
fn read_types<'f>(
    files: &'f Files,
    entities: &mut Interner,
    read: &mut Vec<&'f str>,
    raw: &mut RawTyped,
) -> Result<()> {
    let name = files.names().iter().find(|name| {
        let base = name.rsplit('/').next().unwrap_or_default();
        base.starts_with("entity2types") && base.trim_end_matches(".gz").ends_with(".json")
    });
    let Some(name) = name else { return Ok(()) };
    read.push(name);
    let text = files.bytes(name, MAX_TYPES)?;
    let fault = |e: serde_json::Error| {
        files.error(name, format!("line {} column {}", e.line(), e.column()), e.to_string())
    };
    let Value::Object(entries) = serde_json::from_slice(&text).map_err(fault)? else {
        return Err(wrong(files, name, "an object from entities to lists of types expected"));
    };
    let (mut types, mut unknown) = (Interner::default(), 0);
    let mut edges = RawEdges::new(EdgeType::new(ENTITY, HAS_TYPE, "type"));
    for (entity, list) in entries {
        let list =
            list.as_array().ok_or_else(|| wrong(files, name, format!("'{entity}' has no list of types")))?;
        let Some(e) = entities.get(&entity) else {
            unknown += 1;
            continue;
        };
        for kind in list {
            let kind = kind
                .as_str()
                .ok_or_else(|| wrong(files, name, format!("a type of '{entity}' is not a text")))?;
            edges.src.push(e);
            edges.dst.push(types.id(kind).map_err(|e| wrong(files, name, e))?);
        }
    }
    raw.report.count("entities with types that no triple names", unknown);
    raw.add_nodes("type", types.len(), Some(Keys::texts(types.texts())));
    raw.edges.push(edges);
    Ok(())
}
