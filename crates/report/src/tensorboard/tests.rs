use std::collections::BTreeMap;

use graphmill_data::atomic::ForgettingDisk;
use graphmill_engine::{
    TrainConfig,
    record::{Stages, WorkerRecord, WorkerStages},
};

use super::{message::HparamKind, *};

/// CRC-32C, bit by bit.
fn crc(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// Records of a file, with verified checksums.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at(8);
        let (sum_of_length, rest) = rest.split_at(4);
        let (data, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (sum, rest) = rest.split_at(4);
        for (data, sum) in [(length, sum_of_length), (data, sum)] {
            let crc = crc(data);
            let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
            assert_eq!(u32::from_le_bytes(sum.try_into().unwrap()), masked);
        }
        out.push(data);
        bytes = rest;
    }
    out
}

/// Fields of a protocol buffer by number; numbers are given by their bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (number, rest) = bytes.split_at(length);
        *bytes = rest;
        number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f))
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                out.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (value, rest) = bytes.split_at(length);
        out.push((key >> 3, value.to_vec()));
        bytes = rest;
    }
    out
}

/// Single field of that number; 0 as bytes if it is omitted.
fn field(fields: &[(u64, Vec<u8>)], number: u64) -> Vec<u8> {
    fields.iter().find(|(n, _)| *n == number).map_or(vec![0; 8], |(_, value)| value.clone())
}

/// Contents of a file: its version, the start of its session, and the scalars by step.
type Contents = (String, u64, BTreeMap<u64, BTreeMap<String, f32>>);

fn read(path: &Path) -> Contents {
    let bytes = fs::read(path).unwrap();
    let events: Vec<_> = records(&bytes).into_iter().map(fields).collect();
    let step = |event: &[_]| u64::from_le_bytes(field(event, 2).try_into().unwrap());
    for event in &events {
        let seconds = f64::from_le_bytes(field(event, 1).try_into().unwrap());
        assert!(seconds > 1e9 && seconds < 1e11);
    }
    assert_eq!(fields(&field(&events[1], 7)), [(1, 1u64.to_le_bytes().to_vec())]);
    let scalars = |event: &[_]| {
        let values = fields(&field(event, 5)).into_iter().map(|(number, value)| {
            assert_eq!(number, 1);
            let value = fields(&value);
            let scalar = f32::from_le_bytes(field(&value, 2).try_into().unwrap());
            (String::from_utf8(field(&value, 1)).unwrap(), scalar)
        });
        values.collect()
    };
    let by_step = events[2..].iter().map(|event| (step(event), scalars(event))).collect();
    (String::from_utf8(field(&events[0], 3)).unwrap(), step(&events[1]), by_step)
}

fn epoch(epoch: usize) -> EpochRecord {
    let stages = WorkerStages { sample: 0.5, train: 1.5, ..WorkerStages::default() };
    EpochRecord {
        epoch,
        loss: 2.0 / epoch as f64,
        valid_score: (epoch == 2).then_some(0.75),
        lr: 0.0,
        seconds: 2.5,
        stages: Stages { train: 1.5, ..Stages::default() },
        workers: vec![WorkerRecord {
            worker: "main".into(),
            stages,
            utilisation: 0.8,
            ..WorkerRecord::default()
        }],
        hit_rate: Some(0.25),
        ..EpochRecord::default()
    }
}

/// Existing files, in TensorBoard's order.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn crc32c_matches_the_reference_value() {
    assert_eq!((crc(b"123456789"), crc32c::crc32c(b"123456789")), (0xe306_9283, 0xe306_9283));
}

#[test]
fn scalars_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("tensorboard");
    let mut events = Events::create(&dir, &[]).unwrap();
    events.epoch(&epoch(1)).unwrap();
    events.epoch(&epoch(2)).unwrap();
    let (version, start, steps) = read(&files(&dir)[0]);
    assert_eq!((version.as_str(), start), ("brain.Event:2", 1));
    assert_eq!(steps.keys().copied().collect::<Vec<_>>(), [1, 2]);
    let second = &steps[&2];
    for (tag, value) in [
        ("train/loss", 1.0),
        ("valid/score", 0.75),
        ("lr", 0.0),
        ("seeds_per_second", 0.0),
        ("hit_rate", 0.25),
        ("utilisation/sample", 0.2),
        ("utilisation/train", 0.6),
        ("seconds/train", 1.5),
        ("seconds/order", 0.0),
        ("seconds/epoch", 2.5),
    ] {
        assert!((second[tag] - value).abs() < 1e-6, "{tag} {}", second[tag]);
    }
    for absent in ["valid/loss", "utilisation/extract", "train/score", "memory_bytes"] {
        assert!(!second.contains_key(absent), "{absent}");
    }
    assert!(!steps[&1].contains_key("valid/score"));
}

