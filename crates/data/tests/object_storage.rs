//! Tables and other sources on a web server: the same dataset as from files, repeated requests, and
//! errors that name the address and a remedy.

use std::{
    fs::{self, File},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;
use graphmill_core::progress::Progress;
use graphmill_data::{
    dataset::{
        Work,
        import::{self, ImportOptions},
    },
    tables::{EdgeTable, Names, NodeTable, TableSchema, import_tables},
};
use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};

use crate::server::{Reply, Request, Server};

const NODES: usize = 500;
const EDGES: usize = 250_000;

/// Writes a node table and an edge table in this format.
fn write(dir: &Path, format: &str) {
    let key = |i: usize| format!("n{:04}", i * 7 % NODES);
    let keys: Vec<String> = (0..NODES).map(key).collect();
    let (from, to): (Vec<String>, Vec<String>) =
        (0..EDGES).map(|e| (key(e * e % 499), key(e * 13 % 500))).unzip();
    let age: Vec<i64> = (0..NODES as i64).map(|i| i % 60).collect();
    let texts = |values: &[String]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let nodes: [(&str, ArrayRef); 2] = [("id", texts(&keys)), ("age", Arc::new(Int64Array::from(age)))];
    for (stem, batch) in [
        ("nodes", RecordBatch::try_from_iter(nodes).unwrap()),
        ("edges", RecordBatch::try_from_iter([("a", texts(&from)), ("b", texts(&to))]).unwrap()),
    ] {
        let file = File::create(dir.join(format!("{stem}.{format}"))).unwrap();
        match format {
            "parquet" => {
                let plain = WriterProperties::builder()
                    .set_compression(Compression::UNCOMPRESSED)
                    .set_dictionary_enabled(false);
                let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(plain.build())).unwrap();
                writer.write(&batch).unwrap();
                writer.close().unwrap();
            }
            "arrow" => {
                let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
                writer.write(&batch).unwrap();
                writer.finish().unwrap();
            }
            _ => {
                let mut out = csv::Writer::from_writer(file);
                out.write_record(batch.schema().fields().iter().map(|field| field.name())).unwrap();
                let columns: Vec<Vec<String>> = if stem == "nodes" {
                    vec![keys.clone(), (0..NODES).map(|i| (i % 60).to_string()).collect()]
                } else {
                    vec![from.clone(), to.clone()]
                };
                (0..batch.num_rows())
                    .for_each(|row| out.write_record(columns.iter().map(|column| &column[row])).unwrap());
            }
        }
    }
}

/// Imports the two tables below `base`, a directory or an address, and returns the dataset's
/// identity.
fn import(base: &str, format: &str, out: &Path) -> Result<String, String> {
    let name = |stem: &str| Names::One(format!("{base}/{stem}.{format}"));
    let schema = TableSchema {
        name: Some("test".into()),
        nodes: vec![NodeTable {
            kind: "node".into(),
            files: name("nodes"),
            id: Names::One("id".into()),
            ..NodeTable::default()
        }],
        edges: vec![EdgeTable {
            kind: "edge".into(),
            files: name("edges"),
            src: Names::One("a".into()),
            dst: Names::One("b".into()),
            ..EdgeTable::default()
        }],
        ..TableSchema::default()
    };
    let work = Work { memory: Some(1 << 26), ..Work::default() };
    let imported = import_tables(&schema, out, None, work).map_err(|error| error.to_string())?;
    Ok(imported.dataset.identity().unwrap())
}

/// Server of the files of a directory; `change` may replace the response.
fn serve(dir: &Path, change: impl Fn(&Request, usize, Reply) -> Reply + Send + 'static) -> Server {
    let dir = dir.to_path_buf();
    Server::start(move |request, number| {
        let reply = match fs::read(dir.join(request.path.split('?').next().unwrap().trim_start_matches('/')))
        {
            Ok(bytes) => Reply::file(request, &bytes, "\"one\""),
            Err(_) => Reply::status(404),
        };
        change(request, number, reply)
    })
}

#[test]
fn tables_of_a_server_become_the_same_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    for format in ["csv", "parquet", "arrow"] {
        write(dir.path(), format);
        let expected =
            import(&dir.path().display().to_string(), format, &out(&format!("{format}-file"))).unwrap();
        let server = serve(dir.path(), |_, _, reply| reply);
        let found = import(&server.url, format, &out(&format!("{format}-web"))).unwrap();
        assert_eq!(found, expected, "{format}");
        let ranges = server.seen().iter().filter(|request| request.to.is_some()).count();
        assert_eq!(ranges > 0, format != "csv", "{format}: {ranges} ranges");
    }
    // Parquet files of several blocks are read in parts only.
    let size = fs::metadata(out("edges.parquet")).unwrap().len();
    assert!(size > 4 << 20, "{size}");
}

