use std::{path::Path, sync::Arc};

use graphmill_core::{Labels, features::FeatureData};
use parquet::{
    basic::{Compression, GzipLevel, ZstdLevel},
    data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type},
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::parser::parse_message_type,
};

use crate::{
    Dataset,
    dataset::import::{ImportOptions, testing::import},
};

/// Schema and contents of a column.
#[derive(Clone)]
enum Data {
    Bool(&'static str, Vec<bool>),
    I32(&'static str, Vec<i32>),
    I64(&'static str, Vec<i64>),
    /// Numbers that may be missing.
    Maybe(&'static str, Vec<Option<i64>>),
    F32(&'static str, Vec<f32>),
    F64(&'static str, Vec<f64>),
    Text(&'static str, Vec<&'static str>),
    List(&'static str, Vec<Vec<f32>>),
    Bits(&'static str, Vec<Vec<i32>>),
}
use Data::*;

impl Data {
    fn schema(&self) -> String {
        match self {
            Bool(name, _) => format!("required boolean {name};"),
            I32(name, _) => format!("required int32 {name};"),
            I64(name, _) => format!("required int64 {name};"),
            Maybe(name, _) => format!("optional int64 {name};"),
            F32(name, _) => format!("required float {name};"),
            F64(name, _) => format!("required double {name};"),
            Text(name, _) => format!("required binary {name} (STRING);"),
            List(name, _) => {
                format!(
                    "optional group {name} (LIST) {{ repeated group list {{ optional float element; }} }}"
                )
            }
            Bits(name, _) => {
                format!(
                    "required group {name} (LIST) {{ repeated group list {{ required int32 element; }} }}"
                )
            }
        }
    }

    fn write(&self, mut column: SerializedColumnWriter<'_>, rows: std::ops::Range<usize>) {
        match self {
            Bool(_, x) => column.typed::<BoolType>().write_batch(&x[rows], None, None).unwrap(),
            I32(_, x) => column.typed::<Int32Type>().write_batch(&x[rows], None, None).unwrap(),
            I64(_, x) => column.typed::<Int64Type>().write_batch(&x[rows], None, None).unwrap(),
            F32(_, x) => column.typed::<FloatType>().write_batch(&x[rows], None, None).unwrap(),
            F64(_, x) => column.typed::<DoubleType>().write_batch(&x[rows], None, None).unwrap(),
            Maybe(_, x) => {
                let there: Vec<i64> = x[rows.clone()].iter().flatten().copied().collect();
                let levels: Vec<i16> = x[rows].iter().map(|x| i16::from(x.is_some())).collect();
                column.typed::<Int64Type>().write_batch(&there, Some(&levels), None).unwrap()
            }
            Text(_, x) => {
                let texts: Vec<ByteArray> = x[rows].iter().map(|&text| text.into()).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap()
            }
            List(_, x) => {
                let (mut defined, mut repeated) = (Vec::new(), Vec::new());
                for list in &x[rows.clone()] {
                    if list.is_empty() {
                        defined.push(1);
                        repeated.push(0);
                    }
                    for i in 0..list.len() {
                        defined.push(3);
                        repeated.push(i16::from(i > 0));
                    }
                }
                let values = x[rows].concat();
                column.typed::<FloatType>().write_batch(&values, Some(&defined), Some(&repeated)).unwrap()
            }
            Bits(_, x) => {
                let repeated: Vec<i16> = x[rows.clone()]
                    .iter()
                    .flat_map(|list| (0..list.len()).map(|i| i16::from(i > 0)))
                    .collect();
                let values = x[rows].concat();
                column
                    .typed::<Int32Type>()
                    .write_batch(&values, Some(&vec![1; values.len()]), Some(&repeated))
                    .unwrap()
            }
        };
        column.close().unwrap();
    }
}

/// Writes a table of `rows` rows in groups of two.
fn write(path: &Path, rows: usize, columns: &[Data], compression: Compression) {
    let fields: String = columns.iter().map(Data::schema).collect();
    let schema = Arc::new(parse_message_type(&format!("message table {{ {fields} }}")).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file =
        SerializedFileWriter::new(std::fs::File::create(path).unwrap(), schema, properties).unwrap();
    for start in (0..rows).step_by(2) {
        let mut group = file.next_row_group().unwrap();
        for column in columns {
            let writer = group.next_column().unwrap().unwrap();
            column.write(writer, start..rows.min(start + 2));
        }
        group.close().unwrap();
    }
    file.close().unwrap();
}

fn put(dir: &Path, name: &str, rows: usize, columns: &[Data]) {
    write(&dir.join(name), rows, columns, Compression::UNCOMPRESSED);
}

fn run(src: &Path, options: &ImportOptions) -> Result<Dataset, String> {
    import("parquet", src, options).map_err(|e| e.to_string())
}

fn edges(dataset: &Dataset) -> Vec<(u32, u32)> {
    let graph = &dataset.graph;
    (0..graph.num_nodes() as u32).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (u, v))).collect()
}

fn floats(dataset: &Dataset) -> Vec<f32> {
    let FeatureData::F32(data) = &dataset.features.data else { panic!() };
    data.to_vec()
}

fn parts(dataset: &Dataset) -> [Vec<u32>; 3] {
    dataset.split.parts().map(|(_, ids)| ids.to_vec())
}

/// 0 -> 1, 2 -> 1, 1 -> 2.
fn three_edges() -> Vec<Data> {
    vec![I64("src", vec![0, 2, 1]), F32("weight", vec![1., 2., 3.]), I32("dst", vec![1, 1, 2])]
}

fn three_nodes() -> Vec<Data> {
    vec![
        Maybe("label", vec![Some(1), None, Some(0)]),
        Text("split", vec!["train", "", "test"]),
        F64("a", vec![0.5, 1.5, 2.5]),
        Text("name", vec!["x", "y", "z"]),
        Bool("b", vec![true, false, true]),
        I32("c", vec![-1, 0, 7]),
    ]
}

#[test]
fn tables_of_nodes_and_edges_in_every_compression() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("tiny");
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
    ] {
        write(&src.join("edges.parquet"), 3, &three_edges(), compression);
        write(&src.join("nodes.parquet"), 3, &three_nodes(), compression);
        let dataset = run(&src, &ImportOptions::default()).unwrap();
        assert_eq!((dataset.name.as_str(), edges(&dataset)), ("tiny", vec![(0, 1), (2, 1), (1, 2)]));
        assert_eq!(floats(&dataset), [0.5, 1., -1., 1.5, 0., 0., 2.5, 1., 7.]);
        let Labels::Single { class, classes: 2 } = &dataset.labels else { panic!() };
        assert_eq!((&class[..], parts(&dataset)), (&[1, -1, 0][..], [vec![0], vec![], vec![2]]));
    }
}

#[test]
fn arbitrary_ids_are_numbered_by_node_rows() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path();
    let nodes = [
        I64("id", vec![-7, 1 << 40, 3]),
        Bits("y", vec![vec![1, 0], vec![0, 0], vec![1, 1]]),
        List("x", vec![vec![1., 2.], vec![3., 4.], vec![5., 6.]]),
        F32("score", vec![0., 0., 0.]),
        Bool("train_mask", vec![true, false, false]),
        I32("val_mask", vec![0, 0, 1]),
        Bool("test_mask", vec![false, true, false]),
    ];
    put(src, "nodes.parquet", 3, &nodes);
    put(src, "edges-0.parquet", 2, &[I64("source", vec![-7, 3]), I64("target", vec![1 << 40, 1 << 40])]);
    put(src, "edges-1.parquet", 1, &[I64("source", vec![1 << 40]), I64("target", vec![3])]);
    let dataset = run(src, &ImportOptions::default()).unwrap();
    assert_eq!(edges(&dataset), [(0, 1), (2, 1), (1, 2)]);
    assert_eq!((dataset.features.dim, floats(&dataset)), (2, vec![1., 2., 3., 4., 5., 6.]));
    let Labels::Multi { member, classes: 2 } = &dataset.labels else { panic!() };
    assert_eq!((&member[..], parts(&dataset)), (&[1, 0, 0, 0, 1, 1][..], [vec![0], vec![2], vec![1]]));
    let compact = ImportOptions { compact_ids: true, ..Default::default() };
    assert!(run(src, &compact).unwrap_err().contains("leave out compact-ids"));
    put(src, "edges-1.parquet", 1, &[I64("source", vec![1 << 40]), I64("target", vec![4])]);
    let error = run(src, &ImportOptions::default()).unwrap_err();
    assert!(error.contains("edges-1.parquet: row 0: column 'target': no node has the id 4"), "{error}");
    let twice = [I64("id", vec![3, 1, 3])];
    put(src, "nodes.parquet", 3, &twice);
    assert!(run(src, &ImportOptions::default()).unwrap_err().contains("the id 3 occurs in the rows 0 and 2"));
}

#[test]
fn edge_tables_accept_plain_sparse_and_shifted_ids() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("e.parquet");
    let table = |from: &[i64], to: &[i64]| {
        write(&src, from.len(), &[I64("a", from.to_vec()), I64("b", to.to_vec())], Compression::SNAPPY);
    };
    let plain = ImportOptions::default();
    table(&[0, 2], &[1, 1]);
    let dataset = run(&src, &plain).unwrap();
    assert_eq!(
        (dataset.name.as_str(), edges(&dataset), dataset.labels.classes()),
        ("e", vec![(0, 1), (2, 1)], 0)
    );
    let five = ImportOptions { num_nodes: Some(5), ..Default::default() };
    assert_eq!(run(&src, &five).unwrap().num_nodes(), 5);
    let two = ImportOptions { num_nodes: Some(2), ..Default::default() };
    assert!(run(&src, &two).unwrap_err().contains("row 1: column 'a': node 2 does not exist"));
    let one = ImportOptions { first_id: 1, ..Default::default() };
    assert!(run(&src, &one).unwrap_err().contains("row 0: column 'a': 0 is not a node id"));
    table(&[1, 3], &[2, 2]);
    assert_eq!(edges(&run(&src, &one).unwrap()), [(0, 1), (2, 1)]);
    table(&[70_000_000_000, 5], &[5, 6]);
    assert!(run(&src, &plain).unwrap_err().contains("70000000000 is not a node id"));
    let compact = ImportOptions { compact_ids: true, ..Default::default() };
    assert_eq!(edges(&run(&src, &compact).unwrap()), [(2, 0), (0, 1)]);
    let wrong = ImportOptions { num_nodes: Some(4), ..compact };
    assert!(run(&src, &wrong).unwrap_err().contains("3 different ids, but there are 4 nodes"));
    table(&[4_000_000_000], &[5]);
    assert!(run(&src, &plain).unwrap_err().contains("largest id is 4000000000, but there are only 1 edges"));
    // Nodes by an option.
    table(&[0], &[1]);
    put(dir.path(), "n", 3, &[F32("x", vec![1., 2., 3.])]);
    let nodes = ImportOptions { nodes: Some(dir.path().join("n")), ..Default::default() };
    assert_eq!(run(&src, &nodes).unwrap().num_nodes(), 3);
}

#[test]
fn errors_contain_the_file_and_the_row() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path();
    let fails = |name: &str, rows: usize, columns: &[Data], why: &str| {
        put(src, "edges.parquet", 3, &three_edges());
        put(src, "nodes.parquet", 3, &three_nodes());
        put(src, name, rows, columns);
        let error = run(src, &ImportOptions::default()).unwrap_err();
        assert!(error.contains(name) && error.contains(why), "{error}");
    };
    let e = "edges.parquet";
    fails(e, 1, &[I64("src", vec![0]), I64("dst", vec![3])], "row 0: column 'dst': node 3 does not exist");
    fails(
        e,
        3,
        &[I64("src", vec![0, 1, 2]), I64("dst", vec![1, 0, -1])],
        "row 2: column 'dst': node -1 does not exist",
    );
    fails(e, 1, &[I64("src", vec![0]), F64("dst", vec![0.5])], "row 0: column 'dst': 0.5 is not a node id");
    fails(
        e,
        1,
        &[I64("src", vec![0]), Maybe("dst", vec![None])],
        "row 0: column 'dst': nothing is not a node id",
    );
    fails(
        e,
        1,
        &[I64("src", vec![0]), Text("dst", vec!["a"])],
        "schema: the column 'dst' is not a column of whole",
    );
    fails(e, 1, &[I64("a", vec![0]), I64("b", vec![0]), I64("c", vec![0])], "the columns are a, b, c");
    let n = "nodes.parquet";
    fails(n, 3, &[F32("x", vec![0., 1., f32::NAN])], "row 2: column 'x': NaN found");
    fails(n, 3, &[F64("x", vec![0., 1e300, 0.])], "row 1: column 'x': 1");
    fails(
        n,
        3,
        &[List("x", vec![vec![1.], vec![1., 2.], vec![1.]])],
        "row 1: column 'x': a list of 2, the first has 1",
    );
    fails(n, 3, &[List("x", vec![vec![], vec![], vec![]])], "row 0: column 'x': nothing found");
    fails(n, 3, &[List("x", vec![vec![1.]; 3]), List("z", vec![vec![1.]; 3])], "'x' and 'z' are both lists");
    fails(n, 3, &[F64("y", vec![0., 0.5, 1.])], "row 1: column 'y': 0.5 found, a class");
    fails(n, 3, &[I32("y", vec![0, 0, -2])], "label of node 2 is -2");
    fails(n, 3, &[Bits("y", vec![vec![0, 1], vec![2, 0], vec![0, 0]])], "row 1: column 'y': 2 found, 0 or 1");
    fails(n, 3, &[Bits("y", vec![vec![0, 1], vec![0], vec![0, 0]])], "row 1: column 'y': a list of 1");
    fails(n, 3, &[Text("y", vec!["a", "b", "c"])], "schema: the column 'y' is not a column of classes");
    fails(n, 3, &[Text("split", vec!["train", "trial", ""])], "row 1: column 'split': 'trial'");
    fails(n, 3, &[I32("split", vec![0, 1, 3])], "row 2: column 'split': 3");
    fails(n, 3, &[I32("train_mask", vec![0, 1, 3])], "row 2: column 'train_mask': 3");
    fails(n, 3, &[Text("name", vec!["a", "b", "c"])], "schema: the table has no column about nodes");
    put(src, "edges-2.parquet", 3, &three_edges());
    put(src, "nodes.parquet", 3, &three_nodes());
    assert_eq!(run(src, &ImportOptions::default()).unwrap().graph.num_edges(), 3, "the same edges twice");
    put(src, "edges-2.parquet", 1, &[I64("src", vec![0]), I64("dst", vec![1])]);
    assert!(
        run(src, &ImportOptions::default())
            .unwrap_err()
            .contains("edges.parquet: schema: the columns are src, weight, dst")
    );
    put(src, "edges/a.parquet", 3, &three_edges());
    assert!(run(src, &ImportOptions::default()).unwrap_err().contains("both 'edges' and"));
    let empty = tempfile::tempdir().unwrap();
    assert!(run(empty.path(), &ImportOptions::default()).unwrap_err().contains("no edges.parquet"));
    std::fs::write(empty.path().join("edges.parquet"), "PAR1 no").unwrap();
    assert!(
        run(empty.path(), &ImportOptions::default())
            .unwrap_err()
            .contains("edges.parquet: metadata: not a readable")
    );
}

#[test]
fn errors_about_other_tables_name_their_importer() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path();
    let fails = |name: &str, rows: usize, columns: &[Data]| {
        put(src, "edges.parquet", 3, &three_edges());
        put(src, "nodes.parquet", 3, &three_nodes());
        put(src, name, rows, columns);
        let error = run(src, &ImportOptions::default()).unwrap_err();
        assert!(error.contains("'graphmill import tables'"), "{error}");
    };
    let (e, n) = ("edges.parquet", "nodes.parquet");
    fails(e, 1, &[I64("a", vec![0]), I64("b", vec![0]), I64("c", vec![0])]);
    fails(e, 1, &[Text("src", vec!["a"]), Text("dst", vec!["b"])]);
    fails(e, 1, &[I64("src", vec![0]), Maybe("dst", vec![None])]);
    fails(e, 1, &[I64("src", vec![0]), F64("dst", vec![0.5])]);
    fails(n, 3, &[Text("id", vec!["a", "b", "c"])]);
    fails(n, 3, &[Text("y", vec!["a", "b", "c"])]);
    fails(n, 3, &[Text("name", vec!["a", "b", "c"])]);
    fails(n, 3, &[F64("x", vec![0., f64::NAN, 0.])]);
    fails(n, 3, &[Maybe("x", vec![Some(1), None, Some(2)])]);
}

#[test]
fn damage_is_an_error_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path();
    let every = std::env::var_os("GRAPHMILL_EVERY_BIT").is_some(); // minutes
    for compression in
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())]
    {
        let list = [
            List("x", vec![vec![1., 2.], vec![3., 4.], vec![5., 6.]]),
            Maybe("y", vec![None, Some(1), Some(0)]),
        ];
        write(&src.join("edges.parquet"), 3, &three_edges(), compression);
        write(&src.join("nodes.parquet"), 3, &list, compression);
        for name in ["edges.parquet", "nodes.parquet"] {
            let path = src.join(name);
            let good = std::fs::read(&path).unwrap();
            for length in (0..good.len()).step_by(if every { 1 } else { 5 }) {
                std::fs::write(&path, &good[..length]).unwrap();
                assert!(run(src, &ImportOptions::default()).is_err(), "{name}: truncated to {length}");
            }
            for bit in (0..good.len() * 8).step_by(if every { 1 } else { 31 }) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &bad).unwrap();
                let _ = run(src, &ImportOptions::default()); // no panic
            }
            std::fs::write(&path, &good).unwrap();
        }
        assert!(run(src, &ImportOptions::default()).is_ok());
    }
}

