//! Streaming parser of networkx's node-link JSON: the file is mapped and no tree of values is
//! built, so that a file of gigabytes takes the memory of its nodes.
//!
//! ```text
//! {"directed": false, "nodes": [{"id": "a", "val": false, "test": true, ..}, ..],
//!                     "links": [{"source": 0, "target": 1, ..}, ..]}      (or "edges": networkx 3.4)
//! ```
//!
//! networkx 1 (GraphSAGE's) writes the ends of links as indices into the list of nodes, later
//! versions as ids. Text ids can be distinguished from indices, and ids equal to the indices need
//! no distinction; otherwise the ends must be valid in one interpretation only.

use std::{
    borrow::Cow,
    fmt,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use graphmill_core::{Buffer, Error, NodeId, Result, location::Location};
use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{
    super::json,
    numbering::{NO_ROW, Numbering},
};
use crate::npy;

/// Part of the split for which a node is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Train,
    Valid,
    Test,
}

/// Graph whose nodes have been read; its links are read on demand.
pub(super) struct NodeLink {
    path: PathBuf,
    text: Buffer<u8>,
    pub(super) directed: bool,
    /// Role of each node by index; `None` for a node without marks.
    pub(super) roles: Vec<Option<Role>>,
    ids: Ids,
}

/// Ids of the nodes, by index.
enum Ids {
    /// Ids equal to the indices.
    OutputRows,
    Numbers(Vec<i64>),
    Texts(Vec<Box<str>>),
}

/// Meaning of whole numbers at the ends of links.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    OutputRows,
    Ids,
}

