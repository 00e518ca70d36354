//! People's own tables with their schemas.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};

use super::{Result, tables};
use crate::input::join;

const PLAIN: &str = "[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\nlabel = \"label\"\nsplit = \
                     \"random:60,20,20\"\n[[edges]]\nfiles = \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\n";
const RICH: &str = "dangling = \"add\"\n[[nodes]]\nfiles = \"nodes.csv\"\nid = [\"id\", \"part\"]\nlabel = \
                    \"y\"\ntask = \"regression\"\nsplit = \"time:day:50,25,25\"\nmissing = \
                    \"indicator\"\ncolumns = { x = \"number, quantile\", c = \"code\" }\n[[edges]]\nfiles \
                    = \"edges.csv\"\nsrc = [\"a\", \"p\"]\ndst = [\"b\", \"q\"]\ntime = \"t\"\nweight = \
                    \"w\"\nfeatures = [\"w\"]\nreverse = \"back\"\n";

const TARGETS: &str = "[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\n[[edges]]\nfiles = \
                       \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\n[[targets]]\nname = \"y\"\nfiles = \
                       \"targets.csv\"\nid = \"id\"\ntime = \"day\"\nlabel = \"y\"\n[[targets]]\nname = \
                       \"z\"\ntrain = \"train.csv\"\nvalid = \"valid.csv\"\ntest = \"test.csv\"\nid = \
                       \"id\"\nlabel = \"z\"\n";

pub(super) fn add(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    let nodes = "id,label,x,day,list\nu,k,1.5,2024-01-01,\"[1, 2]\"\nv,l,,2024-01-02,\"[3, 4]\"\nw,,-2,NA,\n";
    let edges = "a;b\nu;v\nv;w\nw;u\n";
    let plain =
        [("schema.toml", PLAIN.as_bytes()), ("nodes.csv", nodes.as_bytes()), ("edges.csv", edges.as_bytes())];
    add("import_tables", "csv", join("", &plain));
    let nodes = "{\"id\": 1, \"part\": \"a\", \"y\": 0.5, \"x\": 3, \"c\": \"k\", \"day\": \"2024-01-01\"}\n\
                 {\"id\": 2, \"part\": \"a\", \"y\": 1.5, \"x\": null, \"c\": \"l\", \
                 \"day\": \"2024-01-03\"}\n";
    let edges = "a,p,b,q,t,w\n1,a,2,a,10,0.5\n2,a,3,b,11,2\n";
    let rich =
        [("schema.toml", RICH.as_bytes()), ("nodes.csv", nodes.as_bytes()), ("edges.csv", edges.as_bytes())];
    add("import_tables", "json", join("", &rich));
    add("tables_schema", "plain", PLAIN.into());
    add("tables_schema", "rich", RICH.into());
    add("tables_schema", "targets", TARGETS.into());
    let files: &[(&str, &[u8])] = &[
        ("schema.toml", TARGETS.as_bytes()),
        ("nodes.csv", b"id,x\nu,1.5\nv,2\nw,-2\n"),
        ("edges.csv", b"a,b\nu,v\nv,w\nw,u\n"),
        ("targets.csv", b"id,day,y\nu,4,no\nv,5,yes\nw,6,no\nu,7,yes\n"),
        ("train.csv", b"id,z\nu,0.5\n"),
        ("valid.csv", b"id,z\nv,2.5\n"),
        ("test.csv", b"id\nw\n"),
    ];
    add("import_tables", "targets", join("", files));
    let (parquet, [stream, file]) = (tables::nodes()?, edges_in_arrow()?);
    for (name, edges) in [("stream", &stream), ("file", &file)] {
        let files = [("schema.toml", PLAIN.as_bytes()), ("nodes.csv", &parquet[..]), ("edges.csv", edges)];
        add("import_tables", name, join("", &files));
    }
    further(&stream, add);
    Ok(())
}

/// Tables of further rows of the dataset that the target `tables_append` extends.
fn further(arrow: &[u8], add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let nodes: (&str, &[u8]) = ("nodes.csv", b"id,label,x\np,k,3\nq,,\n");
    let edges: (&str, &[u8]) = ("edges.csv", b"a,b,t,w\np,u,9,1\nv,q,8,0.5\n");
    let targets: (&str, &[u8]) = ("targets.csv", b"id,day,y\np,9,yes\nu,10,no\n");
    add("tables_append", "rows", join("", &[nodes, edges, targets]));
    let changed: (&str, &[u8]) = ("nodes.csv", b"id,label,x\nu,l,7\nr,k,1\n");
    add("tables_append", "changed", join("changed=replace dangling=add", &[changed, edges]));
    let ends: [(&str, &[u8]); 2] = [("end_nodes.csv", b"id\nw\n"), ("end_edges.csv", b"a,b\nu,v\n")];
    add("tables_append", "ends", join("", &ends));
    add("tables_append", "new", join("new", &[nodes, edges]));
    add("tables_append", "arrow", join("", &[("edges.csv", arrow)]));
}

/// The edges of known nodes, their times and weights.
fn edges() -> Result<RecordBatch> {
    let text = |values: [&str; 2]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let number = |values: [i64; 2]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
    let columns =
        [("a", text(["u", "w"])), ("b", text(["w", "v"])), ("t", number([11, 12])), ("w", number([1, 3]))];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// A stream, and a file, of Arrow with [`edges`].
fn edges_in_arrow() -> Result<[Vec<u8>; 2]> {
    let batch = edges()?;
    let mut stream = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    stream.write(&batch)?;
    let mut file = FileWriter::try_new(Vec::new(), &batch.schema())?;
    file.write(&batch)?;
    Ok([stream.into_inner()?, file.into_inner()?])
}
