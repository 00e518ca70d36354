//! Listing and reading of a store in memory.

use std::{
    fs,
    io::{Read, Seek, SeekFrom},
    sync::Arc,
};

use graphmill_core::{Error, progress::Quiet};
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path as Key};

use super::{
    copies::Copies,
    list::{find_in, source_in},
    object::Object,
    source::Source,
    store::{Place, Service},
    worker,
};
use crate::external::Scratch;

/// Store with these objects.
fn store(objects: &[(&str, Vec<u8>)]) -> Arc<dyn ObjectStore> {
    let store = Arc::new(InMemory::new());
    for (key, bytes) in objects {
        worker::wait(store.put(&Key::from(*key), bytes.clone().into())).unwrap().unwrap();
    }
    store
}

fn found(store: &Arc<dyn ObjectStore>, key: &str) -> Result<Vec<String>, String> {
    let place =
        Place { service: Service::S3, store: store.clone(), base: "s3://bucket/".into(), key: key.into() };
    let objects = find_in(&place).map_err(|error| error.to_string())?;
    Ok(objects.iter().map(|object| object.address().display().to_string()).collect())
}

fn object(bytes: &[u8]) -> Object {
    let store = store(&[("data/key", bytes.to_vec())]);
    let place = Place { service: Service::S3, store, base: "s3://bucket/".into(), key: "data/key".into() };
    find_in(&place).unwrap().remove(0)
}

#[test]
fn addresses_name_objects_prefixes_and_patterns() {
    let keys =
        ["a/part-2.csv", "a/part-10.csv", "a/_SUCCESS", "a/.hidden", "a/b/part-3.csv", "a.csv", "empty"];
    let objects: Vec<(&str, Vec<u8>)> = keys.iter().map(|key| (*key, vec![1])).collect();
    let store = store(&objects);
    let below = ["s3://bucket/a/part-10.csv", "s3://bucket/a/part-2.csv"];
    for key in ["a", "a/", "a/*.csv", "a/part-[0-9]*.csv", "a/part*"] {
        assert_eq!(found(&store, key).unwrap(), below, "{key}");
    }
    assert_eq!(found(&store, "a.csv").unwrap(), ["s3://bucket/a.csv"]);
    assert_eq!(found(&store, "*/part-2*").unwrap(), ["s3://bucket/a/part-2.csv"]);
    assert_eq!(found(&store, "a/*/*.csv").unwrap(), ["s3://bucket/a/b/part-3.csv"]);
    assert_eq!(found(&store, "").unwrap(), ["s3://bucket/a.csv", "s3://bucket/empty"]);
    let error = found(&store, "a/x-*.csv").unwrap_err();
    assert!(error.starts_with("s3://bucket/a/x-*.csv: objects: the bucket has no such object"), "{error}");
    assert!(found(&store, "none").unwrap_err().contains("none below this prefix"));
    assert!(found(&store, "a/[").unwrap_err().contains("fix the pattern"));
    assert!(found(&store, "a//b").unwrap_err().contains("correct the address"));
}

/// Source at `s3://bucket/KEY`.
fn source(store: &Arc<dyn ObjectStore>, key: &str) -> Result<Source, String> {
    let place =
        Place { service: Service::S3, store: store.clone(), base: "s3://bucket/".into(), key: key.into() };
    source_in(&place).map_err(|error| error.to_string())
}

