//! Catalogue of public datasets, stored as one TOML file per collection and built into the program.
//!
//! A collection has the fields shared by its datasets (file names are appended to `base`, of the
//! dataset if it has one); each dataset has the rest. Figures are the published ones. `sha256` and
//! `bytes` are present if they are known for exactly the file at the address; `about` is an
//! approximate size for display and is not checked.

use std::{path::Path, sync::OnceLock};

use serde::{Deserialize, Serialize};

use super::{Error, Result, checksum::is_hex};

/// Collections, in the order of the list.
const COLLECTIONS: &[(&str, &str)] = &[
    ("planetoid.toml", include_str!("catalogue/planetoid.toml")),
    ("shchur.toml", include_str!("catalogue/shchur.toml")),
    ("heterophilous.toml", include_str!("catalogue/heterophilous.toml")),
    ("ogb.toml", include_str!("catalogue/ogb.toml")),
    ("mag.toml", include_str!("catalogue/mag.toml")),
    ("lsc.toml", include_str!("catalogue/lsc.toml")),
    ("links.toml", include_str!("catalogue/links.toml")),
    ("triples.toml", include_str!("catalogue/triples.toml")),
    ("interactions.toml", include_str!("catalogue/interactions.toml")),
    ("jodie.toml", include_str!("catalogue/jodie.toml")),
    ("tgb.toml", include_str!("catalogue/tgb.toml")),
    ("temporal.toml", include_str!("catalogue/temporal.toml")),
    ("graphsaint.toml", include_str!("catalogue/graphsaint.toml")),
    ("graphsage.toml", include_str!("catalogue/graphsage.toml")),
    ("graphbolt.toml", include_str!("catalogue/graphbolt.toml")),
    ("musae.toml", include_str!("catalogue/musae.toml")),
    ("snap.toml", include_str!("catalogue/snap.toml")),
    ("topologies.toml", include_str!("catalogue/topologies.toml")),
];

/// Prediction task of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One class per node.
    Single,
    /// Several labels per node.
    Multi,
    /// Links: edges, events, triples or items of users.
    Link,
    /// No task: a graph without labels, for sampling, caching and partitioning.
    None,
}

impl Task {
    /// Name of the task in the list.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multi => "multi",
            Self::Link => "link",
            Self::None => "-",
        }
    }
}

/// File of a dataset.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// File name in the dataset's directory.
    pub name: String,
    /// Address of the file; empty in the TOML if it is the base followed by the name.
    #[serde(default)]
    pub url: String,
    /// Exact length, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Approximate length, otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<u64>,
    /// SHA-256 checksum, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl File {
    /// Exact or approximate length.
    pub fn size(&self) -> Option<u64> {
        self.bytes.or(self.about)
    }

    /// Returns true if the file is an archive to unpack.
    pub fn is_archive(&self) -> bool {
        Path::new(&self.name).extension().is_some_and(|extension| extension == "zip")
    }

    /// Address to request: the file's own, or `MIRROR/DATASET/FILE`.
    pub fn address(&self, dataset: &str, mirror: Option<&str>) -> String {
        match mirror {
            Some(mirror) => format!("{}/{dataset}/{}", mirror.trim_end_matches('/'), self.name),
            None => self.url.clone(),
        }
    }
}

/// Dataset of the catalogue.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Name on the command line.
    pub name: String,
    /// Description in one line.
    pub title: String,
    /// Publishing collection, which determines the layout.
    pub collection: String,
    /// Prediction task.
    pub task: Task,
    /// Number of nodes, `V`.
    pub nodes: u64,
    /// Number of edges as published; see `directed`.
    pub edges: u64,
    /// True if a published edge stands for one direction only.
    pub directed: bool,
    /// Number of features, `F`; 0 for none.
    pub features: u64,
    /// Number of features of an edge; 0 for none.
    pub edge_features: u64,
    /// Number of classes, `C`; 0 for none.
    pub classes: u64,
    /// Customary metric.
    pub metric: Option<String>,
    /// Published scores.
    pub published: Option<String>,
    /// Format argument of `import`.
    pub format: String,
    /// Path to import within the directory; empty for the directory itself.
    pub source: String,
    /// Options of the import.
    pub options: Vec<String>,
    /// Approximate bytes of the unpacked archives, if known.
    pub unpacked: Option<u64>,
    /// Terms of use as stated by the host.
    pub licence: String,
    /// Paper to cite.
    pub citation: String,
    /// Home page.
    pub home: String,
    /// Manual instructions for a dataset that no program can fetch; `None` if `files` can be
    /// fetched.
    pub manual: Option<String>,
    /// Other remarks.
    pub note: Option<String>,
    /// Files to fetch.
    pub files: Vec<File>,
}

impl Entry {
    /// Exact or approximate bytes to fetch; `None` if a file's size is unknown.
    pub fn download_bytes(&self) -> Option<u64> {
        let sizes = self.files.iter().map(File::size);
        if self.files.is_empty() { None } else { sizes.sum() }
    }