/// Tables of four nodes, of which node 3 is unlabelled and `in_split` makes it a training node;
/// labels are `sets` or classes.
pub(in super::super) fn write_missing_label(dir: &Path, in_split: bool, sets: bool) {
    let ids = [I64("src", vec![0]), I64("dst", vec![1])];
    write(&dir.join("edges.parquet"), 1, &ids, Compression::UNCOMPRESSED);
    let label = match sets {
        true => List("label", vec![vec![0., 1.], vec![1., 1.], vec![0., 0.], vec![]]),
        false => Maybe("label", vec![Some(0), Some(1), Some(0), None]),
    };
    let mask = Bool("train_mask", vec![true, false, false, in_split]);
    write(&dir.join("nodes.parquet"), 4, &[label, mask], Compression::UNCOMPRESSED);
}

#[test]
fn missing_lists_may_come_before_the_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let ids = [I64("src", vec![0]), I64("dst", vec![2])];
    write(&dir.path().join("edges.parquet"), 1, &ids, Compression::UNCOMPRESSED);
    let labels = List("label", vec![vec![], vec![], vec![], vec![1., 0.], vec![]]);
    write(&dir.path().join("nodes.parquet"), 5, &[labels], Compression::UNCOMPRESSED);
    let imported = crate::dataset::import::import("parquet", dir.path(), &ImportOptions::default()).unwrap();
    let Labels::Multi { member, classes: 2 } = &imported.dataset.labels else { panic!() };
    assert_eq!(member[..], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(imported.report.missing_labels, 4);
}
