//! The table of kernels against the declarations in the sources.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use graphmill_core::matrix::TableType;

use super::{
    AggregateMaxBack, Edges, Gather, GeluForward, In, Kernel, Late, Names, Out, RowKernel as _, ScoreSoftmax,
    Table, Wide, declared,
};
use crate::driver::Address;

/// Start of a kernel's declaration.
const KERNEL: &str = "extern \"C\" __global__ void";
/// Files whose kernels tests launch through the driver.
const OF_TESTS: [&str; 1] = ["selftest.cu"];
/// Types of the values of a table, in the order of [`Names`].
const TABLES: [&str; 4] = ["", "float", "Half", "Bfloat"];

/// Parameters of a kernel as declared in Rust: type and name of each.
pub(crate) struct Declaration {
    names: &'static Names,
    has_long_rows: bool,
    has_table: bool,
    pub(super) wide: bool,
    pub(super) late: bool,
    parameters: Vec<(String, String)>,
}

impl Declaration {
    pub(crate) fn new(names: &'static Names, has_long_rows: bool) -> Self {
        Self { names, has_long_rows, has_table: false, wide: false, late: false, parameters: Vec::new() }
    }

    /// Adds a parameter of this type.
    pub(super) fn add(&mut self, of: &str, name: &str) {
        self.parameters.push((of.to_owned(), name.to_owned()));
    }

    /// Adds rows of a table, whose type depends on the variant.
    pub(super) fn add_table(&mut self, name: &str) {
        self.has_table = true;
        self.add("const TABLE*", name);
    }

    /// Names of all variants, each with its parameters.
    fn variants(&self) -> Vec<(&'static str, Vec<(String, String)>)> {
        let mut variants = Vec::new();
        for table in if self.has_table { 1..4 } else { 0..1 } {
            for width in 0..=usize::from(self.wide) {
                for rows in 0..=usize::from(self.has_long_rows) {
                    let of_table =
                        |(of, name): &(String, String)| (of.replace("TABLE", TABLES[table]), name.clone());
                    let mut parameters: Vec<_> = self.parameters.iter().map(of_table).collect();
                    let rest: &[_] = match (self.has_long_rows, rows) {
                        (false, _) => &[],
                        (true, 0) => &[("uint64_t", "rows"), ("uint32_t", "long_from")],
                        (true, _) => &[("const uint32_t*", "long_count"), ("const uint32_t*", "long_rows")],
                    };
                    let late = self.late.then_some(&("const uint64_t*", "late"));
                    parameters
                        .extend(rest.iter().chain(late).map(|&(of, name)| (of.to_owned(), name.to_owned())));
                    variants.push((self.names[table][width][rows], parameters));
                }
            }
        }
        variants
    }
}

/// Directory of the sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

/// Code of a source, without comments and with continued lines joined.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap().replace("\\\n", " ");
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Macros of a source and of the sources that it includes: name, parameter if it has one, and text.
fn macros(path: &Path, to: &mut BTreeMap<String, (Option<String>, String)>) {
    for line in code(path).lines() {
        if let Some(name) = line.strip_prefix("#include \"").and_then(|name| name.strip_suffix('"')) {
            let included = path.with_file_name(name);
            if included.exists() {
                macros(&included, to);
            }
        }
        let Some(rest) = line.strip_prefix("#define ") else { continue };
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let (parameter, text) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((parameter, text)) => (Some(parameter.to_owned()), text),
            None => (None, rest),
        };
        to.insert(name.to_owned(), (parameter, text.to_owned()));
    }
}

/// Parameters in a list of parameters and macros: type and name of each.
fn parameters(list: &str, macros: &BTreeMap<String, (Option<String>, String)>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, argument) = part.split_once('(').map_or((part, None), |(name, rest)| (name, Some(rest)));
        if let Some((parameter, text)) = macros.get(name) {
            let argument = argument.map(|rest| rest.trim_end_matches(')'));
            let text = match (parameter, argument) {
                (Some(parameter), Some(argument)) => {
                    let words = text.split(' ').map(|word| if word == parameter { argument } else { word });
                    words.collect::<Vec<_>>().join(" ")
                }
                _ => text.clone(),
            };
            found.extend(parameters(&text, macros));
            continue;
        }
        let spaced = part.replace('*', "* ").replace("unsigned char", "uint8_t");
        let mut words: Vec<_> = spaced.split_whitespace().collect();
        let name = words.pop().unwrap();
        // the one name that the table does not share: a counter from which blocks take tiles
        let name = if name == ["deal", "t"].concat() { "counters" } else { name };
        found.push((words.join(" ").replace(" *", "*"), name.to_owned()));
    }
    found
}

/// List in a text that follows its opening parenthesis.
fn list(text: &str) -> &str {
    let mut open = 1;
    let close = text.find(|c: char| {
        open += i32::from(c == '(') - i32::from(c == ')');
        open == 0
    });
    &text[..close.unwrap()]
}

/// Kernels of the sources: parameters by name.
fn kernels() -> BTreeMap<String, Vec<(String, String)>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(sources()).unwrap() {
        let path = entry.unwrap().path();
        let is_of_tests = OF_TESTS.contains(&path.file_name().unwrap().to_str().unwrap());
        if path.extension().is_none_or(|extension| extension != "cu") || is_of_tests {
            continue;
        }
        let mut of_file = BTreeMap::new();
        macros(&path, &mut of_file);
        for rest in code(&path).split(KERNEL).skip(1) {
            let rest = rest.trim_start();
            let bounds = rest.strip_prefix("__launch_bounds__").and_then(|rest| rest.split_once(')'));
            let (name, rest) = bounds.map_or(rest, |(_, rest)| rest).split_once('(').unwrap();
            found.insert(name.trim().to_owned(), parameters(list(rest), &of_file));
        }
    }
    found
}

