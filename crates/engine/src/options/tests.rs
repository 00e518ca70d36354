//! Tests of option values and files.

use std::{io::Write, path::Path};

use graphmill_core::options::{Kind, Values};
use graphmill_data::typed::TypedBuilder;
use graphmill_nn::layer::MixHopOptions;

use super::*;
use crate::{Result, config::Fanout};

fn read(text: &str) -> Result<TrainConfig> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let mut config = TrainConfig::default();
    config.read_file(file.path()).map(|_| config)
}

#[test]
fn written_options_read_back() {
    let mut config =
        TrainConfig { seed: u64::MAX, fanout: Fanout(vec![-1, 5]), lr: 1e-4, ..TrainConfig::default() };
    config.dataset = "a \"quoted\" \\ path".into();
    assert_eq!(read(&config.to_toml()).unwrap(), config);
    assert_eq!(config.to_json()["fanout"], serde_json::json!([-1, 5]));
}

#[test]
fn files_accept_flags_spelling_and_refuse_unknown_options() {
    let config = read("batch-size = 7\nfanout = \"3,4\"\ninput_layer = true\n").unwrap();
    assert_eq!((config.batch_size, config.fanout.0, config.input_layer), (7, vec![3, 4], true));
    assert!(
        read("hiden = 3").unwrap_err().to_string().contains("hiden: no such option; did you mean 'hidden'?")
    );
    assert!(read("hidden = \"wide\"").unwrap_err().to_string().contains("'wide' is not a whole number"));
    assert!(read("hidden = -3").unwrap_err().to_string().contains("'-3' is not a whole number"));
    assert!(read("lr = 0.1\nhidden = [").unwrap_err().to_string().contains("line 2"));
}

#[test]
fn earlier_names_of_options_and_values_are_read_as_the_present_ones() {
    let earlier = read("select = \"loss\"\nwalks = 3\nhot-by = \"asked\"\nqueue = 2\n").unwrap();
    let present =
        read("select_by = \"loss\"\nnum_walks = 3\nhot_metric = \"requests\"\nqueue_depth = 2\n").unwrap();
    assert_eq!(earlier, present);
    assert_ne!(present, TrainConfig::default());
    let twice = read("walks = 3\nnum_walks = 4\n").unwrap_err().to_string();
    assert!(twice.contains("sets num_walks twice"), "{twice}");
    let former: Vec<String> = keys().iter().flat_map(|key| key.former().to_vec()).collect();
    assert_eq!(former.len(), 12, "{former:?}");
    assert!(former.iter().all(|name| keys().iter().all(|key| key.name != name)), "{former:?}");
}

#[test]
fn every_recipe_reads_and_passes_checks() {
    // models of types need a dataset in a directory
    let links = tempfile::tempdir().unwrap();
    let mut builder = TypedBuilder::new("links");
    builder.node_type("node", 4);
    builder.edge_type("node", "to", "node").edges(vec![0, 1, 2], vec![1, 2, 3]);
    builder.build().unwrap().save(links.path().join("links")).unwrap();
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut read = 0;
    for entry in std::fs::read_dir(recipes).unwrap() {
        let path = entry.unwrap().path();
        let is_recipe = path.extension().is_some_and(|of| of == "toml");
        if is_recipe && path.file_name().is_some_and(|name| name != "accuracy.toml") {
            let mut config = TrainConfig::default();
            let given = config.read_file(&path).unwrap();
            if graphmill_nn::typed::TABLE.get(&config.model).is_some() {
                config.dataset = links.path().join("links").display().to_string();
            }
            config.derive_options(&given).unwrap();
            let checked = config.check().and_then(|()| config.refuse_unused(&given));
            checked.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            read += 1;
        }
    }
    assert!(read > 10);
}

#[test]
fn layers_and_fanout_are_derived_from_each_other() {
    let mut config = TrainConfig { layers: 3, ..TrainConfig::default() };
    config.derive_options(&["layers"]).unwrap();
    assert_eq!(config.fanout.0, [15, 10, 10]);
    let mut config = TrainConfig { fanout: Fanout(vec![5]), ..TrainConfig::default() };
    config.derive_options(&["fanout"]).unwrap();
    assert_eq!(config.layers, 1);
    let mut config = TrainConfig { fanout: Fanout(vec![5]), layers: 4, ..TrainConfig::default() };
    assert!(config.derive_options(&["fanout", "layers"]).is_err());
}

