//! Import of the Facebook100 schools (Traud, Mucha and Porter, Social structure of Facebook
//! networks, Physica A 2012): a `.mat` file, or a directory of such files, which becomes the
//! disjoint union of their graphs, named and ordered by file name.
//!
//! - `A`: a sparse `V x V` matrix; every stored entry is a friendship. The graph is undirected,
//!   without self-loops.
//! - `local_info`: `V x 7` codes: status, gender, major, second major, dorm, year, high school; 0
//!   or negative if unknown.
//!
//! The label is the gender (code 1 is class 0, code 2 is class 1; usual since Lim et al., Large
//! scale learning on non-homophilous graphs, NeurIPS 2021). The features are the other six codes,
//! one-hot: a column for each code in use, first those of status, then major, second major, dorm,
//! year and high school, each ascending; for several schools, the codes used by any of them.
//! Unknown codes are all zero (Lim et al. add columns for them). There is no split.

pub(crate) mod mat5;

use std::{
    fs,
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Features, Labels, NodeId, Result, location::Location, memory, progress::Unit};
#[cfg(test)]
pub(crate) use mat5::testing;
use mat5::{Mat, Variable};

use super::{ImportOptions, ImportReport, Raw, blocks::Blocks, csr::Csr, features};
use crate::{
    dataset::NamedGraph,
    external::{Needs, Scratch},
    npy::{Element, Number},
};

/// Number of columns of `local_info`.
const COLUMNS: usize = 7;
/// Column of the label.
const GENDER: usize = 1;

/// Contents of a file except its edges.
struct School {
    path: PathBuf,
    name: String,
    nodes: usize,
    /// Maximum number of entries of `A`.
    entries: u64,
    /// `local_info`, `V x 7`, column by column.
    info: Vec<u32>,
    /// Number of negative or NaN values of `local_info`.
    negative: u64,
    /// Other variables of the file.
    ignored: Vec<String>,
}

/// Report entry: codes read as missing although the archive's readme defines 0 for that.
const NEGATIVE: &str = "negative codes of local_info, read as missing";

/// Reads the file `src`, or the `.mat` files of the directory `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let mut report = ImportReport::default();
    let schools = find(src, &mut report)?;
    let (mut class, mut graphs, mut num_nodes) = (Vec::new(), Vec::new(), 0);
    for school in &schools {
        graphs.push(NamedGraph::new(&school.name, num_nodes..num_nodes + school.nodes));
        num_nodes += school.nodes;
        class.extend(school.classes()?);
        report.count(NEGATIVE, school.negative);
        school.ignored.iter().for_each(|part| report.ignore(part));
    }
    if num_nodes > NodeId::MAX as usize {
        return Err(Location::new(src, "nodes").error("more nodes than 32-bit ids can number"));
    }
    let features = one_hot(&schools, num_nodes, options.dense_features, &Location::new(src, "local_info"))?;
    let mut edges = scratch.edges(options.edge_options(true));
    scratch.expect(&Needs {
        nodes: num_nodes as u64,
        edges: edges.directions() * schools.iter().map(|school| school.entries).sum::<u64>(),
        features: features.bytes() as u64,
        weighted: false,
        estimated: true, // a friendship stored in both directions counts once
    })?;
    if !edges.take_up_all() {
        let mut blocks = Blocks::new(edges);
        for (school, graph) in schools.iter().zip(&graphs) {
            school.push_edges(graph.nodes.start as NodeId, &mut blocks, scratch)?;
        }
        edges = blocks.finish()?;
    }
    let alone = src.is_file();
    Ok(Raw {
        name: if alone { schools[0].name.clone() } else { stem(src) },
        num_nodes,
        edges,
        features,
        labels: Labels::Single { class: class.into(), classes: 2 },
        graphs: if alone { Vec::new() } else { graphs },
        report,
        ..Raw::default()
    })
}

