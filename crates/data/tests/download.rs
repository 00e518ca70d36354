//! Downloads from a faulty server: broken connections, changed files, wrong data, silence.

use std::{
    fs,
    io::Write,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use graphmill_core::progress::{Progress, Quiet};
use graphmill_data::download::{
    Check, Entry, Error, Options, Origin, Report, catalogue, catalogue::File, download,
};

use crate::server::{Reply, Server};

/// SHA-256 of [`bytes`]`(10_000)`, computed by another program (Python's hashlib).
pub(crate) const SHA: &str = "a6d19f40528653c8fa0c558cb84dcf627ba8977c4b24cc8887f46a2589bd0480";

/// Bytes without short repetitions.
pub(crate) fn bytes(n: usize) -> Vec<u8> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Dataset of one file.
pub(crate) fn entry(name: &str, sha256: Option<&str>) -> Entry {
    let file = File {
        name: name.into(),
        url: String::new(),
        bytes: None,
        about: None,
        sha256: sha256.map(str::to_string),
    };
    Entry { name: "set".into(), files: vec![file], ..catalogue::find("cora").unwrap().clone() }
}

fn options(server: &Server) -> Options {
    Options {
        mirror: Some(server.url.clone()),
        attempts: 3,
        backoff: Duration::from_millis(1),
        idle: Duration::from_secs(20),
        proxy: false,
        ..Options::default()
    }
}

pub(crate) fn get(entry: &Entry, dir: &Path, server: &Server) -> Result<Report, Error> {
    download(entry, dir, &options(server), &Quiet)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Progress receiver that stops the download after some bytes.
struct StopAfter(u64, AtomicU64);

impl Progress for StopAfter {
    fn done(&self, amount: u64) {
        self.1.store(amount, Relaxed);
    }
    fn is_stopped(&self) -> bool {
        self.1.load(Relaxed) >= self.0
    }
}

/// Leaves the first part of the file in `dir`, as a stopped process does.
fn begin(entry: &Entry, dir: &Path, server: &Server) {
    let stop = StopAfter(1, AtomicU64::new(0));
    let error = download(entry, dir, &options(server), &stop).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert!(names(dir).contains(&"f.bin.part".to_string()));
}

#[test]
fn downloads_are_verified_and_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Reply::file(request, &bytes(10_000), "\"a\""));
    let mut set = entry("f.bin", Some(SHA));
    set.files[0].bytes = Some(10_000);
    let report = get(&set, dir.path(), &server).unwrap();
    let got = &report.files[0];
    assert_eq!((got.bytes, got.sha256.as_str()), (10_000, SHA));
    assert_eq!((got.origin, got.checked), (Origin::Fetched, Check::Published));
    assert_eq!(fs::read(dir.path().join("f.bin")).unwrap(), bytes(10_000));
    assert_eq!(fs::read_to_string(dir.path().join("SHA256SUMS")).unwrap(), format!("{SHA}  f.bin\n"));
    assert_eq!(names(dir.path()), ["SHA256SUMS", "f.bin"]);
    assert_eq!(server.seen()[0].path, "/set/f.bin");

    let report = get(&set, dir.path(), &server).unwrap();
    assert_eq!((report.files[0].origin, report.files[0].checked), (Origin::Present, Check::Published));
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn broken_connections_resume() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Reply::file(request, &bytes(10_000), "\"a\"").cut(3000));
    let report = get(&entry("f.bin", Some(SHA)), dir.path(), &server).unwrap();
    assert_eq!(report.files[0].origin, Origin::Fetched);
    assert_eq!(server.ranges(), [None, Some(3000), Some(6000), Some(9000)]);
    assert!(server.seen()[1..].iter().all(|request| request.if_range.as_deref() == Some("\"a\"")));
}