#[test]
fn failed_requests_and_cut_responses_are_repeated() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "csv");
    let expected = import(&dir.path().display().to_string(), "csv", &dir.path().join("file")).unwrap();
    let cuts = Arc::new(AtomicUsize::new(0));
    let count = cuts.clone();
    let server = serve(dir.path(), move |request, number, reply| match number % 5 {
        0 => Reply::status(503),
        // The rest of the body is requested by a range.
        1 if request.path.contains("edges") && request.from.is_none() => {
            count.fetch_add(1, Relaxed);
            let half = reply.body.len() / 2;
            reply.cut(half)
        }
        _ => reply,
    });
    assert_eq!(import(&server.url, "csv", &dir.path().join("web")).unwrap(), expected);
    assert!(cuts.load(Relaxed) > 0);
}

#[test]
fn errors_name_the_address_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nodes.csv"), "id,age\nx,1\n").unwrap();
    write(dir.path(), "parquet");
    let fails = |server: &Server, format: &str, parts: &[&str]| {
        let error = import(&server.url, format, &dir.path().join("out")).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
        assert!(!dir.path().join("out").exists() && !dir.path().join("out.importing").exists());
    };
    let plain = serve(dir.path(), |_, _, reply| reply);
    fails(
        &plain,
        "csv",
        &[&plain.url, "/edges.csv: cannot open: the server has no such file; check the address"],
    );
    let refusing = serve(dir.path(), |_, _, _| Reply::status(403));
    fails(&refusing, "csv", &["/nodes.csv: cannot open: the server refuses access (", "name the copy"]);
    let whole = serve(dir.path(), |_, _, reply| if reply.status == 206 { Reply::whole(b"x") } else { reply });
    fails(
        &whole,
        "parquet",
        &["/nodes.parquet", "the server does not send parts of files: download the file"],
    );
    let changing = serve(dir.path(), |_, number, mut reply| {
        reply.headers.retain(|(name, _)| *name != "ETag");
        reply.header("ETag", format!("\"{}\"", number / 4))
    });
    fails(&changing, "parquet", &["the file changed while it was read; start again"]);
    let unsized_body = serve(dir.path(), |_, _, mut reply| {
        reply.unsized_body = true;
        reply
    });
    fails(&unsized_body, "csv", &["/nodes.csv", "the server does not state the size of the file"]);
    let silent = serve(dir.path(), |request, _, mut reply| {
        reply.silent = Duration::from_millis(20);
        if request.path.contains("nodes") { reply } else { reply.cut(0) }
    });
    fails(&silent, "parquet", &["/edges.parquet", "start again"]);
}

/// Cancels the work after its first bytes.
#[derive(Clone, Default)]
struct Cancel(Arc<AtomicUsize>);

impl Progress for Cancel {
    fn done(&self, amount: u64) {
        self.0.fetch_max(amount as usize, Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

#[test]
fn a_file_of_a_server_is_copied_read_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..200_000).map(|e| format!("{} {}\n", e % 997, e * 7 % 991)).collect();
    fs::write(dir.path().join("my edges.txt"), &text).unwrap();
    let served = text.clone();
    let server = Server::start(move |request, _| match request.path.split('?').next() {
        Some("/my%20edges.txt") => Reply::file(request, served.as_bytes(), "\"one\""),
        _ => Reply::status(404),
    });
    let (options, out) = (ImportOptions::default(), dir.path().join("out"));
    let address = format!("{}/my%20edges.txt?key=secret", server.url);
    let work = |progress: Box<dyn Progress>| Work { memory: Some(1 << 26), progress, ..Work::default() };
    let cancel = Cancel::default();
    let error =
        import::import_to("edges", &address, &out, &options, work(Box::new(cancel.clone()))).unwrap_err();
    assert!(error.to_string().starts_with("stopped before the end"), "{error}");
    assert!(cancel.0.load(Relaxed) < text.len(), "cancelled after the copy");
    assert!(!out.exists() && !dir.path().join("out.importing").exists());
    let found = import::import_to("edges", &address, &out, &options, Work::default()).unwrap().dataset;
    let near = import::import("edges", dir.path().join("my edges.txt"), &options).unwrap().dataset;
    assert_eq!((found.name.as_str(), found.graph.indices()), (near.name.as_str(), near.graph.indices()));
    assert!(!dir.path().join("out.importing").exists());
    // Messages leave out the query, which may be a signature.
    let address = format!("{}/none.txt?key=secret", server.url);
    let error = import::import_to("edges", address, dir.path().join("none"), &options, Work::default());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("/none.txt: cannot open: the server has no such file") && !error.contains("secret")
    );
    let error = import::import("edges", "s3://bucket/edges.txt", &options).unwrap_err().to_string();
    assert!(error.contains("call import_to"), "{error}");
}