impl NodeLink {
    /// Reads the nodes of the graph at `path`.
    ///
    /// # Errors
    /// The file is damaged, or ids are of mixed types or duplicated.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let text = json::map(path)?;
        let (mut numbers, mut texts, mut roles) = (Vec::new(), Vec::new(), Vec::new());
        let mut add = |node: Node| {
            roles.push(node.role()?);
            match node.id {
                Id::Number(x) => numbers.push(x),
                Id::Text(text) => texts.push(text.into()),
            }
            match numbers.is_empty() || texts.is_empty() {
                true => Ok(()),
                false => Err("ids are numbers and texts mixed".into()),
            }
        };
        let mut document = Document { node: Some(&mut add), link: None, directed: false, seen: [false; 2] };
        document.read(&text, path)?;
        let (directed, seen) = (document.directed, document.seen);
        for (seen, list) in seen.iter().zip(["'nodes'", "'links' (or 'edges')"]) {
            if !seen {
                let message = format!("the list {list} is missing: this is not a node-link graph");
                return Err(Location::new(path, "document").error(message));
            }
        }
        if roles.len() >= NodeId::MAX as usize {
            return Err(Location::new(path, "nodes").error("more nodes than 32-bit ids can number"));
        }
        let ids = match texts.is_empty() {
            true if numbers.iter().copied().eq(0..numbers.len() as i64) => Ids::OutputRows,
            true => Ids::Numbers(numbers),
            false => Ids::Texts(texts),
        };
        Ok(Self { path: path.to_path_buf(), text, directed, roles, ids })
    }

    /// Path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.roles.len()
    }

    /// Ids of the nodes by index, in the notation of id maps.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = Cow<'_, str>> {
        (0..self.len()).map(|place| match &self.ids {
            Ids::OutputRows => place.to_string().into(),
            Ids::Numbers(ids) => ids[place].to_string().into(),
            Ids::Texts(ids) => (&*ids[place]).into(),
        })
    }

    /// Estimated number of links: each takes about 60 bytes.
    pub(super) fn estimated_links(&self) -> u64 {
        self.text.len() as u64 / 60
    }

    /// Passes the ends of every link to `each`, as node numbers; links of dropped nodes are skipped
    /// and counted.
    ///
    /// # Errors
    /// The file is damaged, an end is not a node, the ends are ambiguous, or `each` fails.
    pub(super) fn links(
        &self,
        numbering: &Numbering,
        mut each: impl FnMut(NodeId, NodeId) -> Result<()>,
    ) -> Result<u64> {
        let ends = self.ends()?;
        // If the guessed indices are also ids, the interpretation stays ambiguous.
        let guessed = matches!(self.ids, Ids::Numbers(_)) && ends == Ends::OutputRows;
        let (mut all_are_ids, mut any, mut gone) = (true, false, 0);
        let mut failed = None;
        let mut number = |end: &Id| -> Result<NodeId, String> {
            let found = match end {
                Id::Number(x) if ends == Ends::OutputRows => {
                    if guessed && all_are_ids {
                        all_are_ids = numbering.of(&x.to_string()).is_some();
                    }
                    usize::try_from(*x).ok().and_then(|place| numbering.at(place))
                }
                Id::Number(x) => numbering.of(&x.to_string()),
                Id::Text(text) => numbering.of(text),
            };
            found.ok_or_else(|| format!("a link ends at {end}, which is not a node"))
        };
        let mut add = |link: Link| {
            let (src, dst) = (number(&link.source)?, number(&link.target)?);
            any = true;
            if src == NO_ROW || dst == NO_ROW {
                gone += 1;
                return Ok(());
            }
            each(src, dst).map_err(|error| {
                failed = Some(error);
                String::new()
            })
        };
        let read = self.read_links(&mut add);
        if let Some(error) = failed {
            return Err(error);
        }
        read?;
        if guessed && all_are_ids && any {
            return Err(Location::new(&self.path, "links").error(
                "the ends of links are valid as ids and as indices of nodes, which differ: \
                 number the nodes 0, 1, 2, ... in their order, or make the ids text",
            ));
        }
        Ok(gone)
    }

    /// Determines whether numbers at the ends of links are indices: yes, if all of them can be.
    fn ends(&self) -> Result<Ends> {
        let Ids::Numbers(_) = self.ids else {
            return Ok(Ends::OutputRows);
        };
        let mut places = true;
        let mut look = |link: Link| {
            for end in [link.source, link.target] {
                if let Id::Number(x) = end {
                    places &= (0..self.len() as i64).contains(&x);
                }
            }
            Ok(())
        };
        self.read_links(&mut look)?;
        Ok(if places { Ends::OutputRows } else { Ends::Ids })
    }

    fn read_links<'a>(&'a self, add: &'a mut OnLink<'a>) -> Result<()> {
        let mut document = Document { node: None, link: Some(add), directed: false, seen: [false; 2] };
        document.read(&self.text, &self.path)
    }
}

/// Id: a whole number or a text.
enum Id<'a> {
    Number(i64),
    Text(Cow<'a, str>),
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(x) => x.fmt(f),
            Self::Text(text) => write!(f, "'{}'", text.escape_debug()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Id<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(IdVisitor)
    }
}

struct IdVisitor;

impl<'de> Visitor<'de> for IdVisitor {
    type Value = Id<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id (a whole number or a text)")
    }

    fn visit_i64<E: de::Error>(self, x: i64) -> Result<Id<'de>, E> {
        Ok(Id::Number(x))
    }

    fn visit_u64<E: de::Error>(self, x: u64) -> Result<Id<'de>, E> {
        i64::try_from(x).map(Id::Number).map_err(|_| E::custom(format!("{x} is too large for an id")))
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<Id<'de>, E> {
        let whole = <i64 as npy::Element>::from_number(npy::Number::Float(x));
        whole.map(Id::Number).ok_or_else(|| E::custom(format!("{x} is not a whole number")))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Id<'de>, E> {
        Ok(Id::Text(text.into()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Id<'de>, E> {
        Ok(Id::Text(text.to_string().into()))
    }
}

/// Node; other fields are skipped.
#[derive(Deserialize)]
struct Node<'a> {
    #[serde(borrow)]
    id: Id<'a>,
    #[serde(default)]
    val: Option<bool>,
    #[serde(default)]
    test: Option<bool>,
}