/// Finds the schools of `src`, at least one; other files are allowed in a directory (the original
/// archive has a `schools.mat`).
fn find(src: &Path, report: &mut ImportReport) -> Result<Vec<School>> {
    if !src.is_dir() {
        return match School::read(src)? {
            Ok(school) => Ok(vec![school]),
            Err(known) => Err(Location::new(src, "variables").error(format!(
                "the file has neither 'A' nor 'local_info'; its variables are: {}",
                known.join(", ")
            ))),
        };
    }
    let entries = fs::read_dir(src).map_err(|e| Error::io(src, "look into", e))?;
    let is_mat = |path: &PathBuf| {
        // Other systems leave hidden files beside files.
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        path.extension().is_some_and(|extension| extension == "mat") && !hidden
    };
    let mut paths: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_mat).collect();
    paths.sort_unstable();
    let mut schools = Vec::new();
    for path in paths {
        match School::read(&path)? {
            Ok(school) => schools.push(school),
            Err(_) => report.ignore(format!("{}.mat", stem(&path))),
        }
    }
    let is_school = |name: &str| schools.iter().any(|school| school.path == src.join(name));
    report.ignore_unread(src, is_school)?;
    if schools.is_empty() {
        return Err(
            Location::new(src, "directory").error("no .mat file with 'A' and 'local_info' in this directory")
        );
    }
    Ok(schools)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

impl School {
    /// Reads everything except the edges; returns the names of the variables if neither of a
    /// school's is present.
    fn read(path: &Path) -> Result<Result<Self, Vec<String>>> {
        let mut mat = Mat::open(path)?;
        let (mut adjacency, mut info, mut known, mut ignored) = (None, None, Vec::new(), Vec::new());
        while let Some(variable) = mat.next()? {
            let twice = match variable.name.as_str() {
                "A" => adjacency.is_some(),
                "local_info" => info.is_some(),
                _ => false,
            };
            if twice {
                return Err(variable.at().error("the variable occurs twice"));
            }
            known.push(variable.name.clone());
            if !["A", "local_info"].contains(&variable.name.as_str()) {
                ignored.push(format!("{}.mat: {}", stem(path), variable.name.escape_debug()));
            }
            match (variable.name.as_str(), &variable.shape[..]) {
                ("A", &[rows, columns]) if rows == columns => {
                    adjacency = Some((rows, variable.most_entries()));
                }
                ("A", shape) => {
                    return Err(variable
                        .at()
                        .error(format!("shape {shape:?} found, a square matrix expected")));
                }
                ("local_info", &[rows, COLUMNS]) => info = Some((rows, codes(variable)?)),
                ("local_info", shape) => {
                    return Err(variable
                        .at()
                        .error(format!("shape {shape:?} found, [nodes, {COLUMNS}] expected")));
                }
                _ => {}
            }
        }
        let ((nodes, entries), (rows, (info, negative))) = match (adjacency, info) {
            (Some(adjacency), Some(info)) => (adjacency, info),
            (None, None) => return Ok(Err(known)),
            (adjacency, _) => {
                let missing = if adjacency.is_some() { "local_info" } else { "A" };
                let message = format!("'{missing}' is missing; the variables are: {}", known.join(", "));
                return Err(Location::new(path, "variables").error(message));
            }
        };
        if rows != nodes {
            let message = format!("{rows} rows, but A has {nodes}");
            return Err(Location::new(path, "variable local_info").error(message));
        }
        Ok(Ok(Self { path: path.to_path_buf(), name: stem(path), nodes, entries, info, negative, ignored }))
    }

    /// Codes of an attribute.
    fn codes(&self, attribute: usize) -> &[u32] {
        &self.info[attribute * self.nodes..(attribute + 1) * self.nodes]
    }

    fn classes(&self) -> Result<Vec<i32>> {
        let class = |(v, &code): (usize, &u32)| match code {
            0..=2 => Ok(code as i32 - 1),
            _ => Err(Location::new(&self.path, "variable local_info")
                .error(format!("the gender of node {v} is {code}; 0 (unknown), 1 or 2 expected"))),
        };
        self.codes(GENDER).iter().enumerate().map(class).collect()
    }

    /// Adds the edges of the school, whose first node is `first`.
    fn push_edges(&self, first: NodeId, edges: &mut Blocks, scratch: &Scratch) -> Result<()> {
        scratch.stage(&format!("edges of {}", self.name), Some(self.entries), Unit::Edges);
        let mut mat = Mat::open(&self.path)?;
        while let Some(variable) = mat.next()? {
            if variable.name != "A" {
                continue;
            }
            if variable.shape != [self.nodes; 2] {
                return Err(variable.at().error("the file has changed while it was read"));
            }
            let matrix = variable.sparse()?;
            for (j, run) in (first..).zip(matrix.starts.windows(2)) {
                for &i in &matrix.row[run[0] as usize..run[1] as usize] {
                    edges.push(first + i, j)?;
                }
            }
            scratch.done(matrix.row.len() as u64);
            return Ok(());
        }
        Err(Location::new(&self.path, "variables").error("the file has changed while it was read"))
    }
}

