//! Imports that are stopped, have no room, or are not wanted where they are asked for: nothing is half written, and
//! the next run goes on or starts clean.

mod common;

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use common::Room;
use graphmill_graph::keyed::Stream;

/// More edges than 64 MiB, the least budget, keep in memory.
const EDGES: usize = 3_000_000;

const COMMAND: &str = "import edges edges.txt data --memory 1M --undirected";

fn edges(room: &Room) {
    let mut stream = Stream::new(11);
    let mut text = String::with_capacity(14 * EDGES);
    for _ in 0..EDGES {
        text += &format!("{}\t{}\n", stream.below(200_000), stream.below(200_000));
    }
    room.write("edges.txt", text);
}

/// What stands in the directory of the room beside the source.
fn names(room: &Room) -> Vec<String> {
    let entries = fs::read_dir(room.path("")).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "edges.txt" && name != "expected");
    names.sort_unstable();
    names
}

#[test]
fn a_killed_import_goes_on_to_the_same_bytes() {
    let room = Room::new();
    edges(&room);
    room.ok("import edges edges.txt expected --undirected --name edges");
    let began = Instant::now();
    room.ok(COMMAND);
    let whole = began.elapsed();
    fs::remove_dir_all(room.path("data")).unwrap();
    let mut resumed = 0;
    for quarter in 1..4 {
        let mut child = room.command(COMMAND).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * quarter / 4);
        child.kill().unwrap();
        child.wait().unwrap();
        let there = names(&room);
        assert!(there.is_empty() || there == ["data.importing"] || there == ["data"], "{there:?}");
    }
    if names(&room) != ["data"] {
        let last = room.run(COMMAND).succeeded();
        resumed += usize::from(last.stderr.contains("taking up"));
    }
    assert_eq!(names(&room), ["data"], "{resumed} taken up");
    for name in ["indptr.npy", "indices.npy", "labels.npy", "graphmill.json"] {
        assert!(room.read(format!("data/{name}")) == room.read(format!("expected/{name}")), "{name}");
    }
}

#[test]
fn another_import_in_the_same_place_starts_clean() {
    let room = Room::new();
    edges(&room);
    let mut child = room.command(COMMAND).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !room.path("data.importing/scratch-edges.bin").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    // while it works, nobody else may
    let second = room.run(COMMAND);
    assert!(
        second.status == Some(0) || second.stderr.contains("another process is at work"),
        "{}",
        second.stderr
    );
    child.kill().unwrap();
    child.wait().unwrap();
    room.ok("import edges edges.txt other --no-self-loops");
    let directed = room.run("import edges edges.txt data --no-self-loops --force").succeeded();
    assert!(!directed.stderr.contains("taking up"), "other options are other work: {}", directed.stderr);
    assert!(room.read("data/indices.npy") == room.read("other/indices.npy"));
    assert_eq!(names(&room), ["data", "other"]);
}

/// A file may not grow beyond so many blocks: a full disk as far as a process can make one.
#[cfg(unix)]
#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let room = Room::new();
    edges(&room);
    let program = env!("CARGO_BIN_EXE_graphmill");
    // blocks of 512 or 1024 bytes: the spill stops early, or the labels of the finished dataset do
    for limit in [4_000, 24_000] {
        let script = format!("trap '' XFSZ; ulimit -f {limit}; exec {program} {COMMAND}");
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(room.path(""))
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("error: data") && told.contains("cannot write"), "{told}");
        assert!(names(&room).is_empty(), "{told}");
    }
    room.ok(COMMAND);
}

#[test]
fn a_place_that_cannot_be_written_is_told_before_anything_is_read() {
    let room = Room::new();
    room.write("edges.txt", "0 1\n");
    room.write("file", "");
    let told = room.run("import edges edges.txt file/data");
    assert_eq!(told.status, Some(1));
    assert!(told.stderr.contains("file/data"), "{}", told.stderr);
    room.write("data.importing/mine.txt", "");
    let told = room.run("import edges edges.txt data");
    assert!(told.stderr.contains("'mine.txt', which no import wrote"), "{}", told.stderr);
    let told = room.run("import edges edges.txt data2 --memory lots");
    assert_eq!(told.status, Some(2));
    assert!(told.stderr.contains("--memory: 'lots' is not a size"), "{}", told.stderr);
    assert!(!room.path("data2").exists() && !room.path("data2.importing").exists());
}

#[test]
fn what_does_not_fit_on_the_disk_is_refused_before_it_begins() {
    let room = Room::new();
    // the header of an array of 2^46 edges, all of it a hole in the file
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (70368744177664, 2), }";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((118u16).to_le_bytes());
    bytes.extend(format!("{header:<117}\n").as_bytes());
    room.write("edges.npy", &bytes);
    let file = fs::File::options().write(true).open(room.path("edges.npy")).unwrap();
    if file.set_len(bytes.len() as u64 + (1 << 47)).is_err() {
        return; // a file system without files of that size
    }
    let told = room.run("import edges edges.npy data --num-nodes 200");
    assert_eq!(told.status, Some(1), "{}", told.stderr);
    assert!(told.stderr.contains("are free") && told.stderr.contains("disk"), "{}", told.stderr);
    assert!(!room.path("data").exists() && !room.path("data.importing").exists());
}