impl Node<'_> {
    fn role(&self) -> Result<Option<Role>, String> {
        match (self.val, self.test) {
            (None, None) => Ok(None),
            (Some(true), Some(true)) => Err(format!("node {} is marked 'val' and 'test'", self.id)),
            (Some(true), _) => Ok(Some(Role::Valid)),
            (_, Some(true)) => Ok(Some(Role::Test)),
            _ => Ok(Some(Role::Train)),
        }
    }
}

/// Link; other fields are skipped.
#[derive(Deserialize)]
struct Link<'a> {
    #[serde(borrow)]
    source: Id<'a>,
    #[serde(borrow)]
    target: Id<'a>,
}

/// Consumer of a node; an error message is a fault of the file.
type OnNode<'a> = dyn FnMut(Node) -> Result<(), String> + 'a;
/// Consumer of a link; an error message is a fault of the file.
type OnLink<'a> = dyn FnMut(Link) -> Result<(), String> + 'a;

/// Visitor of the document that emits the requested lists and skips the rest.
struct Document<'a> {
    node: Option<&'a mut OnNode<'a>>,
    link: Option<&'a mut OnLink<'a>>,
    directed: bool,
    /// Flags of the lists of nodes and links that were found.
    seen: [bool; 2],
}

impl Document<'_> {
    fn read(&mut self, text: &[u8], path: &Path) -> Result<(), Error> {
        let mut reader = serde_json::Deserializer::from_slice(text);
        self.deserialize(&mut reader).and_then(|()| reader.end()).map_err(|e| json::error(path, &e))
    }
}