#[test]
fn partial_files_of_stopped_processes_resume() {
    let dir = tempfile::tempdir().unwrap();
    // The first response is cut, so that the data present at the stop does not depend on packet
    // sizes.
    let server = Server::start(|request, number| {
        let reply = Reply::file(request, &bytes(10_000), "\"a\"");
        if number == 0 { reply.cut(4000) } else { reply }
    });
    let set = entry("f.bin", Some(SHA));
    begin(&set, dir.path(), &server);
    let there = fs::metadata(dir.path().join("f.bin.part")).unwrap().len() as usize;
    assert!(0 < there && there <= 4000);
    let report = get(&set, dir.path(), &server).unwrap();
    assert_eq!((report.files[0].origin, report.files[0].sha256.as_str()), (Origin::Resumed, SHA));
    assert_eq!(server.ranges(), [None, Some(there)]);
}

#[test]
fn servers_without_ranges_start_over() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|_, number| {
        let reply = Reply::whole(&bytes(10_000));
        if number == 0 { reply.cut(4000) } else { reply }
    });
    let report = get(&entry("f.bin", Some(SHA)), dir.path(), &server).unwrap();
    assert_eq!((report.files[0].bytes, server.ranges().len()), (10_000, 2));

    // A connection that never completes is not retried forever.
    let server = Server::start(|_, _| Reply::whole(&bytes(10_000)).cut(4000));
    let dir = tempfile::tempdir().unwrap();
    let error = get(&entry("f.bin", Some(SHA)), dir.path(), &server).unwrap_err();
    assert!(matches!(&error, Error::Broken { .. }), "{error}");
    assert!(error.to_string().contains("to resume"), "{error}");
    assert!(server.ranges().len() <= 4);
}

#[test]
fn another_version_of_the_file_starts_over() {
    let new: Vec<u8> = bytes(12_000).into_iter().rev().collect();
    let expected = new.clone();
    for knows_if_range in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let new = new.clone();
        let server = Server::start(move |request, number| match number {
            0 => Reply::file(request, &bytes(10_000), "\"a\"").cut(4000),
            _ => {
                let mut request = request.clone();
                if !knows_if_range {
                    request.if_range = None;
                }
                Reply::file(&request, &new, "\"b\"")
            }
        });
        get(&entry("f.bin", None), dir.path(), &server).unwrap();
        assert_eq!(fs::read(dir.path().join("f.bin")).unwrap(), expected, "{knows_if_range}");
    }
}

#[test]
fn partial_files_of_other_addresses_or_without_a_record_are_discarded() {
    for lose_note in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(|request, _| Reply::file(request, &bytes(10_000), "\"a\""));
        let set = entry("f.bin", Some(SHA));
        begin(&set, dir.path(), &server);
        let set = if lose_note {
            fs::remove_file(dir.path().join("f.bin.part.json")).unwrap();
            set
        } else {
            Entry { name: "other".into(), ..set }
        };
        let report = get(&set, dir.path(), &server).unwrap();
        assert_eq!(report.files[0].origin, Origin::Fetched);
        assert_eq!(server.ranges(), [None, None]);
    }
}

#[test]
fn complete_partial_files_need_no_more_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Reply::file(request, &bytes(10_000), "\"a\""));
    let set = entry("f.bin", Some(SHA));
    begin(&set, dir.path(), &server);
    // Killed between the last byte and the rename, by a server that had not reported the length.
    fs::write(dir.path().join("f.bin.part"), bytes(10_000)).unwrap();
    let note = format!(r#"{{"url":"{}/set/f.bin","version":{{}}}}"#, server.url);
    fs::write(dir.path().join("f.bin.part.json"), note).unwrap();
    let report = get(&set, dir.path(), &server).unwrap();
    assert_eq!((report.files[0].origin, server.ranges()[1]), (Origin::Resumed, Some(10_000)));
}

#[test]
fn wrong_checksums_remove_the_file_and_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Reply::file(request, &bytes(9_999), "\"a\""));
    let set = entry("f.bin", Some(SHA));
    let message = get(&set, dir.path(), &server).unwrap_err().to_string();
    for word in ["/set/f.bin: what arrived has the SHA-256", SHA, "published", "removed", "--no-verify"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert!(names(dir.path()).is_empty());

    let lenient = Options { verify: false, ..options(&server) };
    let report = download(&set, dir.path(), &lenient, &Quiet).unwrap();
    assert_eq!(report.files[0].checked, Check::Nothing);
    // From then on the strict mode rejects the file.
    let message = get(&set, dir.path(), &server).unwrap_err().to_string();
    assert!(message.contains("f.bin: its SHA-256 is") && message.contains("delete the file"), "{message}");
}