#[test]
fn sources_are_objects_directories_or_files_beside_each_other() {
    let keys =
        ["a/graph.zip", "a/_x", "a/raw/b/edge.csv", "a/raw", "c/ind.cora.x", "c/ind.cora.y", "c/ind.core"];
    let objects: Vec<(&str, Vec<u8>)> =
        keys.iter().map(|key| (*key, vec![1; usize::from(*key != "a/raw")])).collect();
    let store = store(&objects);
    let names = |key: &str| {
        let source = source(&store, key)?;
        let names = source.objects.iter().map(|(rest, _)| format!("{}{rest}", source.title));
        Ok::<_, String>((names.collect::<Vec<_>>().join(" "), source.address))
    };
    let found = |names: &str, address: &str| Ok((names.to_string(), address.to_string()));
    assert_eq!(names("a/graph.zip"), found("graph.zip", "s3://bucket/a/graph.zip"));
    for key in ["a", "a/"] {
        assert_eq!(names(key), found("a/_x a/graph.zip a/raw/b/edge.csv", "s3://bucket/a"), "{key}");
    }
    assert_eq!(names("a/raw/"), found("raw/b/edge.csv", "s3://bucket/a/raw"));
    assert_eq!(names("c/ind.cora"), found("ind.cora.x ind.cora.y", "s3://bucket/c/ind.cora"));
    assert!(names("").unwrap().0.starts_with("bucket/a/_x bucket/a/graph.zip"));
    for key in ["none", "c/ind.cora/", "c/ind.c"] {
        let error = names(key).unwrap_err();
        assert!(
            error.contains("the bucket has no such object, and none below this prefix"),
            "{key}: {error}"
        );
    }
}

#[test]
fn copies_resume_within_an_object_and_errors_name_the_address() {
    let bytes: Vec<u8> = (0..700_000u32).map(|i| (i / 3) as u8).collect();
    let store = store(&[("d/one", bytes.clone()), ("d/sub/two", bytes.clone()), ("d/three", Vec::new())]);
    let copies = Copies::of(vec![("s3://bucket/d/".into(), source(&store, "d/").unwrap())]);
    let dir = tempfile::tempdir().unwrap();
    let scratch = || Scratch::open(&dir.path().join("work"), &copies.identity(), 0, Box::new(Quiet)).unwrap();
    let copied = copies.copy(&scratch()).unwrap();
    let path = copied.path("s3://bucket/d/".as_ref());
    assert!(path.ends_with("0/d") && fs::read(path.join("sub/two")).unwrap() == bytes);
    assert!(fs::read(path.join("one")).unwrap() == bytes && fs::read(path.join("three")).unwrap().is_empty());
    let error = Error::format(path.join("sub/two"), "line 1", "a fault");
    assert_eq!(copied.name_addresses(error).to_string(), "s3://bucket/d/sub/two: line 1: a fault");
    let error = copied.name_addresses(Error::format(&path, "files", "none")).to_string();
    assert_eq!(error, "s3://bucket/d: files: none");
    // An earlier process recorded the first object and 10 bytes of the second, and wrote some more.
    fs::write(path.join("one"), vec![7; bytes.len()]).unwrap();
    fs::write(path.join("sub/two"), [7; 15]).unwrap();
    let resumed = scratch();
    resumed.save("copied", &(bytes.len() as u64 + 10)).unwrap();
    copies.copy(&resumed).unwrap();
    drop(resumed);
    assert!(fs::read(path.join("one")).unwrap() == vec![7; bytes.len()], "copied again");
    let two = fs::read(path.join("sub/two")).unwrap();
    assert!(two[..10] == [7; 10] && two[10..] == bytes[10..]);
    // A record of more than there is.
    fs::remove_file(path.join("one")).unwrap();
    fs::write(path.join("sub/two"), [7; 15]).unwrap();
    copies.copy(&scratch()).unwrap();
    assert!(fs::read(path.join("one")).unwrap() == bytes);
    assert!(fs::read(path.join("sub/two")).unwrap()[15..] == bytes[15..]);
    // Another version is another work, which removes the copies.
    worker::wait(store.put(&Key::from("d/one"), vec![1].into())).unwrap().unwrap();
    let changed = Copies::of(vec![("s3://bucket/d/".into(), source(&store, "d/").unwrap())]);
    let scratch = Scratch::open(&dir.path().join("work"), &changed.identity(), 0, Box::new(Quiet)).unwrap();
    assert!(!path.exists());
    changed.copy(&scratch).unwrap();
    assert_eq!(fs::read(path.join("one")).unwrap(), [1]);
    // An object that changes while it is copied.
    worker::wait(store.put(&Key::from("d/one"), vec![1, 2].into())).unwrap().unwrap();
    fs::remove_file(path.join("one")).unwrap();
    let error = changed.copy(&scratch).unwrap_err().to_string();
    assert!(error.starts_with("s3://bucket/d/one: cannot read: the file changed"), "{error}");
}

