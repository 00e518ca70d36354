use std::fs;

use graphmill_core::{FeatureData, Features, Graph, Labels, SparseRows, Split};
use half::f16;

use super::{
    names::{INDICES, LABELS},
    read::Stored,
    *,
};
use crate::checksum;

fn small() -> Dataset {
    Dataset {
        graph: Graph::new(vec![0, 0, 1].into(), vec![0].into()).unwrap(),
        features: Features::f32(2, vec![1.0, 2.0, 3.0, 4.0]),
        labels: Labels::Single { class: vec![0, 0].into(), classes: 1 },
        ..Dataset::default()
    }
}

#[test]
fn large_feature_files_verify_header_only() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    small().save(&dir).unwrap();
    let damage = |name: &str, at: usize| {
        let good = fs::read(dir.join(name)).unwrap();
        let mut bad = good.clone();
        let at = bad.len() - at;
        bad[at] ^= 1;
        fs::write(dir.join(name), bad).unwrap();
        let opens = |verify| open(&dir, verify).is_ok();
        let outcome = (opens(Verify::FirstRead), opens(Verify::All));
        fs::write(dir.join(name), good).unwrap();
        outcome
    };
    assert_eq!(damage(FEATURES, 1), (true, false));
    assert_eq!(damage(FEATURES, 16 + 2), (false, false), "the header");
    assert_eq!(damage(INDICES, 1), (false, false));
    assert_eq!(damage(LABELS, 1), (false, false));
}

/// The checksum of a dataset is the same in memory and in a directory, and differs after any
/// change.
#[test]
fn identity_is_independent_of_location_and_changes_with_content() {
    let root = tempfile::tempdir().unwrap();
    let plain = small();
    let half = Features { dim: 1, data: FeatureData::F16(vec![f16::ONE, f16::ZERO].into()) };
    let sparse = Features::csr(SparseRows::from_dense(2, &[0.0, 2.0, 0.0, 4.0]).unwrap());
    let weighted = plain.graph.clone().with_edge_weight(vec![0.5].into()).unwrap();
    let several = Labels::Multi { member: vec![1, 0, 0, 1].into(), classes: 2 };
    let split = Split { train: vec![1].into(), ..Split::default() };
    let all = [
        Dataset { features: half, ..plain.clone() },
        Dataset { features: sparse, ..plain.clone() },
        Dataset { features: Features::f32(2, vec![1.0, 2.0, 3.0, 5.0]), ..plain.clone() },
        Dataset { graph: weighted, ..plain.clone() },
        Dataset { labels: several, ..plain.clone() },
        Dataset { split, ..plain.clone() },
        Dataset { metric: Some("f1-micro".into()), ..plain.clone() },
        Dataset { original_ids: Some(vec![1, 0].into()), ..plain.clone() },
        Dataset { name: "other".into(), ..plain.clone() },
        Dataset::default(),
        plain,
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (i, data) in all.iter().enumerate() {
        let dir = root.path().join(i.to_string());
        data.save(&dir).unwrap();
        let opened = Dataset::open(&dir).unwrap();
        let identity = data.identity().unwrap();
        assert_eq!(Some(&identity), opened.checksum.as_ref(), "dataset {i}");
        assert_eq!(opened.identity().unwrap(), identity);
        assert!(seen.insert(identity), "dataset {i} has the identity of another");
    }
}

#[test]
fn the_first_bad_value_is_found_in_any_chunk() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    // Several chunks of the checksum.
    let nodes = checksum::CHUNK / 2;
    let values: Vec<f32> = (0..nodes).map(|i| i as f32).collect();
    let data = Dataset {
        graph: Graph::new(vec![0; nodes + 1].into(), Vec::new().into()).unwrap(),
        features: Features::f32(1, values.clone()),
        labels: Labels::Single { class: vec![0; nodes].into(), classes: 1 },
        ..Dataset::default()
    };
    data.save(&dir).unwrap();
    let stored = Stored::new(&dir, Verify::All).unwrap();
    for bad in [0, 7, checksum::CHUNK / 4 - 33, checksum::CHUNK / 4 - 32, values.len() - 1] {
        let (data, first) =
            stored.files().scan::<f32>(FEATURES, &[values.len(), 1], |x| *x >= bad as f32).unwrap();
        assert_eq!((first, data.len()), (Some(bad), values.len()));
    }
    assert_eq!(stored.files().scan::<f32>(FEATURES, &[values.len(), 1], |_| false).unwrap().1, None);
}