#[test]
fn wrong_lengths_are_rejected_before_the_first_byte() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Reply::file(request, &bytes(9_999), "\"a\""));
    let mut set = entry("f.bin", None);
    set.files[0].bytes = Some(10_000);
    let message = get(&set, dir.path(), &server).unwrap_err().to_string();
    assert!(message.contains("9999 bytes, the known one has 10000"), "{message}");
    assert!(!dir.path().join("f.bin").exists());

    // If a server does not report the length, surplus data is cut and missing data is detected.
    for n in [9_999, 10_001] {
        let server = Server::start(move |_, _| Reply { unsized_body: true, ..Reply::whole(&bytes(n)) });
        let dir = tempfile::tempdir().unwrap();
        assert!(get(&set, dir.path(), &server).is_err());
        assert!(!dir.path().join("f.bin").exists());
    }
    let server = Server::start(|_, _| Reply { unsized_body: true, ..Reply::whole(&bytes(10_000)) });
    assert_eq!(get(&set, dir.path(), &server).unwrap().files[0].sha256, SHA);
}

#[test]
fn unpublished_checksums_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Reply::file(request, &bytes(10_000), "\"a\""));
    let set = entry("f.bin", None);
    assert_eq!(get(&set, dir.path(), &server).unwrap().files[0].checked, Check::Nothing);
    assert_eq!(get(&set, dir.path(), &server).unwrap().files[0].checked, Check::Recorded);
    let path = dir.path().join("f.bin");
    fs::write(&path, "damaged").unwrap();
    let message = get(&set, dir.path(), &server).unwrap_err().to_string();
    assert!(message.contains("recorded in SHA256SUMS"), "{message}");
    fs::remove_file(&path).unwrap();
    assert_eq!(get(&set, dir.path(), &server).unwrap().files[0].checked, Check::Recorded);
}

#[test]
fn files_much_longer_than_announced_are_rejected() {
    for length in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(move |_, _| {
            let reply = Reply::whole(&bytes(10_000));
            Reply { unsized_body: !length, ..reply }
        });
        let mut set = entry("f.bin", None);
        set.files[0].about = Some(2000);
        let message = get(&set, dir.path(), &server).unwrap_err().to_string();
        assert!(message.contains("at most 8000 are expected"), "{message}");
        assert!(!dir.path().join("f.bin").exists());
        let options = Options { verify: false, ..options(&server) };
        assert_eq!(download(&set, dir.path(), &options, &Quiet).unwrap().files[0].bytes, 10_000);
        let dir = tempfile::tempdir().unwrap();
        set.files[0].about = Some(2500);
        assert!(get(&set, dir.path(), &server).is_ok());
    }
}

/// A server without versions may answer the second half with that of another file.
#[test]
fn parts_of_unknown_versions_start_over_unless_a_checksum_is_known() {
    for (sha256, ranges) in [(None, [None, None]), (Some(SHA), [None, Some(4000)])] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(|request, number| {
            let mut reply = Reply::file(request, &bytes(10_000), "");
            reply.headers.retain(|(name, _)| *name != "ETag");
            if number == 0 { reply.cut(4000) } else { reply }
        });
        assert_eq!(get(&entry("f.bin", sha256), dir.path(), &server).unwrap().files[0].sha256, SHA);
        assert_eq!(server.ranges(), ranges);
    }
}

