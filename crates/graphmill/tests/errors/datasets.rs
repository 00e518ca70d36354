//! `graphmill datasets`.

use super::{FAILED, USAGE, common::Sandbox, refused};
use crate::server::{Reply, Server};

#[test]
fn wrong_arguments_are_wrong_usage() {
    let sandbox = Sandbox::new();
    refused(
        &sandbox,
        "datasets pubmd",
        USAGE,
        &["'pubmd', did you mean 'pubmed'?; known: cora, citeseer"],
        "",
    );
    refused(
        &sandbox,
        "datasets download nonsense",
        USAGE,
        &["unknown dataset 'nonsense'; known"],
        "nonsense-raw",
    );
    refused(&sandbox, "datasets download", USAGE, &["<NAME>"], "");
    refused(&sandbox, "datasets cora extra", USAGE, &["extra"], "");
    let args = "datasets download cora --mirror localhost";
    refused(&sandbox, args, USAGE, &["--mirror localhost", "http://"], "cora-raw");
}

#[test]
fn datasets_without_direct_downloads_explain_the_manual_way() {
    let says = ["ppi-saint cannot be fetched", "drive.google.com", "import that"];
    refused(&Sandbox::new(), "datasets download ppi-saint", FAILED, &says, "ppi-saint-raw");
}

#[test]
fn missing_and_wrong_files_on_a_server_are_refused() {
    let sandbox = Sandbox::new();
    let x = "cora-raw/ind.cora.x";
    let server = Server::start(|_, _| Reply::status(404));
    let args = format!("datasets download cora --mirror {}", server.url);
    refused(&sandbox, &args, FAILED, &["/cora/ind.cora.x: the server answered 404", "--mirror"], x);
    drop(server);
    refused(&sandbox, &args, FAILED, &["/cora/ind.cora.x: "], x);

    let server = Server::start(|_, _| Reply::whole(b"wrong"));
    let args = format!("datasets download cora --mirror {}", server.url);
    refused(&sandbox, &args, FAILED, &["5 bytes, the known one has 22119", "--no-verify"], x);

    let server = Server::start(|_, _| Reply::whole(&[7; 22_119]));
    let args = format!("datasets download cora --mirror {}", server.url);
    refused(&sandbox, &args, FAILED, &["has the SHA-256", "the published one is 23cfa55d", "--no-verify"], x);
    assert!(!sandbox.path("cora-raw/ind.cora.x.part").exists());
}

#[test]
fn unusable_directories_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("file", "text");
    refused(&sandbox, "datasets download cora file", FAILED, &["file: cannot create the directory"], "");
    sandbox.write("dir/SHA256SUMS", "text");
    refused(
        &sandbox,
        "datasets download cora dir",
        FAILED,
        &["dir/SHA256SUMS: line 1"],
        "dir/ind.cora.x.part",
    );
    sandbox.write("old/ind.cora.x", "text");
    let says = ["old/ind.cora.x: its SHA-256 is", "delete the file"];
    refused(&sandbox, "datasets download cora old", FAILED, &says, "old/ind.cora.x.part");
}

#[cfg(unix)]
#[test]
fn unwritable_directories_are_refused() {
    let Some(sandbox) = super::sandbox_with_locked_dir() else { return };
    refused(
        &sandbox,
        "datasets download cora locked/new",
        FAILED,
        &["locked/new: cannot create"],
        "locked/new",
    );
    refused(
        &sandbox,
        "datasets download cora locked",
        FAILED,
        &["locked/ind.cora.x.part: cannot create"],
        "",
    );
    super::set_mode(&sandbox, "locked", 0o755);
}
