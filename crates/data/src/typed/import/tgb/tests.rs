use std::{collections::HashMap, fs, path::Path};

use crate::{
    dataset::import::pickle::testing::{keyed, pickle},
    typed::{
        CandidateLists, Negatives, Seeds, TypedDataset, Verify,
        import::{TypedImported, TypedOptions, import},
    },
};

type Entry<'e> = ([i64; 3], &'e [i64]);

/// Ten visits of three users to three items, whose times are 0, 10, ..., 90.5 and one label.
const WIKI: &str = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n\
    0,0,0.0,0,0.5,1\n1,1,10.0,0,0,2\n2,2,20.0,1,1,3\n0,1,30.0,0,0,4\n1,0,40.0,0,0,5\n\
    2,1,50.0,0,0,6\n0,2,60.0,0,0,7\n1,2,70.0,0,0,8\n2,0,80.0,0,0,9\n0,0,90.5,0,0,10\n";

/// Numbers of TGB: items follow the three users, and the last one has no event.
const VALID: [Entry; 1] = [([1, 5, 70], &[3, 6])];
const TEST: [Entry; 3] = [([2, 3, 80], &[4, 5, 6]), ([0, 3, 90], &[5]), ([9, 9, 9], &[3])];

fn run(dir: &Path) -> TypedImported {
    import("tgb", dir, &TypedOptions::default()).unwrap()
}

fn fault(dir: &Path) -> String {
    import("tgb", dir, &TypedOptions::default()).unwrap_err().to_string()
}

/// Directory of a set with negatives.
fn set(name: &str, version: &str, list: &str, valid: &[Entry], test: &[Entry]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = |part: &str| dir.path().join(format!("{name}_{part}"));
    fs::write(path(&format!("edgelist{version}.csv")), list).unwrap();
    fs::write(path(&format!("val_ns{version}.pkl")), keyed(valid)).unwrap();
    fs::write(path(&format!("test_ns{version}.pkl")), keyed(test)).unwrap();
    dir
}

fn keys(data: &TypedDataset, node_type: usize) -> Vec<String> {
    let keys = data.nodes[node_type].keys.as_ref().unwrap();
    (0..data.nodes[node_type].count).map(|v| keys.get(v).to_string()).collect()
}

/// Source, destination and time of the events of each part.
fn events(data: &TypedDataset) -> [Vec<(u32, u32, i64)>; 3] {
    let (task, Some(Seeds::Pairs(pairs))) = (&data.tasks[0], &data.tasks[0].seeds) else { panic!("pairs") };
    let time = task.time.as_ref().unwrap();
    let event = |&row: &u32| (pairs[2 * row as usize], pairs[2 * row as usize + 1], time[row as usize]);
    task.split.parts().map(|(_, rows)| rows.iter().map(event).collect())
}

/// Candidates of the events of a part.
fn candidates(data: &TypedDataset, part: usize) -> Vec<Vec<u32>> {
    let count = data.tasks[0].split.parts()[part].1.len();
    let lists = match data.tasks[0].negatives[part].as_ref().unwrap() {
        Negatives::Destinations { each, nodes } => CandidateLists::equal(count, *each, nodes.clone()),
        Negatives::Lists(lists) => lists.clone(),
        _ => panic!("lists of destinations"),
    };
    (0..count).map(|i| lists.list(i).to_vec()).collect()
}