#[test]
fn the_devices_choose_the_strategy_and_not_the_reuse() {
    for (devices, expected) in [
        ("cpu", "pipelined"),
        ("cuda:0", "pipelined"),
        ("virtual:1", "time-sharing"),
        ("virtual:2", "factored"),
        ("cuda:0,1", "factored"),
    ] {
        let mut config = TrainConfig {
            strategy: "auto".into(),
            reuse: "layered".into(),
            devices: devices.parse().unwrap(),
            ..TrainConfig::default()
        };
        config.refuse_unused(&["strategy", "reuse"]).unwrap();
        config.derive_options(&[]).unwrap();
        assert_eq!((&*config.strategy, &*config.reuse), (expected, "layered"), "{devices}");
    }
}

#[test]
fn layers_of_several_hops_take_a_fanout_per_hop() {
    let base = TrainConfig { model: "mixhop".into(), ..TrainConfig::default() };
    let mut config = base.clone();
    config.derive_options(&["model"]).unwrap();
    assert_eq!((config.layers, config.fanout.0.as_slice()), (2, &[15, 10, 10, 10][..]));
    let mut config = TrainConfig { fanout: Fanout(vec![5, 4, 3]), ..base.clone() }
        .with(|mixhop: &mut MixHopOptions| mixhop.hops = 3);
    config.derive_options(&["model", "hops", "fanout"]).unwrap();
    config.check().unwrap();
    assert_eq!(config.layers, 1);
    let mut config = TrainConfig { fanout: Fanout(vec![5, 4, 3]), ..base };
    let error = config.derive_options(&["model", "fanout"]).unwrap_err().to_string();
    assert!(error.contains("--fanout 5,4,3 has 3 hops"), "{error}");
    assert!(error.contains("2 hops per layer, as --hops says"), "{error}");
    assert!(config.with(|mixhop: &mut MixHopOptions| mixhop.hops = 0).check().is_err());
}

#[test]
fn invalid_command_line_values_name_their_flag() {
    let fault = |name: &str, word: &str| {
        let values = Values::from_iter([(name.to_string(), word.into())]);
        let fault = TrainConfig::default().set(&values).unwrap_err();
        by_flag(&fault)
    };
    assert_eq!(fault("fused", "maybe"), "--fused maybe: auto, on or off");
    assert_eq!(fault("batch_size", "x"), "--batch-size: 'x' is not a whole number from 0");
    assert!(fault("placement", "heap").starts_with("--placement heap: not a placement; use shard"));
    assert!(fault("devices", "cuda:1,1").starts_with("--devices cuda:1,1: device 1 is named twice"));
    assert!(fault("devices", "virtual:0").contains("unknown device 'virtual:0'; known: cpu, virtual:N"));
}

#[test]
fn misspelled_choices_suggest_the_nearest_name() {
    let mut tried = 0;
    for key in keys() {
        let names = match (key.kind(), key.name) {
            (Kind::Choice(names), _) => names.to_vec(),
            (_, "loss") => key.choices().unwrap(),
            (_, "placement") => vec!["replicate", "shard"],
            (_, "allocation") => vec!["profiled"],
            (_, "hot_split") => vec!["timed"],
            _ => continue,
        };
        tried += 1;
        for name in names {
            let mut config = TrainConfig::default();
            let word = format!("{name}{}", &name[name.len() - 1..]);
            let message = match key.parse(&mut config, &word) {
                Err(message) => message,
                Ok(()) => config.check().unwrap_err().to_string(),
            };
            assert!(message.contains(&format!("; did you mean '{name}'?")), "{}: {message}", key.name);
        }
    }
    assert!(tried > 15, "{tried} options");
    let message = read("norm = \"bach\"").unwrap_err().to_string();
    assert!(message.contains("'bach': auto, none, batch, layer or l2; did you mean 'batch'?"), "{message}");
}

#[test]
fn values_out_of_range_name_their_flag() {
    let bad = |change: fn(&mut TrainConfig)| {
        let mut config = TrainConfig::default();
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert!(bad(|c| c.dropout = 1.0).starts_with("--dropout 1"));
    assert!(bad(|c| c.hidden = 0).starts_with("--hidden 0"));
    assert!(bad(|c| c.lr = -1.0).starts_with("--lr -1"));
    let read = |line| read(line).unwrap_err().to_string();
    assert!(read("fused = \"maybe\"").contains("fused: 'maybe': auto, on or off"));
    assert!(read("sparse = \"maybe\"").contains("sparse: 'maybe': auto, on or off"));
    assert!(read("precision = \"f16\"").contains("f32, tf32 or bf16"));
    assert!(read("feature_precision = \"f8\"").contains("auto, f32, f16 or bf16"));
    assert!(TrainConfig::default().check().is_ok());
}
