//! `graphmill datasets`, from the list to an imported dataset.

#![allow(unsafe_code, reason = "system calls")]

use crate::common::Sandbox;
use crate::server::{Reply, Server};

#[test]
fn the_list_and_the_sheets_have_json_forms() {
    let sandbox = Sandbox::new();
    let list = sandbox.run("datasets --json").succeeded().json();
    let entries = list["datasets"].as_array().unwrap();
    assert_eq!(list.as_object().unwrap().len(), 1);
    for entry in entries {
        let fields: Vec<_> = entry.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            [
                "name",
                "title",
                "collection",
                "task",
                "nodes",
                "edges",
                "directed",
                "features",
                "edge_features",
                "classes",
                "metric",
                "published",
                "format",
                "source",
                "options",
                "unpacked",
                "licence",
                "citation",
                "home",
                "manual",
                "note",
                "files",
                "download_bytes",
                "imported_bytes",
                "download",
                "import"
            ]
        );
        assert!(entry["nodes"].as_u64() > Some(0) && entry["edges"].as_u64() > Some(0), "{entry}");
        assert_eq!(entry["manual"].is_null(), entry["files"][0]["url"].is_string(), "{entry}");
    }
    let cora = sandbox.run("datasets Cora --json").succeeded().json();
    assert_eq!(&cora, &entries[0]);
    assert_eq!(cora["import"], "graphmill import planetoid cora-raw/ind.cora cora --normalize rows");
    assert_eq!(cora["download_bytes"], 572_444);

    let table = sandbox.ok("datasets");
    assert_eq!(table.lines().count(), 1 + entries.len());
    assert!(table.starts_with("name ") && table.contains(cora["import"].as_str().unwrap()), "{table}");
    assert!(sandbox.ok("datasets cora").contains("graphmill datasets download cora\n"));
}

#[test]
fn the_printed_command_imports_a_download() {
    let sandbox = Sandbox::new();
    let edges = "# FromNodeId ToNodeId\n10\t20\n20\t30\n30\t40\n";
    let server = Server::start(move |request, number| {
        let reply = Reply::file(request, edges.as_bytes(), "\"a\"");
        if number == 0 { reply.cut(20) } else { reply }
    });
    let outcome = sandbox.run(&format!("datasets download com-DBLP --mirror {}", server.url)).succeeded();
    assert!(
        outcome.stderr.contains("the connection broke") || outcome.stderr.contains("ended"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("com-dblp.ungraph.txt.gz: not verified"), "{}", outcome.stderr);
    assert_eq!(server.seen()[1].path, "/com-DBLP/com-dblp.ungraph.txt.gz");
    assert_eq!(server.ranges(), [None, Some(20)]);
    let import = outcome.stdout.lines().find_map(|line| line.strip_prefix("import: graphmill ")).unwrap();
    assert_eq!(
        import,
        "import edges com-DBLP-raw/com-dblp.ungraph.txt.gz com-DBLP --undirected --compact-ids"
    );
    sandbox.ok(import);
    assert_eq!(sandbox.run("info com-DBLP --json").succeeded().json()["nodes"], 4);

    let again = format!("datasets download com-DBLP --json --mirror {}", server.url);
    let done = sandbox.run(&again).succeeded().json();
    let file = &done["files"][0];
    assert_eq!((file["origin"].as_str(), file["checked"].as_str()), (Some("present"), Some("recorded")));
    assert_eq!(
        (file["bytes"].as_u64(), done["directory"].as_str()),
        (Some(edges.len() as u64), Some("com-DBLP-raw"))
    );
    assert_eq!(done["import"], format!("graphmill {import}"));
    assert_eq!(server.seen().len(), 2);
}

#[cfg(unix)]
#[test]
fn an_interrupted_download_resumes() {
    use std::{io::Read, process::Stdio, thread, time::Duration};
    let sandbox = Sandbox::new();
    let bytes: Vec<u8> = b"1 2\n".repeat(50_000);
    let whole = bytes.clone();
    let server = Server::start(move |request, number| {
        let reply = Reply::file(request, &bytes, "\"a\"");
        // the connection stays open until the signal has arrived, and then ends, so that the
        // download checks for it
        if number == 0 { Reply { silent: Duration::from_secs(2), ..reply.cut(100_000) } } else { reply }
    });
    let args = format!("datasets download web-Google here --mirror {}", server.url);
    let mut child = sandbox.command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let part = sandbox.path("here/web-Google.txt.gz.part");
    for _ in 0..500 {
        if std::fs::metadata(&part).is_ok_and(|meta| meta.len() == 100_000) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: kill(2) takes plain numbers; the process is our child, not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("interrupted; the received data is kept"), "{stderr}");
    assert!(part.exists());
    sandbox.ok(&args);
    assert_eq!(server.ranges(), [None, Some(100_000)]);
    assert_eq!(sandbox.read("here/web-Google.txt.gz"), whole);
}