/// Values of `local_info`, with 0 for missing ones (some schools mark them by a negative code or
/// NaN), and the number of negative or NaN values.
fn codes(variable: Variable) -> Result<(Vec<u32>, u64)> {
    let at = Location::new(variable.at().path, variable.at().place.clone());
    let mut negative = 0;
    let code = |(i, x): (usize, f64)| match x {
        _ if x.is_nan() || x < 0.0 => {
            negative += 1;
            Ok(0)
        }
        _ => u32::from_number(Number::Float(x))
            .ok_or_else(|| at.error(format!("element {i} is {x}: codes are whole numbers of 32 bits"))),
    };
    let codes: Result<_> = variable.dense::<f64>()?.into_iter().enumerate().map(code).collect();
    Ok((codes?, negative))
}

/// One-hot encoding of the codes of all attributes except the label.
fn one_hot(schools: &[School], num_nodes: usize, dense: bool, at: &Location) -> Result<Features> {
    let mut codes: Vec<Vec<u32>> = Vec::new();
    for attribute in (0..COLUMNS).filter(|&attribute| attribute != GENDER) {
        let mut all: Vec<u32> = at.locate(memory::reserve(num_nodes))?;
        all.extend(schools.iter().flat_map(|school| school.codes(attribute)).filter(|code| **code != 0));
        all.sort_unstable();
        all.dedup();
        all.shrink_to_fit();
        codes.push(all);
    }
    let columns = codes.iter().map(Vec::len).sum();
    if columns > u32::MAX as usize {
        return Err(at.error(format!("{columns} codes are more than there can be columns")));
    }
    let mut rows = Csr { rows: num_nodes, columns, indptr: vec![0], ..Csr::default() };
    for school in schools {
        for v in 0..school.nodes {
            let mut first = 0;
            let attributes = (0..COLUMNS).filter(|&attribute| attribute != GENDER);
            for (attribute, known) in attributes.zip(&codes) {
                if let Ok(place) = known.binary_search(&school.codes(attribute)[v]) {
                    rows.indices.push((first + place) as u32);
                }
                first += known.len();
            }
            rows.indptr.push(rows.indices.len() as u64);
        }
    }
    features::from_csr(rows, num_nodes, dense, at, at, &mut ImportReport::default())
}

#[cfg(test)]
mod tests {
    use graphmill_core::features::FeatureData;

    use super::{mat5::testing::Style, *};
    use crate::{Dataset, dataset::import::testing::import};

    const PACKED: Style = Style { big_endian: false, packed: true };
    const PLAIN: Style = Style { big_endian: false, packed: false };

    /// `local_info` with these rows.
    fn info(style: Style, rows: &[[u64; 7]]) -> Vec<u8> {
        let by_columns: Vec<u64> = (0..7).flat_map(|c| rows.iter().map(move |row| row[c])).collect();
        style.matrix(11, 0, &[rows.len() as u64, 7], "local_info", &[style.element(4, 2, &by_columns)])
    }

    const ROWS: [[u64; 7]; 3] =
        [[1, 2, 9, 0, 5, 2009, 300], [1, 0, 7, 9, 0, 2008, 0], [2, 1, 0, 0, 5, 2009, 20]];

    /// Three people; 0 - 1 in both directions, 2 -> 1 in one, and 2 with itself.
    fn school(style: Style) -> Vec<u8> {
        style.file(&[style.sparse([3, 3], "A", &[1, 0, 2, 2], &[0, 1, 3, 4]), info(style, &ROWS)])
    }

    fn other(style: Style) -> Vec<u8> {
        let rows = [[0, 1, 8, 0, 0, 0, 0], [3, 2, 0, 0, 0, 0, 0]];
        style.file(&[info(style, &rows), style.sparse([2, 2], "A", &[1, 0], &[0, 1, 2])])
    }

    fn run(src: &Path) -> Result<Dataset, String> {
        import("facebook100", src, &ImportOptions::default()).map_err(|e| e.to_string())
    }