#[test]
fn logs_have_the_split_the_numbers_and_the_negatives_of_tgb() {
    let dir = set("tgbl-wiki", "_v2", WIKI, &VALID, &TEST);
    fs::write(dir.path().join("tgbl-wiki_edgelist.csv"), "an older version").unwrap();
    fs::write(dir.path().join("ml_tgbl-wiki.pkl"), "a file of TGB's loader").unwrap();
    let TypedImported { dataset: data, report } = run(dir.path());
    let names: Vec<&str> = data.nodes.iter().map(|nodes| &*nodes.name).collect();
    assert_eq!((&*data.name, names), ("tgbl-wiki", vec!["user", "item"]));
    // the items of negatives are nodes, too; 9 of an unused key is an item
    assert_eq!(
        (keys(&data, 0), keys(&data, 1)),
        (strings(&["0", "1", "2"]), strings(&["0", "1", "2", "3", "6"]))
    );
    // np.quantile of the times: 63 and 76.5
    let [train, valid, test] = events(&data);
    assert_eq!((train.len(), train[2], train[6]), (7, (2, 2, 20), (0, 2, 60)));
    assert_eq!((valid, test), (vec![(1, 2, 70)], vec![(2, 0, 80), (0, 0, 90)]));
    assert_eq!(
        (candidates(&data, 1), candidates(&data, 2)),
        (vec![vec![0, 3]], vec![vec![1, 2, 3], vec![2]])
    );
    let task = &data.tasks[0];
    assert!(matches!(
        task.negatives,
        [None, Some(Negatives::Destinations { each: 2, .. }), Some(Negatives::Lists(_))]
    ));
    assert_eq!((task.metric.as_deref(), data.tasks.len()), (Some("mrr"), 1));
    let edges = &data.edges[0];
    let mut row = [0.0; 2];
    let e = edges.time.as_ref().unwrap().iter().position(|&time| time == 20).unwrap();
    edges.features.as_ref().unwrap().copy_row(e, &mut row);
    assert_eq!(row, [1.0, 3.0]);
    let text = report.to_string();
    for part in [
        "times with fractions of a second, cut off as TGB does: 1",
        "negatives of events that are not in their part: 1",
        "column state_label",
        "tgbl-wiki_edgelist.csv",
        "ml_tgbl-wiki.pkl",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn a_saved_set_keeps_its_lists() {
    let dir = set("tgbl-wiki", "", WIKI, &VALID, &TEST);
    let data = run(dir.path()).dataset;
    let path = dir.path().join("saved");
    data.save(&path).unwrap();
    let again = crate::typed::open(&path, Verify::Once).unwrap();
    assert_eq!(candidates(&again, 1), candidates(&data, 1));
    assert_eq!(candidates(&again, 2), candidates(&data, 2));
    assert_eq!(again.identity().unwrap(), data.identity().unwrap());
}

#[test]
fn named_nodes_are_numbered_by_their_first_occurrence() {
    let list = "time,src,dst,weight\n1,0xb,0xa,8\n2,0xa,0xc,0\n3,0xc,0xb,1\n4,0xb,0xc,2\n\
        5,0xa,0xb,4\n6,0xc,0xb,1\n7,0xb,0xc,1\n";
    // 0xb is 0, 0xa is 1, and 0xc is 2; nodes that are sources alone would be candidates, too
    let dir = set("tgbl-coin", "_v2", list, &[([2, 0, 6], &[1, 2])], &[([0, 2, 7], &[0, 1])]);
    let TypedImported { dataset: data, report } = run(dir.path());
    assert_eq!(keys(&data, 0), ["0xb", "0xa", "0xc"]);
    // np.quantile of the times: 5.2 and 6.1
    let [train, valid, test] = events(&data);
    assert_eq!((train.len(), train[4], valid, test), (5, (1, 0, 5), vec![(2, 0, 6)], vec![(0, 2, 7)]));
    assert_eq!((candidates(&data, 1), candidates(&data, 2)), (vec![vec![1, 2]], vec![vec![0, 1]]));
    assert_eq!(report.notes, Vec::<String>::new());
    let features = data.edges[0].features.as_ref().unwrap();
    assert_eq!(features.names, ["log2_weight"]);
    let time = data.edges[0].time.as_ref().unwrap();
    let mut by_time = HashMap::new();
    for (e, &time) in time.iter().enumerate() {
        let mut row = [0.0];
        features.copy_row(e, &mut row);
        by_time.insert(time, row[0]);
    }
    assert_eq!([1, 2, 3, 4].map(|time| by_time[&time]), [3.0, 0.0, 0.0, 1.0]);
}

#[test]
fn integers_as_names_are_nodes_of_one_type() {
    // all sources are smaller than all destinations, and a source is a candidate
    let list = "ts,src,dst,num_words,score\n1,2,9,5000,1\n2,1,8,2500,-3\n3,2,8,0,0\n4,2,9,1,1\n";
    let dir = set("tgbl-comment", "", list, &[], &[([0, 1, 4], &[2, 3])]);
    let data = run(dir.path()).dataset;
    // 2 is 0, 9 is 1, 1 is 2 and 8 is 3; nodes are in the order of their keys
    assert_eq!((keys(&data, 0), data.nodes.len()), (strings(&["1", "2", "8", "9"]), 1));
    let [train, valid, test] = events(&data);
    assert_eq!((train.len(), valid, test), (3, vec![], vec![(1, 3, 4)]));
    assert_eq!(candidates(&data, 2), [[0, 2]]);
    let features = data.edges[0].features.as_ref().unwrap();
    let mut row = [0.0; 2];
    let first = data.edges[0].time.as_ref().unwrap().iter().position(|&time| time == 2).unwrap();
    features.copy_row(first, &mut row);
    assert_eq!(row, [0.5, -3.0]);
}

#[test]
fn flights_have_features_of_call_signs_and_airports() {
    let list = "timestamp,src,dst,callsign,typecode\n1,EDDF,KJFK,DLH4b,A320\n2,KJFK,LFPG,,TOOLONG12\n";
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tgbl-flight_edgelist_v2.csv"), list).unwrap();
    let rows = "airport_code,type,continent,iso_region,longitude,latitude\n\
        EDDF,large,EU,DE-HE,8.5,50\nNONE,small,AS,X,0,0\nKJFK,big,NA,US-NY,-73.5,40.5\n";
    fs::write(dir.path().join("airport_node_feat_v2.csv"), rows).unwrap();
    let TypedImported { dataset: data, report } = run(dir.path());
    let mut row = [0.0; 16];
    let table = data.edges[0].features.as_ref().unwrap();
    let first = data.edges[0].time.as_ref().unwrap().iter().position(|&time| time == 1).unwrap();
    table.copy_row(first, &mut row);
    let expected = [33., 41., 37., 4., 31., -1., -1., -1., 30., 3., 2., 0., -1., -1., -1., -1.];
    assert_eq!(row, expected);
    table.copy_row(1 - first, &mut row);
    assert_eq!(row, [-1.0; 16]);
    let table = data.nodes[0].features.as_ref().unwrap();
    let mut row = [0.0; 13];
    let kjfk = keys(&data, 0).iter().position(|key| key == "KJFK").unwrap();
    table.copy_row(kjfk, &mut row);
    assert_eq!(row, [0., 1., 0., 1., 50., 48., 10., 43., 54., -1., -1., -73.5, 40.5]);
    let text = report.to_string();
    assert!(text.contains("there is no tgbl-flight_val_ns_v2.pkl"), "{text}");
    assert!(text.contains("nodes without a row of features, which have zeros: 1"), "{text}");
    assert_eq!(data.tasks[0].metric.as_deref(), Some("average-precision"));
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    let coin = "time,src,dst,weight\n1,a,b,1\n2,b,c,1\n3,c,a,1\n4,a,c,1\n";
    let with = |list: &str, test: &[Entry]| set("tgbl-coin", "", list, &[([2, 0, 3], &[1])], test);
    let last: [Entry; 1] = [([0, 2, 4], &[1])];
    for (dir, why) in [
        (with(coin, &[([0, 1, 4], &[1])]), "1 of 1 events of 'test' have no negatives"),
        (with(coin, &[([0, 2, 4], &[3])]), "entry 0: 3 is not the number of a node"),
        (with("time,src\n", &last), "has 2 columns; 4 expected"),
        (with("time,src,dst,weight\n", &last), "there are no events"),
        (
            with("time,src,dst,weight\n2018-01-02,a,b,1\n1,a,b,-1\n1,a\n1,\"a\",b,1\n", &last),
            "line 2: the time",
        ),
        (set("tgbl-wiki", "", WIKI, &[([1, 5, 70], &[2])], &TEST), "2 is not the number of an item"),
        (set("tgbl-other", "", WIKI, &VALID, &TEST), "the set 'tgbl-other' is not known"),
        (set("tgbn-trade", "", WIKI, &[], &[]), "'tgbn-trade' is not imported: it predicts distributions"),
        (set("tkgl-wikidata_static", "", WIKI, &[], &[]), "events have relations"),
        (set("thgl-forum", "", WIKI, &[], &[]), "nodes and events have types"),
    ] {
        let message = fault(dir.path());
        assert!(message.contains(why), "{why}: {message}");
    }
    let dir = with("time,src,dst,weight\n2018-01-02,a,b,1\n1,a,b,-1\n1,a\n1,\"a\",b,1\n", &last);
    let message = fault(dir.path());
    for why in
        ["is a date", "the weight '-1'", "2 fields, but the header has 4", "quoted fields are not read"]
    {
        assert!(message.contains(why), "{why}: {message}");
    }
    let dir = with(coin, &last);
    fs::write(dir.path().join("tgbl-coin_test_ns.pkl"), pickle(b"cos\nsystem\nU\x04true\x85R")).unwrap();
    assert!(fault(dir.path()).contains("'os.system'"));
    fs::write(dir.path().join("tgbl-wiki_edgelist.csv"), WIKI).unwrap();
    assert!(fault(dir.path()).contains("another set beside"));
    assert!(fault(tempfile::tempdir().unwrap().path()).contains("there is no file tgbl-NAME_edgelist.csv"));
}

#[test]
fn damaged_negatives_are_errors_or_a_sound_dataset() {
    let dir = set("tgbl-wiki", "", WIKI, &VALID, &TEST);
    let path = dir.path().join("tgbl-wiki_val_ns.pkl");
    let good = keyed(&VALID);
    for byte in 0..good.len() {
        for flip in [1, 0x10, 0x80] {
            let mut bad = good.clone();
            bad[byte] ^= flip;
            fs::write(&path, &bad).unwrap();
            if let Ok(imported) = import("tgb", dir.path(), &TypedOptions::default()) {
                imported.dataset.validate().unwrap();
            }
        }
        fs::write(&path, &good[..byte]).unwrap();
        assert!(import("tgb", dir.path(), &TypedOptions::default()).is_err());
    }
}