    /// Approximate bytes of the imported dataset: offsets, 32-bit neighbours (in both directions if
    /// the import stores both), 32-bit features of nodes and edges, and labels.
    pub fn imported_bytes(&self) -> u64 {
        let both = !self.directed || self.options.iter().any(|option| option == "--undirected");
        let stored = self.edges * if both { 2 } else { 1 };
        let labels = match self.task {
            Task::Multi => self.nodes * self.classes,
            Task::Single | Task::None => 4 * self.nodes,
            // the ends of the pairs
            Task::Link => 8 * self.edges,
        };
        let features = 4 * (self.nodes * self.features + stored * self.edge_features);
        8 * (self.nodes + 1) + 4 * stored + features + labels
    }

    /// Arguments of `graphmill` that import the dataset from the directory `dir` to `NAME`.
    pub fn import(&self, dir: &str) -> Vec<String> {
        let source = match (dir.trim_end_matches('/'), self.source.as_str()) {
            ("", source) => format!("{dir}{source}"),
            (dir, "") => dir.to_string(),
            (dir, source) => format!("{dir}/{source}"),
        };
        let mut words: Vec<String> = vec!["import".into(), self.format.clone(), source, self.name.clone()];
        words.extend(self.options.iter().cloned());
        words
    }
}

/// Collection as in its TOML file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Collection {
    collection: String,
    format: String,
    #[serde(default)]
    base: String,
    home: String,
    licence: String,
    citation: String,
    dataset: Vec<Row>,
}

/// Dataset as in a TOML file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    title: String,
    task: Task,
    nodes: u64,
    edges: u64,
    #[serde(default)]
    directed: bool,
    #[serde(default)]
    features: u64,
    #[serde(default)]
    edge_features: u64,
    #[serde(default)]
    classes: u64,
    metric: Option<String>,
    published: Option<String>,
    #[serde(default)]
    source: String,
    #[serde(default)]
    options: Vec<String>,
    unpacked: Option<u64>,
    base: Option<String>,
    home: Option<String>,
    licence: Option<String>,
    citation: Option<String>,
    manual: Option<String>,
    note: Option<String>,
    #[serde(default)]
    files: Vec<File>,
}

/// All datasets of the catalogue.
pub fn all() -> &'static [Entry] {
    static ALL: OnceLock<Vec<Entry>> = OnceLock::new();
    ALL.get_or_init(|| {
        let entries = COLLECTIONS.iter().flat_map(|(file, text)| {
            parse(text).unwrap_or_else(|message| panic!("the built-in catalogue/{file}: {message}"))
        });
        entries.collect()
    })
}

/// Parses the datasets of one collection.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let shared: Collection = toml::from_str(text).map_err(|e| e.to_string())?;
    shared
        .dataset
        .into_iter()
        .map(|row| {
            let mut files = row.files;
            let base = row.base.as_ref().unwrap_or(&shared.base);
            for file in &mut files {
                if file.url.is_empty() {
                    file.url = format!("{base}{}", file.name);
                }
                check(&row.name, file)?;
            }
            if files.is_empty() != row.manual.is_some() {
                return Err(format!("{}: exactly one of files and manual is required", row.name));
            }
            Ok(Entry {
                name: row.name,
                title: row.title,
                collection: shared.collection.clone(),
                task: row.task,
                nodes: row.nodes,
                edges: row.edges,
                directed: row.directed,
                features: row.features,
                edge_features: row.edge_features,
                classes: row.classes,
                metric: row.metric,
                published: row.published,
                format: shared.format.clone(),
                source: row.source,
                options: row.options,
                unpacked: row.unpacked,
                licence: row.licence.unwrap_or_else(|| shared.licence.clone()),
                citation: row.citation.unwrap_or_else(|| shared.citation.clone()),
                home: row.home.unwrap_or_else(|| shared.home.clone()),
                manual: row.manual,
                note: row.note,
                files,
            })
        })
        .collect()
}

fn check(dataset: &str, file: &File) -> Result<(), String> {
    let fault = |why: &str| Err(format!("{dataset}: {}: {why}", file.name));
    let plain =
        !file.name.is_empty() && !file.name.starts_with('.') && !file.name.contains(['/', '\\', ':', ' ']);
    if !plain {
        return fault("not a plain file name");
    }
    if !file.url.starts_with("https://") {
        return fault("no https address");
    }
    if file.sha256.as_deref().is_some_and(|sum| !is_hex(sum)) {
        return fault("no SHA-256");
    }
    if file.bytes.is_some() && file.about.is_some() {
        return fault("bytes and about exclude each other");
    }
    Ok(())
}