    fn write(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("Tiny9.mat");
        fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    /// Columns of the ones of every row.
    fn ones(dataset: &Dataset) -> Vec<Vec<usize>> {
        let dim = dataset.features.dim;
        let table = match &dataset.features.data {
            FeatureData::F32(data) => data.to_vec(),
            FeatureData::Csr(rows) => rows.to_dense().unwrap(),
            FeatureData::F16(_) => unreachable!(),
        };
        assert!(table.iter().all(|&x| x == 0.0 || x == 1.0));
        table.chunks(dim).map(|row| (0..dim).filter(|&j| row[j] == 1.0).collect()).collect()
    }

    #[test]
    fn a_school_is_an_undirected_graph() {
        for big_endian in [false, true] {
            for packed in [false, true] {
                let (_dir, path) = write(&school(Style { big_endian, packed }));
                let dataset = run(&path).unwrap();
                assert_eq!((dataset.name.as_str(), dataset.num_nodes()), ("Tiny9", 3));
                assert_eq!(
                    (dataset.graph.indptr(), dataset.graph.indices()),
                    (&[0, 1, 3, 4][..], &[1, 0, 2, 1][..])
                );
                let Labels::Single { class, classes: 2 } = &dataset.labels else { panic!() };
                assert_eq!(class[..], [1, -1, 0]);
                // Codes 1 2 | 7 9 | 9 | 5 | 2008 2009 | 20 300.
                assert_eq!(dataset.features.dim, 10);
                assert_eq!(ones(&dataset), [vec![0, 3, 5, 7, 9], vec![0, 2, 4, 6], vec![1, 5, 7, 8]]);
                assert!(dataset.graphs.is_empty() && dataset.split.train.is_empty());
            }
        }
    }

    #[test]
    fn negative_codes_are_missing_values() {
        let code = |x: i16| u64::from(x as u16);
        let mut codes = [[1; 3], [2, 1, 0], [0; 3], [0; 3], [0; 3], [0; 3], [0; 3]];
        (codes[0][1], codes[1][2], codes[5][0]) = (code(-1), code(-2), code(-7));
        let signed = PLAIN.element(3, 2, codes.as_flattened());
        let signed = PLAIN.matrix(10, 0, &[3, 7], "local_info", &[signed]);
        let extra = PLAIN.matrix(9, 0, &[1, 1], "more", &[PLAIN.element(2, 1, &[7])]);
        let adjacency = PLAIN.sparse([3, 3], "A", &[1, 0, 2, 2], &[0, 1, 3, 4]);
        let (_dir, path) = write(&PLAIN.file(&[adjacency, signed, extra]));
        let imported = super::super::import("facebook100", &path, &ImportOptions::default()).unwrap();
        let Labels::Single { class, classes: 2 } = &imported.dataset.labels else { panic!() };
        assert_eq!(class[..], [1, 0, -1]);
        assert_eq!(ones(&imported.dataset), [vec![0], vec![], vec![0]]);
        let report = imported.report;
        assert_eq!((report.other[NEGATIVE], report.missing_labels), (3, 1));
        assert_eq!(report.ignored_parts, ["Tiny9.mat: more"]);
        // 0 - 1 in both directions and 2 -> 1, each with its reverse; 2 -> 2 is dropped.
        assert_eq!((report.source_edges, report.self_loops_removed), (4, 1));
        assert_eq!((report.reverse_edges_added, report.duplicate_edges_merged), (3, 2));
    }

    #[test]
    fn the_code_80085_below_zero_is_a_missing_value() {
        let codes = [1.0, -80085.0, -80085.0, 0.0, 0.0, 2009.0, -80085.0].map(f64::to_bits);
        let info = PLAIN.matrix(6, 0, &[1, 7], "local_info", &[PLAIN.element(9, 8, &codes)]);
        let (_dir, path) = write(&PLAIN.file(&[PLAIN.sparse([1, 1], "A", &[], &[0, 0]), info]));
        let imported = super::super::import("facebook100", &path, &ImportOptions::default()).unwrap();
        let Labels::Single { class, classes: 2 } = &imported.dataset.labels else { panic!() };
        assert_eq!((&class[..], imported.report.other[NEGATIVE]), (&[-1][..], 3));
        assert_eq!(ones(&imported.dataset), [vec![0, 1]]);
    }

    #[test]
    fn schools_of_a_directory_form_a_union() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        put("b2.mat", &school(PACKED));
        put("a1.mat", &other(PLAIN));
        put("schools.mat", &PLAIN.file(&[PLAIN.matrix(1, 0, &[0, 0], "names", &[])]));
        put("._a1.mat", b"no such file");
        put("readme.txt", b"text");
        let dataset = run(dir.path()).unwrap();
        assert_eq!(dataset.graphs, [NamedGraph::new("a1", 0..2), NamedGraph::new("b2", 2..5)]);
        assert_eq!(dataset.graph.indices(), [1, 0, 3, 2, 4, 3]);
        // Codes 1 2 3 | 7 8 9 | 9 | 5 | 2008 2009 | 20 300.
        assert_eq!(
            ones(&dataset),
            [vec![4], vec![2], vec![0, 5, 7, 9, 11], vec![0, 3, 6, 8], vec![1, 7, 9, 10]]
        );
        let rule = ImportOptions { split: Some("graphs:b2/a1/".parse().unwrap()), ..Default::default() };
        assert_eq!(import("facebook100", dir.path(), &rule).unwrap().split.train[..], [2, 4]);
    }