#[test]
fn refusals_are_final_and_faults_are_retried() {
    for (status, tries) in [(404, 1), (403, 1), (410, 1), (429, 3), (500, 3), (503, 3)] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(move |_, _| Reply::status(status));
        let message = get(&entry("f.bin", None), dir.path(), &server).unwrap_err().to_string();
        assert!(message.contains(&format!("the server answered {status}")), "{message}");
        assert_eq!(server.seen().len(), tries, "{status}");
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, number| match number {
        0 => Reply::status(503),
        _ => Reply::file(request, &bytes(10_000), "\"a\""),
    });
    assert!(get(&entry("f.bin", Some(SHA)), dir.path(), &server).is_ok());
}

#[test]
fn web_pages_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        Server::start(|_, _| Reply::whole(b"<html>").header("Content-Type", "text/html; charset=utf-8"));
    let message = get(&entry("f.bin", None), dir.path(), &server).unwrap_err().to_string();
    assert!(message.contains("a web page and not the file"), "{message}");
}

#[test]
fn redirects_are_followed_with_their_range() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| match request.path.as_str() {
        "/set/f.bin" => Reply::status(302).header("Location", "/elsewhere"),
        _ => Reply::file(request, &bytes(10_000), "\"a\"").cut(6000),
    });
    assert!(get(&entry("f.bin", Some(SHA)), dir.path(), &server).is_ok());
    assert_eq!(server.ranges(), [None, None, Some(6000), Some(6000)]);
    let server = Server::start(|_, _| Reply::status(302).header("Location", "/set/f.bin"));
    let dir = tempfile::tempdir().unwrap();
    let message = get(&entry("f.bin", None), dir.path(), &server).unwrap_err().to_string();
    assert!(message.contains("redirects"), "{message}");
}

#[test]
fn silent_servers_time_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, number| {
        let reply = Reply::file(request, &bytes(10_000), "\"a\"");
        if number == 0 { Reply { silent: Duration::from_secs(1), ..reply.cut(4000) } } else { reply }
    });
    let options = Options { idle: Duration::from_millis(300), attempts: 50, ..options(&server) };
    let set = entry("f.bin", Some(SHA));
    assert!(download(&set, dir.path(), &options, &Quiet).is_ok());
    assert_eq!(server.ranges()[..2], [None, Some(4000)]);
}

#[test]
fn unreachable_servers_are_reported_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Reply::status(500));
    let options = Options { backoff: Duration::from_secs(60), ..options(&server) };
    drop(server);
    let error = download(&entry("f.bin", None), dir.path(), &options, &Quiet);
    assert!(matches!(error, Err(Error::Refused { .. })), "{error:?}");
}

#[test]
fn downloads_beyond_the_free_space_do_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Reply::status(500));
    let mut set = entry("f.bin", None);
    set.files[0].about = Some(1 << 60);
    let message = get(&set, dir.path(), &server).unwrap_err().to_string();
    assert!(message.contains("1152921504606846976 bytes are needed"), "{message}");
    assert!(server.seen().is_empty());
}

#[test]
fn concurrent_downloads_of_a_file_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Reply::file(request, &bytes(10_000), "\"a\""));
    let part = fs::File::create(dir.path().join("f.bin.part")).unwrap();
    part.lock().unwrap();
    let message = get(&entry("f.bin", None), dir.path(), &server).unwrap_err().to_string();
    assert!(message.contains("another process"), "{message}");
}

#[cfg(unix)]
#[test]
fn links_at_partial_files_are_replaced_and_targets_stay() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    for name in ["f.bin.part", "f.bin.part.json"] {
        std::os::unix::fs::symlink(&victim, dir.path().join(name)).unwrap();
    }
    let server = Server::start(|request, _| Reply::file(request, &bytes(10_000), "\"a\""));
    get(&entry("f.bin", Some(SHA)), dir.path(), &server).unwrap();
    assert_eq!(names(dir.path()), ["SHA256SUMS", "f.bin", "victim"]);
    assert!(fs::symlink_metadata(dir.path().join("f.bin")).unwrap().is_file());
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
}

#[test]
fn manual_datasets_return_instructions() {
    let dir = tempfile::tempdir().unwrap();
    let set = Entry { manual: Some("open the folder".into()), files: vec![], ..entry("f", None) };
    let server = Server::start(|_, _| Reply::status(500));
    let message = get(&set, &dir.path().join("new"), &server).unwrap_err().to_string();
    assert_eq!(message, "set cannot be fetched from here: open the folder");
    assert!(!dir.path().join("new").exists());
}