/// Finds the dataset called `name`; ignores case and treats `-` and `_` alike.
///
/// # Errors
/// The name is unknown: the error lists the known names and suggests the closest.
pub fn find(name: &str) -> Result<&'static Entry> {
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    let wanted = plain(name);
    all().iter().find(|entry| plain(&entry.name) == wanted).ok_or_else(|| {
        // The part after the family's prefix also matches: 'products' for 'ogbn-products'.
        let distance = |entry: &&Entry| {
            let whole = plain(&entry.name);
            let rest = whole.split_once('-').map_or(whole.as_str(), |(_, rest)| rest);
            [whole.as_str(), rest].map(|known| strsim::damerau_levenshtein(known, &wanted)).into_iter().min()
        };
        let near =
            all().iter().min_by_key(distance).filter(|entry| distance(entry) <= Some(1 + wanted.len() / 4));
        Error::Unknown {
            name: name.to_string(),
            near: near.map(|entry| entry.name.clone()),
            known: all().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", "),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_entry_is_consistent() {
        let mut names = HashSet::new();
        for entry in all() {
            let plain = entry.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            assert!(plain && names.insert(entry.name.to_lowercase()), "{}", entry.name);
            assert!(entry.name != "download" && entry.name != "help");
            assert!(entry.nodes > 0 && entry.edges > 0, "{}", entry.name);
            let is_classified = matches!(entry.task, Task::Single | Task::Multi);
            assert_eq!(entry.classes > 0, is_classified, "{}", entry.name);
            assert_eq!(entry.metric.is_some(), entry.task != Task::None, "{}", entry.name);
            for text in [&entry.title, &entry.licence, &entry.citation, &entry.home] {
                assert!(!text.is_empty() && !text.ends_with('.'), "{}: '{text}'", entry.name);
            }
            let files: HashSet<_> = entry.files.iter().map(|file| &file.name).collect();
            assert_eq!(files.len(), entry.files.len(), "{}", entry.name);
            let source = entry.source.split('/').next().unwrap_or_default();
            let found = source.is_empty()
                || entry.files.iter().any(|file| file.is_archive() || file.name.starts_with(source));
            assert!(found || entry.manual.is_some(), "{}: where does '{source}' come from?", entry.name);
        }
        assert!(all().len() > 70);
    }

    #[test]
    fn similar_names_are_suggested() {
        assert_eq!(find("OGBN_arxiv").unwrap().name, "ogbn-arxiv");
        let near = |name: &str| match find(name) {
            Err(Error::Unknown { near, .. }) => near,
            other => panic!("{other:?}"),
        };
        assert_eq!(near("pubmd").as_deref(), Some("pubmed"));
        assert_eq!(near("products").as_deref(), Some("ogbn-products"));
        assert_eq!(near("produkts").as_deref(), Some("ogbn-products"));
        assert_eq!(near("nothing-like-it-at-all"), None);
        assert_eq!(near(""), None);
    }

    #[test]
    fn import_arguments_contain_the_source() {
        let entry = find("cora").unwrap();
        assert_eq!(entry.import("cora-raw/")[..4], ["import", "planetoid", "cora-raw/ind.cora", "cora"]);
        assert_eq!(entry.import("/")[2], "/ind.cora");
        assert_eq!(find("flickr").unwrap().import("f")[2], "f");
        // 2,708 nodes with 1,433 features, 5,278 edges in both directions.
        assert_eq!(entry.imported_bytes(), 8 * 2709 + 4 * 2 * 5278 + 4 * 2708 * 1433 + 4 * 2708);
    }

    #[test]
    fn mirrors_have_one_directory_per_dataset() {
        let file = &find("cora").unwrap().files[0];
        assert_eq!(file.address("cora", Some("http://host/m/")), format!("http://host/m/cora/{}", file.name));
        assert!(file.address("cora", None).starts_with("https://raw.githubusercontent.com/"));
    }

    #[test]
    fn catalogue_errors_are_reported() {
        let good = "collection='c'\nformat='f'\nhome='h'\nlicence='l'\ncitation='c'\nbase='https://h/'\n\
                    [[dataset]]\nname='n'\ntitle='t'\ntask='none'\nnodes=1\nedges=1\n";
        assert_eq!(
            parse(&format!("{good}files=[{{name='a.zip'}}]")).unwrap()[0].files[0].url,
            "https://h/a.zip"
        );
        for (bad, says) in [
            ("", "exactly one of"),
            ("manual='m'\nfiles=[{name='a'}]", "exactly one of"),
            ("files=[{name='../a'}]", "plain"),
            ("files=[{name='a',url='ftp://a'}]", "address"),
            ("files=[{name='a',url='http://a'}]", "no https address"),
            ("files=[{name='a',sha256='ABC'}]", "SHA-256"),
            ("files=[{name='a',bytes=1,about=1}]", "exclude each other"),
            ("files=[{name='a',md5='1'}]", "md5"),
        ] {
            let message = parse(&format!("{good}{bad}")).unwrap_err();
            assert!(message.contains(says), "{bad}: {message}");
        }
    }
}