#[test]
fn recorded_epochs_survive_a_loss_of_power() {
    let root = tempfile::tempdir().unwrap();
    let work = || {
        let mut events = Events::create(&root.path().join("run/tensorboard"), &[epoch(1)]).unwrap();
        events.epoch(&epoch(2)).unwrap();
    };
    let disk = ForgettingDisk::record(root.path(), work).unwrap();
    assert!(disk.is_durable("run").unwrap());
    assert!(!disk.ignoring_syncs().is_durable("run").unwrap());
}

#[test]
fn resumed_runs_void_the_steps_they_rewrite() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = Events::create(dir.path(), &[]).unwrap();
    (1..=3).try_for_each(|i| events.epoch(&epoch(i))).unwrap();
    // The checkpoint contains only the first epoch.
    let mut events = Events::create(dir.path(), &[epoch(1)]).unwrap();
    events.epoch(&epoch(2)).unwrap();
    let files = files(dir.path());
    assert_eq!(files.len(), 2, "also within a second");
    let (_, start, steps) = read(&files[1]);
    assert_eq!((start, steps.into_keys().collect::<Vec<_>>()), (2, vec![2]));
    // Enabled late: the previous epochs are written too.
    let late = tempfile::tempdir().unwrap();
    drop(Events::create(late.path(), &[epoch(1), epoch(2)]).unwrap());
    let (_, start, steps) = read(&self::files(late.path())[0]);
    assert_eq!((start, steps.into_keys().collect::<Vec<_>>()), (1, vec![1, 2]));
}

#[test]
fn the_test_score_and_hyperparameters_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = Events::create(dir.path(), &[]).unwrap();
    let config = TrainConfig { hidden: 12, trace: true, cache: "fifo".into(), ..TrainConfig::default() };
    events.options(&config.to_json()).unwrap();
    events.epoch(&epoch(1)).unwrap();
    let mut summary = RunSummary::default();
    (summary.best.epoch, summary.test.score) = (1, Some(0.5));
    events.end(&summary).unwrap();
    let bytes = fs::read(&files(dir.path())[0]).unwrap();
    let decoded = |bytes: &[u8]| Event::decode(bytes).unwrap();
    let events: Vec<Event> = records(&bytes).into_iter().map(decoded).collect();
    let value = |i: usize| events[i].summary.as_ref().unwrap().value[0].clone();
    let hparams = |i: usize| {
        let data = value(i).metadata.unwrap().plugin_data.unwrap();
        assert_eq!(data.plugin_name, "hparams");
        Hparams::decode(&data.content[..]).unwrap()
    };
    assert_eq!((value(2).tag.as_str(), events[2].step), ("_hparams_/session_start_info", 0));
    let found = hparams(2).start.unwrap().hparams;
    let kind = |name: &str| found[name].kind.clone().unwrap();
    assert_eq!(kind("hidden"), HparamKind::Number(12.0));
    assert_eq!(kind("model"), HparamKind::Text("sage".into()));
    assert_eq!(kind("cache"), HparamKind::Text("fifo".into()));
    assert!(!found.contains_key("trace") && !found.contains_key("patience"), "{:?}", found.keys());
    assert_eq!((value(4).tag.as_str(), value(4).simple_value, events[4].step), ("test/score", Some(0.5), 1));
    assert_eq!(value(5).tag, "_hparams_/session_end_info");
    assert_eq!(hparams(5).end.unwrap().status, HparamsEnd::SUCCESS);
    // the wire has the numbers of the fields of plugin_data.proto and struct.proto
    let data = value(2).metadata.unwrap().plugin_data.unwrap().content;
    let start = fields(&field(&fields(&data), 3));
    let entry = start.iter().find(|(n, entry)| *n == 1 && field(&fields(entry), 1) == b"hidden").unwrap();
    let number = field(&fields(&field(&fields(&entry.1), 2)), 2);
    assert_eq!(f64::from_le_bytes(number.try_into().unwrap()), 12.0);
}
