//! `graphmill datasets`.

#[path = "../../../data/tests/server/mod.rs"]
mod server;

use server::{Reply, Server};

use crate::{FAILED, USAGE, common::Room, refused};

#[test]
fn wrong_usage() {
    let room = Room::new();
    refused(&room, "datasets pubmd", USAGE, &["'pubmd', did you mean 'pubmed'?; known: cora, citeseer"], "");
    refused(
        &room,
        "datasets download nonsense",
        USAGE,
        &["unknown dataset 'nonsense'; known"],
        "nonsense-raw",
    );
    refused(&room, "datasets download", USAGE, &["<NAME>"], "");
    refused(&room, "datasets cora extra", USAGE, &["extra"], "");
    let args = "datasets download cora --mirror localhost";
    refused(&room, args, USAGE, &["--mirror localhost", "http://"], "cora-raw");
}

#[test]
fn what_only_a_person_can_fetch() {
    let says = ["ppi-saint cannot be fetched", "drive.google.com", "import that"];
    refused(&Room::new(), "datasets download ppi-saint", FAILED, &says, "ppi-saint-raw");
}

#[test]
fn servers_that_have_it_not() {
    let room = Room::new();
    let x = "cora-raw/ind.cora.x";
    let server = Server::start(|_, _| Reply::status(404));
    let args = format!("datasets download cora --mirror {}", server.url);
    refused(&room, &args, FAILED, &["/cora/ind.cora.x: the server answered 404", "--mirror"], x);
    drop(server);
    refused(&room, &args, FAILED, &["/cora/ind.cora.x: "], x);

    let server = Server::start(|_, _| Reply::whole(b"wrong"));
    let args = format!("datasets download cora --mirror {}", server.url);
    refused(&room, &args, FAILED, &["5 bytes, the known one has 22119", "--no-verify"], x);

    let server = Server::start(|_, _| Reply::whole(&[7; 22_119]));
    let args = format!("datasets download cora --mirror {}", server.url);
    refused(&room, &args, FAILED, &["has the SHA-256", "the published one is 23cfa55d", "--no-verify"], x);
    assert!(!room.path("cora-raw/ind.cora.x.part").exists());
}

#[test]
fn directories_that_cannot_be_used() {
    let room = Room::new();
    room.write("file", "text");
    refused(&room, "datasets download cora file", FAILED, &["file: cannot create the directory"], "");
    room.write("dir/SHA256SUMS", "text");
    refused(&room, "datasets download cora dir", FAILED, &["dir/SHA256SUMS: line 1"], "dir/ind.cora.x.part");
    room.write("old/ind.cora.x", "text");
    let says = ["old/ind.cora.x: its SHA-256 is", "delete the file"];
    refused(&room, "datasets download cora old", FAILED, &says, "old/ind.cora.x.part");
}

#[cfg(unix)]
#[test]
fn a_directory_that_cannot_be_written_to() {
    let Some(room) = crate::locked() else { return };
    refused(&room, "datasets download cora locked/new", FAILED, &["locked/new: cannot create"], "locked/new");
    refused(&room, "datasets download cora locked", FAILED, &["locked/ind.cora.x.part: cannot create"], "");
    crate::permit(&room, "locked", 0o755);
}