impl<'de> DeserializeSeed<'de> for &mut Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node-link graph (a map with 'nodes' and 'links')")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let list = match &*key {
                "directed" => {
                    self.directed = map.next_value()?;
                    continue;
                }
                "nodes" => 0,
                "links" | "edges" => 1,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if std::mem::replace(&mut self.seen[list], true) {
                return Err(de::Error::custom(format!("the list '{key}' occurs twice")));
            }
            match (list, &mut self.node, &mut self.link) {
                (0, Some(add), _) => map.next_value_seed(Each::new(|node: Node<'de>| add(node)))?,
                (1, _, Some(add)) => map.next_value_seed(Each::new(|link: Link<'de>| add(link)))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Visitor that emits the entries of a list, one at a time.
struct Each<T, F> {
    add: F,
    of: PhantomData<T>,
}

impl<T, F: FnMut(T) -> Result<(), String>> Each<T, F> {
    fn new(add: F) -> Self {
        Self { add, of: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de> for Each<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Each<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(entry) = list.next_element()? {
            (self.add)(entry).map_err(de::Error::custom)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links, whether they are directed, and the marks of the nodes.
    type Graph = (Vec<(u32, u32)>, bool, Vec<Option<Role>>);

    fn run(text: &str) -> Result<Graph, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x-G.json");
        std::fs::write(&path, text).unwrap();
        let run = || {
            let graph = NodeLink::open(&path)?;
            let numbering = Numbering::by_place(graph.path(), graph.keys(), 0)?;
            let mut links = Vec::new();
            graph.links(&numbering, |src, dst| {
                links.push((src, dst));
                Ok(())
            })?;
            Ok((links, graph.directed, graph.roles))
        };
        run().map_err(|e: Error| e.to_string())
    }

    fn links(nodes: &str, links: &str) -> Result<Vec<(u32, u32)>, String> {
        run(&format!(r#"{{"nodes": {nodes}, "links": {links}}}"#)).map(|(links, ..)| links)
    }

    const TWO: &str = r#"[{"source": 0, "target": 2}, {"target": 0, "source": 1}]"#;

    #[test]
    fn link_ends_are_indices_or_ids() {
        let expected = [(0, 2), (1, 0)];
        assert_eq!(links(r#"[{"id": 0}, {"id": 1}, {"id": 2}]"#, TWO).unwrap(), expected);
        assert_eq!(links(r#"[{"id": "x"}, {"id": "0"}, {"id": "y"}]"#, TWO).unwrap(), expected);
        assert_eq!(links(r#"[{"id": 70}, {"id": 71}, {"id": -72.0}]"#, TWO).unwrap(), expected);
        let named = r#"[{"source": "a", "target": "c"}, {"source": "b\u0021", "target": "a"}]"#;
        assert_eq!(links(r#"[{"id": "a"}, {"id": "b!"}, {"id": "c"}]"#, named).unwrap(), expected);
        let numbered = r#"[{"source": 7, "target": 9}, {"source": 1, "target": 7}]"#;
        assert_eq!(links(r#"[{"id": 7}, {"id": 1}, {"id": 9}]"#, numbered).unwrap(), expected);
        let unclear = links(r#"[{"id": 1}, {"id": 2}, {"id": 0}]"#, TWO).unwrap_err();
        assert!(unclear.contains("links: the ends of links are valid as ids and as indices"), "{unclear}");
        assert!(links(r#"[{"id": 1}, {"id": 0}]"#, "[]").unwrap().is_empty());
    }

    #[test]
    fn other_fields_are_skipped() {
        let text = r#"{"graph": {"name": [1, {}]}, "multigraph": true, "directed": true,
            "edges": [{"source": 0, "target": 1, "weight": 0.5, "deep": {"a": [1, 2]}}],
            "nodes": [{"id": 0, "feature": [0.5, 1], "val": true, "test": false}, {"label": [1], "test": true, "id": 1},
                      {"id": 2, "val": false}, {"id": 3}]}"#;
        let (links, directed, roles) = run(text).unwrap();
        assert_eq!((links, directed), (vec![(0, 1)], true));
        assert_eq!(roles, [Some(Role::Valid), Some(Role::Test), Some(Role::Train), None]);
    }

    #[test]
    fn errors_contain_the_line() {
        let fails = |nodes: &str, list: &str, why: &str| {
            let error = links(nodes, list).unwrap_err();
            assert!(error.contains(why) && error.contains("x-G.json: "), "{error}");
        };
        let nodes = r#"[{"id": 0}, {"id": 1}]"#;
        fails(
            nodes,
            "[\n{\"source\": 0, \"target\": 2}]",
            "line 2 column 27: a link ends at 2, which is not a node",
        );
        fails(nodes, r#"[{"source": 0, "target": -1}]"#, "ends at -1");
        fails(nodes, r#"[{"source": 0, "target": "y"}]"#, "ends at 'y'");
        fails(nodes, r#"[{"source": 0}]"#, "missing field `target`");
        fails(nodes, r#"[{"source": 0, "target": null}]"#, "an id (a whole number or a text)");
        fails(nodes, r#"{}"#, "expected a list");
        fails(r#"[{"id": 0}, {"id": "1"}]"#, "[]", "numbers and texts mixed");
        fails(r#"[{"id": 0}, {"id": 0}]"#, "[]", "node '0' occurs twice");
        fails(r#"[{"id": 0.5}]"#, "[]", "0.5 is not a whole number");
        fails(r#"[{"val": true}]"#, "[]", "missing field `id`");
        fails(r#"[{"id": "a", "val": true, "test": true}]"#, "[]", "node 'a' is marked 'val' and 'test'");
        assert!(run("{}").unwrap_err().contains("the list 'nodes' is missing"));
        assert!(run(r#"{"nodes": []}"#).unwrap_err().contains("the list 'links'"));
        assert!(run(r#"{"nodes": [], "nodes": []}"#).unwrap_err().contains("occurs twice"));
        assert!(run("[]").unwrap_err().contains("a node-link graph"));
        assert!(run("").unwrap_err().contains("line 1"));
    }
}