#[test]
fn declarations_match_the_sources() {
    let mut kernels = kernels();
    assert!(kernels.len() > 100, "only {} kernels were found in the sources", kernels.len());
    for (name, declared) in declared().iter().flat_map(Declaration::variants) {
        let kernel = kernels.remove(name);
        let kernel =
            kernel.unwrap_or_else(|| panic!("kernel {name} is not in the sources, or declared twice"));
        assert_eq!(
            declared, kernel,
            "kernel {name}: left as in src/kernels/table.rs, right as in the sources"
        );
    }
    assert!(kernels.is_empty(), "kernels that src/kernels/table.rs does not declare: {:?}", kernels.keys());
}

#[test]
fn macros_of_the_sources_are_expanded() {
    let mut of_file = BTreeMap::new();
    macros(&sources().join("attend_input.cu"), &mut of_file);
    let found = parameters("ROWS_PARAMETERS(Half), LISTED, const unsigned char* more", &of_file);
    let expected = [
        ("const uint32_t*", "indptr"),
        ("const uint32_t*", "indices"),
        ("const uint32_t*", "entry"),
        ("const uint32_t*", "own_rows"),
        ("uint64_t", "num_edges"),
        ("uint64_t", "num_own"),
        ("const Half*", "x"),
        ("uint64_t", "cols"),
        ("const float*", "used"),
        ("uint32_t", "heads"),
        ("float*", "out"),
        ("uint32_t", "lanes"),
        ("const uint32_t*", "long_count"),
        ("const uint32_t*", "long_rows"),
        ("const uint8_t*", "more"),
    ];
    assert_eq!(found, expected.map(|(of, name)| (of.to_owned(), name.to_owned())));
}

#[test]
fn arguments_select_the_variant() {
    let (src, dst) = (In::<f32>::at(Address(16)), Out::at(Address(32)));
    let gather = |src: Table, wide| {
        let kernel =
            Gather { src, cols: 3, ids: In::at(Address(8)), rows: 2, dst, lanes: 4, wide: Wide(wide) };
        launched(&kernel)
    };
    assert_eq!(gather(src.into(), false).0, "gather_f32");
    let half = Table { kind: TableType::F16, at: Address(16), len: 6 };
    assert_eq!(gather(half, true), ("gather_f16_4", vec![16, 3, 8, 2, 32, 4]));
}

#[test]
fn rows_follow_the_fields_and_late_values_come_last() {
    let at = |address| In::<f32>::at(Address(address));
    let edges = Edges {
        indptr: In::at(Address(1)),
        indices: In::at(Address(2)),
        entry: None,
        own_rows: Some(In::at(Address(3))),
        num_edges: 4,
        num_own: 5,
    };
    let kernel = ScoreSoftmax {
        edges,
        score: at(6),
        heads: 7,
        slope: 1.0,
        alpha: Out::at(Address(8)),
        used: None,
        key: Late(9),
        threshold: 10,
        scale: 0.5,
        lanes: 11,
    };
    let bits = |x: f32| u64::from(x.to_bits());
    let common = [1, 2, 0, 3, 4, 5, 6, 7, bits(1.0), 8, 0, 9, 10, bits(0.5), 11];
    let mut short = kernel.short_rows(12, 13);
    assert_eq!(short.name(), "score_softmax");
    assert_eq!(short.values(), (&mut [&common[..], &[12, 13, 0]].concat()[..], 1 << 11));
    let mut long = kernel.long_rows(12, In::at(Address(14)), In::at(Address(15)));
    assert_eq!(long.name(), "score_softmax_long");
    assert_eq!(long.values(), (&mut [&common[..], &[14, 15, 0]].concat()[..], 1 << 11));
}

#[test]
#[should_panic(expected = "kernel gelu_forward: out has 3 values, fewer than 4")]
fn memory_shorter_than_the_sizes_of_the_fields_is_refused() {
    let (x, out) = (In::new(Address(16), 4), Out::new(Address(32), 3));
    GeluForward { x, count: 4, out }.call();
}

#[test]
#[should_panic(expected = "kernel aggregate_max_back: out has 5 values, fewer than 6")]
fn memory_shorter_than_the_rows_is_refused() {
    let ids = In::at(Address(16));
    let kernel = AggregateMaxBack {
        indptr: ids,
        dst: ids,
        edge: ids,
        arg: ids,
        grad: In::at(Address(16)),
        cols: 3,
        out: Out::new(Address(32), 5),
        lanes: 4,
    };
    kernel.short_rows(2, 128);
}

#[test]
#[should_panic(expected = "value 5 of 4")]
fn offsets_stay_within_the_memory() {
    let values = In::<f32>::new(Address(16), 4);
    assert_eq!((values.offset(4).address(), values.offset(4).len()), (Address(32), 0));
    values.offset(5);
}

/// Name and values of a launch.
fn launched(kernel: &impl Kernel) -> (&'static str, Vec<u64>) {
    let mut call = kernel.call();
    let values = call.values().0.to_vec();
    (call.name(), values)
}