#[cfg(unix)]
#[test]
fn links_at_names_of_copies_are_replaced_and_targets_stay() {
    use std::os::unix::fs::symlink;

    let bytes = vec![1; 1000];
    let keys = ["d/one", "d/sub/two", "d/three"];
    let store = store(&keys.map(|key| (key, bytes.clone())));
    let copies = Copies::of(vec![("s3://bucket/d/".into(), source(&store, "d/").unwrap())]);
    let dir = tempfile::tempdir().unwrap();
    let scratch = || Scratch::open(&dir.path().join("work"), &copies.identity(), 0, Box::new(Quiet)).unwrap();
    let path = copies.copy(&scratch()).unwrap().path("s3://bucket/d/".as_ref());
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for (name, recorded) in [("file", 0), ("two", 0), ("file", 10), ("two", 1010)] {
        fs::write(outside.join(name), "a file of others").unwrap();
        fs::remove_file(path.join("one")).unwrap();
        symlink(outside.join(name), path.join("one")).unwrap();
        fs::remove_dir_all(path.join("sub")).unwrap();
        symlink(&outside, path.join("sub")).unwrap();
        let scratch = scratch();
        scratch.save("copied", &recorded).unwrap();
        copies.copy(&scratch).unwrap();
        for key in keys {
            let copy = path.join(&key[2..]);
            assert!(fs::symlink_metadata(&copy).unwrap().is_file() && fs::read(&copy).unwrap() == bytes);
        }
        assert!(fs::symlink_metadata(path.join("sub")).unwrap().is_dir());
        assert_eq!(fs::read_to_string(outside.join(name)).unwrap(), "a file of others");
        let left: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|found| found == "file" || found == "two"), "{left:?}");
    }
}

#[test]
fn wrong_addresses_name_the_remedy() {
    for (address, says) in [
        ("ftp://host/x", "'ftp://' is not known; use one of s3://, gs://, az://, https://, http://"),
        ("s3:///x", "the bucket or host is missing; write s3://NAME/PATH"),
        ("https://127.0.0.1/", "a web server has no list of its files; name each file"),
    ] {
        let error = super::find(address).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{address}: address: ")) && error.contains(says), "{error}");
    }
}

#[test]
fn streams_and_blocks_return_the_bytes() {
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let object = object(&bytes);
    let mut all = Vec::new();
    object.stream().unwrap().read_to_end(&mut all).unwrap();
    assert!(all == bytes);
    // A stream may be dropped before its end.
    let mut start = [0; 10];
    object.stream().unwrap().read_exact(&mut start).unwrap();
    assert_eq!(start, bytes[..10]);
    for positions in [1, 40, 100_000] {
        let mut blocks = object.blocks(positions);
        for (at, length) in [(0, 10), (65_530, 20), (2_999_000, 1000), (70_000, 200_000), (1, 2_999_999)] {
            let mut part = vec![0; length];
            blocks.read_exact_at(&mut part, at).unwrap();
            assert!(part == bytes[at as usize..at as usize + length], "{positions} {at} {length}");
        }
        assert_eq!(blocks.seek(SeekFrom::End(-3)).unwrap(), 2_999_997);
        let mut rest = Vec::new();
        blocks.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, bytes[2_999_997..]);
        assert!(blocks.read_exact_at(&mut [0; 2], 2_999_999).is_err());
        assert!(blocks.seek(SeekFrom::Current(-3_000_001)).is_err());
    }
}

#[test]
fn changed_objects_are_errors() {
    let object = object(b"first");
    worker::wait(object.store.put(&object.key, b"other bytes".to_vec().into())).unwrap().unwrap();
    let error = object.stream().unwrap().read(&mut [0]).unwrap_err().to_string();
    assert!(error.contains("the file changed while it was read"), "{error}");
    assert!(object.blocks(1).read_exact_at(&mut [0], 0).is_err());
}

#[test]
fn addresses_differ_from_paths() {
    for address in ["s3://bucket/key", "https://host/file.csv?a=b", "ftp://host/x"] {
        assert!(super::is_address(address), "{address}");
    }
    for path in ["a/b.csv", "-", "c://x", "a b://x", "/s3:/bucket", "part-*.csv"] {
        assert!(!super::is_address(path), "{path}");
    }
}
