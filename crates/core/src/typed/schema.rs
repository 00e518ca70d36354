//! Node types and relations by name and number, and their common id space.

use std::ops::Range;

use crate::{Error, NodeId, Result};

/// A node type: its name and its number of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeType {
    /// Name, unique among the types.
    pub name: String,
    /// Number of nodes.
    pub count: usize,
}

impl NodeType {
    /// Creates a type of `count` nodes.
    pub fn new(name: impl Into<String>, count: usize) -> Self {
        Self { name: name.into(), count }
    }
}

/// A relation (edge type): edges called `name` from nodes of type `src` to nodes of type `dst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Number of the source type.
    pub src: usize,
    /// Name, unique among the relations between these two types.
    pub name: String,
    /// Number of the destination type.
    pub dst: usize,
}

impl Relation {
    /// Creates a relation between two types, given by their numbers.
    pub fn new(src: usize, name: impl Into<String>, dst: usize) -> Self {
        Self { src, name: name.into(), dst }
    }
}

/// Node types and relations of a typed graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    types: Vec<NodeType>,
    relations: Vec<Relation>,
    /// First global id of each type, and the number of all nodes: `T + 1`.
    offsets: Vec<usize>,
}

impl Schema {
    /// Creates a schema after checking it. All faults are listed at once.
    ///
    /// # Errors
    /// There are no types, a name is empty or not unique, a relation names a type that does not
    /// exist, or the nodes exceed [`NodeId`].
    pub fn new(types: Vec<NodeType>, relations: Vec<Relation>) -> Result<Self> {
        let mut faults = Vec::new();
        if types.is_empty() {
            faults.push("there are no node types; add at least one".to_string());
        }
        let mut check_name = |kind: &str, number: usize, name: &str| {
            if name.is_empty() {
                faults.push(format!("{kind} {number} has an empty name; name it"));
            }
        };
        types.iter().enumerate().for_each(|(t, node)| check_name("node type", t, &node.name));
        relations.iter().enumerate().for_each(|(r, relation)| check_name("relation", r, &relation.name));
        for (t, node) in types.iter().enumerate() {
            if types[..t].iter().any(|other| other.name == node.name) {
                faults.push(format!("two node types are called '{}'; rename one", node.name));
            }
        }
        for (r, relation) in relations.iter().enumerate() {
            let Relation { src, name, dst } = relation;
            if let Some(t) = [src, dst].into_iter().find(|&&t| t >= types.len()) {
                faults.push(format!(
                    "relation {r} '{name}' joins node type {t}, but there are {} types; use a lower number",
                    types.len()
                ));
            } else if relations[..r].contains(relation) {
                let [src, dst] = [src, dst].map(|&t| &types[t].name);
                faults.push(format!("two relations are called '{src}:{name}:{dst}'; rename one"));
            }
        }
        let mut offsets = vec![0];
        let mut nodes = 0usize;
        for node in &types {
            nodes = nodes.saturating_add(node.count);
            offsets.push(nodes);
        }
        if nodes > NodeId::MAX as usize {
            faults.push(format!("{nodes} nodes: node ids are 32-bit, at most {} nodes fit", NodeId::MAX));
        }
        if faults.is_empty() {
            Ok(Self { types, relations, offsets })
        } else {
            Err(Error::invalid(format!("typed graph: {}", faults.join("; "))))
        }
    }

    /// Node types, `T`.
    pub fn types(&self) -> &[NodeType] {
        &self.types
    }

    /// Relations, `R`.
    pub fn relations(&self) -> &[Relation] {
        &self.relations
    }

    /// Number of node types, `T`.
    pub fn num_types(&self) -> usize {
        self.types.len()
    }

    /// Number of relations, `R`.
    pub fn num_relations(&self) -> usize {
        self.relations.len()
    }

    /// Number of nodes of all types.
    pub fn num_nodes(&self) -> usize {
        self.offsets[self.types.len()]
    }

    /// Number of a node type.
    ///
    /// # Errors
    /// No type has that name; the known ones are listed.
    pub fn find_type(&self, name: &str) -> Result<usize> {
        self.types.iter().position(|node| node.name == name).ok_or_else(|| Error::Unknown {
            axis: "node type",
            name: name.to_string(),
            known: self.types.iter().map(|node| &node.name[..]).collect::<Vec<_>>().join(", "),
        })
    }