    #[test]
    fn many_codes_stay_sparse_and_unknown_codes_have_no_column() {
        let rows: Vec<[u64; 7]> = (0..100).map(|v| [0, 1, 0, 0, 0, 0, v]).collect();
        let bytes = PLAIN.file(&[PLAIN.sparse([100, 100], "A", &[], &[0; 101]), info(PLAIN, &rows)]);
        let (_dir, path) = write(&bytes);
        let dataset = run(&path).unwrap();
        assert!(matches!(&dataset.features.data, FeatureData::Csr(rows) if rows.stored() == 99));
        assert_eq!(ones(&dataset)[99], [98]);
        let none = PLAIN.file(&[PLAIN.sparse([1, 1], "A", &[], &[0, 0]), info(PLAIN, &[[0; 7]])]);
        let (_dir, path) = write(&none);
        assert_eq!(run(&path).unwrap().features.dim, 0);
    }

    #[test]
    fn errors_contain_the_file_and_the_variable() {
        let fails = |variables: &[Vec<u8>], why: &str| {
            let (_dir, path) = write(&PLAIN.file(variables));
            let error = run(&path).unwrap_err();
            assert!(error.contains("Tiny9.mat: variable") && error.contains(why), "{error}");
        };
        let adjacency = |n: u64| PLAIN.sparse([n, n], "A", &[], &vec![0; n as usize + 1]);
        let gender = |gender: u64| info(PLAIN, &[[1, gender, 0, 0, 0, 0, 0]]);
        fails(&[], "neither 'A' nor 'local_info'");
        fails(&[adjacency(1)], "'local_info' is missing; the variables are: A");
        fails(&[gender(1)], "'A' is missing; the variables are: local_info");
        fails(&[adjacency(1), adjacency(1)], "A: the variable occurs twice");
        fails(&[adjacency(2), gender(1)], "local_info: 1 rows, but A has 2");
        fails(&[adjacency(1), gender(3)], "the gender of node 0 is 3");
        fails(&[PLAIN.sparse([1, 2], "A", &[], &[0, 0, 0]), gender(1)], "A: shape [1, 2] found");
        fails(&[PLAIN.matrix(6, 0, &[1, 6], "local_info", &[]), adjacency(1)], "[nodes, 7] expected");
        fails(
            &[PLAIN.matrix(6, 0, &[1, 1], "A", &[PLAIN.element(2, 1, &[1])]), gender(1)],
            "A: a sparse matrix",
        );
        let dir = tempfile::tempdir().unwrap();
        assert!(run(dir.path()).unwrap_err().contains("no .mat file with"));
        assert!(run(&dir.path().join("no.mat")).unwrap_err().contains("no.mat: cannot open"));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        for style in [PLAIN, PACKED] {
            let good = school(style);
            let (_dir, path) = write(&good);
            for length in 0..good.len() {
                fs::write(&path, &good[..length]).unwrap();
                assert!(run(&path).is_err(), "{length} of {} bytes", good.len());
            }
            for bit in (0..good.len() * 8).step_by(5) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                fs::write(&path, &bad).unwrap();
                let _ = run(&path); // no panic
            }
            fs::write(&path, &good).unwrap();
            assert!(run(&path).is_ok());
        }
    }
}