/// Archive of files; a name ending in `@` is a link.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    for (name, bytes) in members {
        if let Some(name) = name.strip_suffix('@') {
            zip.add_symlink(name, String::from_utf8_lossy(bytes), options).unwrap();
        } else {
            zip.start_file(*name, options).unwrap();
            zip.write_all(bytes).unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

fn served(zip: Vec<u8>) -> Server {
    Server::start(move |request, _| Reply::file(request, &zip, "\"a\""))
}

#[test]
fn archives_are_unpacked_and_extraction_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let long = bytes(300_000);
    let server = served(archive(&[("set/raw/a.csv", b"1,2\n"), ("set/b.bin", &long), ("c", b"")]));
    let set = entry("set.zip", None);
    let report = get(&set, dir.path(), &server).unwrap();
    assert_eq!(report.unpacked_bytes, 300_004);
    assert_eq!(fs::read(dir.path().join("set/b.bin")).unwrap(), long);
    assert_eq!(names(dir.path()), ["SHA256SUMS", "c", "set", "set.zip"]);

    // Valid files are kept, others are rewritten.
    let kept = dir.path().join("set/raw/a.csv");
    let before = fs::metadata(&kept).unwrap().modified().unwrap();
    let mut damaged = long.clone();
    damaged[7] ^= 1;
    fs::write(dir.path().join("set/b.bin"), damaged).unwrap();
    fs::remove_file(dir.path().join("c")).unwrap();
    get(&set, dir.path(), &server).unwrap();
    assert_eq!(fs::read(dir.path().join("set/b.bin")).unwrap(), long);
    assert!(dir.path().join("c").exists());
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), before);
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn archives_with_unsafe_names_are_rejected_entirely() {
    for (name, says) in [
        ("../evil", "leads out"),
        ("set/../../evil", "leads out"),
        ("/evil", "leads out"),
        ("..\\evil", "leads out"),
        ("C:evil", "leads out"),
        ("link@", "is a link"),
        ("set.zip", "name of another file"),
        ("SHA256SUMS", "name of another file"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("in/dir");
        let server = served(archive(&[("good", b"good"), (name, b"evil")]));
        let message = get(&entry("set.zip", None), &dir, &server).unwrap_err().to_string();
        assert!(message.contains(says) && message.contains("set.zip: member"), "{name}: {message}");
        assert_eq!(names(&dir), ["SHA256SUMS", "set.zip"], "{name}");
        assert_eq!(names(&root.path().join("in")), ["dir"], "{name}");
    }
}

#[cfg(unix)]
#[test]
fn members_are_not_written_through_linked_directories() {
    let root = tempfile::tempdir().unwrap();
    let [dir, outside] = ["dir", "outside"].map(|name| root.path().join(name));
    fs::create_dir_all(&dir).unwrap();
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("set")).unwrap();
    let server = served(archive(&[("good", b"good"), ("set/raw/a.csv", b"evil")]));
    let message = get(&entry("set.zip", None), &dir, &server).unwrap_err().to_string();
    assert!(message.contains("through a link"), "{message}");
    assert!(names(&outside).is_empty() && !dir.join("good").exists());
}

#[test]
fn damaged_archives_are_reported_and_leave_no_partial_files() {
    let good = archive(&[("a", &bytes(10_000)), ("b", b"b")]);
    for bad in [good[..good.len() - 30].to_vec(), b"no archive".to_vec(), {
        let mut bad = good.clone();
        bad[1000] ^= 0x55;
        bad
    }] {
        let dir = tempfile::tempdir().unwrap();
        let server = served(bad);
        let message = get(&entry("set.zip", None), dir.path(), &server).unwrap_err().to_string();
        assert!(message.contains("set.zip: ") && message.contains("delete the archive"), "{message}");
        assert_eq!(names(dir.path()), ["SHA256SUMS", "set.zip"], "{message}");
    }
}