    /// Number of the relation `SRC:NAME:DST`, or `NAME` if only one relation has that name.
    ///
    /// # Errors
    /// No relation, or more than one, has that name; the known ones are listed.
    pub fn find_relation(&self, name: &str) -> Result<usize> {
        let all: Vec<String> = (0..self.num_relations()).map(|r| self.relation_name(r)).collect();
        let is_named = |&r: &usize| all[r] == name || self.relations[r].name == name;
        let mut found = (0..all.len()).filter(is_named);
        match (found.next(), found.next()) {
            (Some(r), None) => Ok(r),
            (Some(_), Some(_)) => Err(Error::invalid(format!(
                "relation '{name}': several relations have that name; use one of {}",
                all.iter()
                    .filter(|of| of.contains(&format!(":{name}:")))
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
            _ => Err(Error::Unknown { axis: "relation", name: name.to_string(), known: all.join(", ") }),
        }
    }

    /// Full name of a relation, `SRC:NAME:DST`.
    pub fn relation_name(&self, r: usize) -> String {
        let Relation { src, name, dst } = &self.relations[r];
        format!("{}:{name}:{}", self.types[*src].name, self.types[*dst].name)
    }

    /// Numbers of the relations that end at type `t`, ascending.
    pub fn into_type(&self, t: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.num_relations()).filter(move |&r| self.relations[r].dst == t)
    }

    /// Global ids of a type's nodes.
    pub fn range(&self, t: usize) -> Range<NodeId> {
        self.offsets[t] as NodeId..self.offsets[t + 1] as NodeId
    }

    /// Global id of node `local` of type `t`.
    pub fn global(&self, t: usize, local: NodeId) -> NodeId {
        debug_assert!((local as usize) < self.types[t].count, "node {local} of type {t}");
        self.offsets[t] as NodeId + local
    }

    /// Type of a global id, and its number within the type; `None` if the id is not below the
    /// number of nodes.
    pub fn local(&self, global: NodeId) -> Option<(usize, NodeId)> {
        let t = self.offsets.partition_point(|&start| start <= global as usize) - 1;
        (t < self.types.len()).then(|| (t, global - self.offsets[t] as NodeId))
    }

    /// Types whose nodes reach nodes of the types `to` over at most `hops` relations, with `taken`
    /// to say whether a hop (0 next to the seeds) follows a relation. `T` entries.
    pub fn reached(&self, to: &[usize], hops: usize, taken: impl Fn(usize, usize) -> bool) -> Vec<bool> {
        let mut reached = vec![false; self.num_types()];
        to.iter().for_each(|&t| reached[t] = true);
        for hop in 0..hops {
            let before = reached.clone();
            for (r, relation) in self.relations.iter().enumerate() {
                if before[relation.dst] && taken(hop, r) {
                    reached[relation.src] = true;
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types() -> Vec<NodeType> {
        vec![NodeType::new("author", 3), NodeType::new("venue", 0), NodeType::new("paper", 4)]
    }

    #[test]
    fn global_ids_are_contiguous_by_type() {
        let schema = Schema::new(types(), vec![]).unwrap();
        assert_eq!(
            (schema.num_nodes(), schema.range(0), schema.range(1), schema.range(2)),
            (7, 0..3, 3..3, 3..7)
        );
        for global in 0..7 {
            let (t, local) = schema.local(global).unwrap();
            assert_eq!(schema.global(t, local), global);
            assert!(schema.range(t).contains(&global));
        }
        assert_eq!(schema.local(7), None);
    }

    #[test]
    fn all_faults_of_a_schema_are_listed() {
        let mut wrong = types();
        wrong.extend([NodeType::new("paper", 1), NodeType::new("", 1)]);
        let cites = Relation::new(2, "cites", 2);
        let message =
            Schema::new(wrong, vec![cites.clone(), cites, Relation::new(0, "", 9)]).unwrap_err().to_string();
        for part in [
            "two node types are called 'paper'",
            "node type 4 has an empty name",
            "'paper:cites:paper'",
            "relation 2 has an empty name",
            "node type 9",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(Schema::new(vec![], vec![]).unwrap_err().to_string().contains("no node types"));
        let huge = vec![NodeType::new("a", u32::MAX as usize), NodeType::new("b", 1)];
        assert!(Schema::new(huge, vec![]).unwrap_err().to_string().contains("32-bit"));
    }

    #[test]
    fn relations_are_found_by_either_name() {
        let relations =
            vec![Relation::new(0, "writes", 2), Relation::new(2, "in", 1), Relation::new(0, "in", 1)];
        let schema = Schema::new(types(), relations).unwrap();
        assert_eq!(schema.find_relation("writes").unwrap(), 0);
        assert_eq!(schema.find_relation("author:in:venue").unwrap(), 2);
        let several = schema.find_relation("in").unwrap_err().to_string();
        assert!(several.contains("paper:in:venue, author:in:venue"), "{several}");
        let unknown = schema.find_relation("cites").unwrap_err().to_string();
        assert!(unknown.contains("known: author:writes:paper"), "{unknown}");
        assert!(schema.find_type("tag").unwrap_err().to_string().contains("author, venue, paper"));
        assert_eq!(schema.into_type(1).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn types_are_reached_hop_by_hop() {
        let schema =
            Schema::new(types(), vec![Relation::new(0, "writes", 2), Relation::new(2, "in", 1)]).unwrap();
        assert_eq!(schema.reached(&[1], 1, |_, _| true), [false, true, true]);
        assert_eq!(schema.reached(&[1], 2, |_, _| true), [true, true, true]);
        assert_eq!(schema.reached(&[1], 2, |hop, r| (hop, r) != (1, 0)), [false, true, true]);
    }
}
