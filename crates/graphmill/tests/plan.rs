//! `graphmill plan`: plans from a dataset and from a profile, promised fields, the paper's figures.

use crate::common::Sandbox;

#[test]
fn a_recorded_profile_repeats_the_plan() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let plan = sandbox
        .ok_json("plan data --hardware v100x8 --hidden 8 --fanout 3,3 --batch-size 200 --cache degree");
    let strategies = plan["strategies"].as_array().unwrap();
    let named = |reuse: &str| -> Vec<&str> {
        let rows = strategies.iter().filter(|row| row["reuse"] == reuse);
        rows.map(|row| row["name"].as_str().unwrap()).collect()
    };
    let names = ["sequential", "pipelined", "time-sharing", "factored"];
    assert_eq!((named("none"), named("layered")), (names.to_vec(), names.to_vec()));
    for row in strategies {
        assert!(row["epoch_seconds"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["samplers"].as_u64().unwrap() >= 1 && row["trainers"].is_u64(), "{row}");
        assert_eq!(row["cache_ratio"], 1.0, "this dataset fits on a device: {row}");
        assert!(row["bottleneck"].is_string(), "{row}");
    }
    let factored = strategies.iter().find(|row| row["name"] == "factored").unwrap();
    assert_eq!(factored["samplers"].as_u64().unwrap() + factored["trainers"].as_u64().unwrap(), 8);
    assert!(names.contains(&plan["recommended"].as_str().unwrap()));
    assert_eq!(plan["profile"]["batches"], 8);

    // the profile alone gives the same plan
    sandbox.write("profile.json", plan["profile"].to_string());
    let repeated = sandbox.ok_json("plan --profile profile.json --hardware v100x8");
    assert_eq!((&repeated["strategies"], &repeated["profile"]), (&plan["strategies"], &plan["profile"]));
    let best = &plan["recommendation"];
    assert_eq!(best["strategy"], plan["recommended"]);
    let command = best["command"].as_str().unwrap();
    assert!(command.starts_with("graphmill train data --strategy "), "{command}");
    assert!(command.contains(" --hidden=8 --fanout=3,3") || command.contains("--hidden=8"), "{command}");
    assert!(command.contains(&format!(" --reuse {}", best["reuse"].as_str().unwrap())), "{command}");
    let one = sandbox.ok_json(
        "plan data --hardware v100x8 --hidden 8 --fanout 3,3 --batch-size 200 --cache degree --reuse none",
    );
    assert_eq!(one["strategies"].as_array().unwrap().len(), 4, "{one}");
    assert!(one["profile"].get("layered").is_none() && plan["profile"]["layered"].is_object());
    sandbox.write(
        "small.toml",
        "devices = { count = 2, memory = '64K', speed = 1.0 }\nlink = { bandwidth = 1e9 }\n\
         host = { cores = 2, memory = '1G' }\n",
    );
    let text = sandbox.ok("plan --profile profile.json --hardware small.toml");
    assert!(text.starts_with("small: 2 devices of"), "{text}");
    assert!(text.contains("factored              does not fit: a Trainer has"), "{text}");
    assert!(text.contains("nothing fits this machine"), "{text}");
}

#[test]
fn the_papers_figures_are_predicted_with_their_errors() {
    let sandbox = Sandbox::new();
    let report = sandbox.ok_json("plan --paper fgnn");
    assert_eq!(report["cells"].as_array().unwrap().len(), 12);
    assert!(report["cells"][2]["testbed"]["error"].as_f64().unwrap().abs() < 0.15);
    let text = sandbox.ok("plan --paper fgnn");
    assert!(text.contains("the formula gives 8 of 12") && text.contains("error, in the mean"), "{text}");
}

#[test]
fn the_recommended_command_runs() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.write(
        "shared.toml",
        "devices = { count = 2, memory = '1G', speed = 0.5, shared = true }\nlink = { bandwidth = 1e9 }\n\
         host = { cores = 2, memory = '4G' }\n",
    );
    let plan = sandbox.ok_json(
        "plan data --hardware shared.toml --hidden 8 --fanout 3,3 --batch-size 200 --num-samplers 1 \
         --device-counts 1,2",
    );
    let counts: Vec<_> = plan["sweep"].as_array().unwrap().iter().map(|row| row["devices"].clone()).collect();
    assert_eq!(counts, [1, 2]);
    let command = plan["recommendation"]["command"].as_str().unwrap();
    let train = command.strip_prefix("graphmill ").unwrap();
    let run = sandbox.ok_json(&format!("{train} --epochs 1 --out run"));
    assert!(run.is_object(), "{command}");
}

#[test]
fn several_types_are_planned_by_the_strategies_that_train_them() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed papers --nodes 1200 --classes 4 --feature-dim 8");
    sandbox.write(
        "cores.toml",
        "devices = { count = 1, memory = '1G', speed = 1.0, shared = true }\nlink = { bandwidth = 1e9 }\n\
         host = { cores = 2, memory = '4G' }\n",
    );
    let options = "--hidden 8 --fanout 4,2 --batch-size 64 --model rgcn --bases 2 --task area";
    let plan = sandbox.ok_json(&format!("plan papers --hardware cores.toml {options}"));
    let strategies = plan["strategies"].as_array().unwrap();
    let names: Vec<&str> = strategies.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sequential", "pipelined", "time-sharing", "factored"]);
    assert!(strategies.iter().all(|row| row["epoch_seconds"].as_f64().unwrap() > 0.0), "{plan}");
    let types = plan["profile"]["types"].as_array().unwrap();
    let bytes: Vec<f64> = types.iter().map(|of| of["row_bytes"].as_f64().unwrap()).collect();
    assert_eq!(bytes, [32.0, 32.0, 0.0, 32.0], "topics have learned rows");
    assert!(types[0]["nodes"].as_f64().unwrap() >= 64.0, "{types:?}");
    assert!(plan["profile"]["hit_rates"].as_array().unwrap().len() > 2);

    let command = plan["recommendation"]["command"].as_str().unwrap();
    assert!(command.contains("--bases=2") && command.contains("--task=area"), "{command}");
    let train = command.strip_prefix("graphmill ").unwrap();
    sandbox.ok(&format!("{train} --epochs 1 --out run"));
    sandbox.write("profile.json", plan["profile"].to_string());
    let repeated = sandbox.ok_json("plan --profile profile.json --hardware cores.toml");
    assert_eq!(repeated["strategies"], plan["strategies"]);
    let text = sandbox.ok(&format!("plan papers --hardware cores.toml {options}"));
    assert!(text.contains("topic: ") && text.contains("learned rows of 32 bytes"), "{text}");
    // one NVIDIA device trains
    let on_nvidia = sandbox.ok_json("plan --profile profile.json --hardware v100x8");
    let fields = |field: &str| -> Vec<String> {
        let rows = on_nvidia[field].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(fields("strategies"), ["sequential", "pipelined"]);
    assert_eq!(fields("not_planned"), ["factored", "time-sharing"]);
    let late = "plan --profile profile.json --hardware cores.toml --updates asynchronous --staleness 2";
    assert_eq!(sandbox.ok_json(late)["strategies"].as_array().unwrap().len(), 4);
    for (args, part) in [
        ("plan papers --hardware cores.toml --switching off", "a device that samples does not train"),
        ("plan --profile profile.json --hardware cores.toml --switching off", "on several types"),
        ("plan papers --hardware cores.toml --staleness 2", "--staleness 2: "),
        ("plan papers --hardware cores.toml --task price", "known: area"),
    ] {
        let refused = sandbox.run(args);
        assert!(refused.status == Some(2) && refused.stderr.contains(part), "{args}: {}", refused.stderr);
    }
}

#[test]
fn streams_of_events_are_planned_for_this_machine() {
    let sandbox = Sandbox::new();
    let mut text = String::from("u,i,ts,label,idx\n");
    for e in 1..=400u32 {
        let user = 1 + (e * 7919 + e / 40) % 12;
        text += &format!("{user},{},{},0,{e}\n", 13 + (user * 3 + e / 100) % 8, e * 60);
    }
    sandbox.write("ml_visits.csv", text);
    sandbox.ok("import events ml_visits.csv visits");
    let options = "--model tgn --hidden 8 --time-dim 4 --batch-size 50 --eval-nodes 30";
    let plan = sandbox.ok_json(&format!("plan visits {options} --threads 1"));
    assert_eq!((&plan["sizes"]["batches"], &plan["sizes"]["scored"]), (&6.into(), &30.into()), "{plan}");
    let rows = plan["threads"].as_array().unwrap();
    assert!(rows.len() == 1 && rows[0]["epoch_seconds"].as_f64().unwrap() > 0.0, "{plan}");
    let command = plan["recommendation"]["command"].as_str().unwrap();
    let train = command.strip_prefix("graphmill ").unwrap();
    sandbox.ok(&format!("{train} --epochs 1 --out run"));
    let text = sandbox.ok(&format!("plan visits {options}"));
    assert!(text.contains("recommended: ") && text.contains("not predicted, because streams"), "{text}");
    sandbox.dataset("data");
    for (args, part) in [
        ("plan visits --model tgn --hardware laptop", "--hardware: streams of events train on the processor"),
        ("plan visits --model tgn --device-counts 1,2", "--device-counts: streams of events train on"),
        ("plan visits --model tgn --devices cuda:0", "--devices: streams of events train on"),
        ("plan visits --model tgn --reuse layered", "--reuse layered: --model tgn does not use it"),
        ("plan data --hardware laptop --eval-nodes 9", "--eval-nodes: only the plan of a stream"),
        ("plan data --model tgn", "have no times, and it learns these"),
    ] {
        let refused = sandbox.run(args);
        assert!(refused.status == Some(2) && refused.stderr.contains(part), "{args}: {}", refused.stderr);
    }
}

/// Hit rates, and the bytes of a minibatch from host memory, of each type with features.
#[test]
fn plans_of_several_types_agree_with_the_records_of_runs() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed papers --nodes 1200 --classes 4 --feature-dim 8");
    sandbox.write(
        "cores.toml",
        "devices = { count = 3, memory = '1G', speed = 0.3, shared = true }\nlink = { bandwidth = 1e9 }\n\
         host = { cores = 3, memory = '4G' }\n",
    );
    let options = "--hidden 8 --fanout 4,2 --batch-size 64 --cache-ratio 0.1";
    for (strategy, of_strategy) in [
        ("time-sharing", ""),
        ("factored", ""),
        ("factored", "--num-samplers 1"),
        ("factored", "--num-samplers 1 --placement private"),
    ] {
        let plan = sandbox.ok_json(&format!("plan papers --hardware cores.toml {options} {of_strategy}"));
        let row = plan["strategies"].as_array().unwrap().iter().find(|row| row["name"] == strategy).unwrap();
        let run = sandbox.ok_json(&format!(
            "train papers {options} --strategy {strategy} {of_strategy} --devices virtual:3 --epochs 1 \
             --out run"
        ));
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
        let epoch = &run["epochs"][0];
        let of_types = epoch["type_traffic"].as_array().unwrap();
        let planned = row["types"].as_array().unwrap();
        assert_eq!(planned.len(), of_types.len());
        let tiers = |of: &serde_json::Value, tiers: &[&str], what: &str| -> f64 {
            tiers.iter().map(|tier| of["traffic"][tier][what].as_f64().unwrap()).sum()
        };
        // the last batch may be short
        let part = |field: &str| plan["profile"][field].as_f64().unwrap();
        let batches = part("batches") - 1.0 + part("last_batch");
        let (mut served, mut requested) = (0.0, 0.0);
        for (planned, recorded) in planned.iter().zip(of_types) {
            assert_eq!(planned["name"], recorded["name"]);
            let of_plan = |field: &str| planned[field].as_f64().unwrap();
            let rows = tiers(recorded, &["device", "peer", "host"], "rows");
            let hits = tiers(recorded, &["device", "peer"], "rows");
            (served, requested) = (served + hits, requested + rows);
            // devices hold equal numbers of rows, which leaves out some of a small type
            let error = of_plan("hit_rate") - hits / rows.max(1.0);
            assert!(rows == 0.0 || error.abs() < 0.1, "{strategy}: {planned} {recorded}");
            let link = tiers(recorded, &["host"], "bytes") / batches;
            let all = tiers(recorded, &["device", "peer", "host"], "bytes") / batches;
            let most = 0.1 * all + 0.25 * link;
            assert!((of_plan("link_bytes") - link).abs() <= most, "{strategy}: {planned} {link} {all}");
        }
        let error = row["hit_rate"].as_f64().unwrap() - served / requested;
        assert!(error.abs() < 0.04, "{strategy} {of_strategy}: {row} {served} {requested}");
        let devices = epoch["devices"].as_array().unwrap();
        let trainers = devices.iter().filter(|device| device["role"] != "sampler").count() as u64;
        assert_eq!(row["trainers"], trainers, "{strategy} {of_strategy}");
    }
}

#[test]
fn machines_cache_rows_of_other_machines_of_several_types() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed papers --nodes 1200 --classes 4 --feature-dim 8");
    sandbox.ok("partition papers parts --parts 2 --method hash");
    let run = "plan papers --partition parts --hidden 8 --fanout 4,2 --batch-size 64 --threads 2";
    let plan = |options: &str| sandbox.ok_json(&format!("{run} {options}"));
    let number = |plan: &serde_json::Value, path: &str| plan.pointer(path).unwrap().as_f64().unwrap();
    let without = plan("");
    assert_eq!(without["cache"], serde_json::json!([0.0, 0.0]));
    let some = plan("--cache-ratio 0.2");
    assert!((number(&some, "/cache/0") - 0.2).abs() < 0.01, "{some}");
    assert!(number(&some, "/cache/1") > 0.2 && number(&some, "/cache/1") < 1.0, "{some}");
    // a cache of all rows of the others leaves the learned rows
    let all = plan("--cache-ratio 0.6 --cache degree");
    assert!((number(&all, "/cache/1") - 1.0).abs() < 1e-9, "{all}");
    let rows = |plan: &serde_json::Value| number(plan, "/wire/rows");
    assert!(rows(&all) < rows(&some) && rows(&some) < rows(&without), "{all} {some} {without}");
    assert!(number(&some, "/memory_bytes") > number(&without, "/memory_bytes"));
    for options in
        ["--devices virtual:2 --cache-ratio 0.1", "--cache lru --cache-ratio 0.2", "--host-budget 1M"]
    {
        let of_kind = plan(options);
        assert!(number(&of_kind, "/cache/1") > 0.0, "{options}: {of_kind}");
        assert!(rows(&of_kind) < rows(&without), "{options}: {of_kind}");
    }
    for (options, part) in [
        ("--devices virtual:2", "add --cache-ratio, 0 for no cache"),
        ("--devices cuda:0 --cache-ratio 0.1", "NVIDIA devices"),
        ("--cache presc-online:1 --cache-ratio 0.1", "use presc:2"),
        ("--cache degree", "--cache-ratio"),
        ("--host-budget 100", "the own rows of a machine take"),
    ] {
        let refused = sandbox.run(&format!("{run} {options}"));
        assert!(refused.status == Some(2) && refused.stderr.contains(part), "{options}: {}", refused.stderr);
    }
}

#[test]
fn machines_cache_rows_of_the_others() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("partition data parts --parts 2 --method hash --fanout 3,3 --batch-size 200");
    let run = "plan data --partition parts --hidden 8 --fanout 3,3 --batch-size 200";
    let plan = |options: &str| sandbox.ok_json(&format!("{run} {options}"));
    let without = plan("");
    let names: Vec<&str> =
        without["strategies"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sequential", "pipelined", "time-sharing", "factored"]);
    let cached = plan("--cache degree --cache-ratio 0.2");
    let rows = |plan: &serde_json::Value| plan["wire"]["rows"].as_f64().unwrap();
    assert!(cached["cache"][1].as_f64().unwrap() > 0.0 && without["cache"][1] == 0.0, "{cached}");
    assert!(rows(&cached) < rows(&without), "{cached}");
    assert!(cached["memory_bytes"].as_f64() > without["memory_bytes"].as_f64());
    let single = plan("--threads 1 --switching off");
    assert_eq!(single["refused"][0]["name"], "factored", "{single}");
    let text = sandbox.ok(&format!("{run} --threads 1 --switching off --cache-ratio 0.2"));
    assert!(text.contains("its cache: 20.0 % of all rows") && text.contains("not possible: "), "{text}");
    for (options, part) in [
        ("--reuse layered", "do not count the rows that machines exchange for reuse"),
        ("--cache degree", "--cache-ratio"),
        ("--host-budget 100", "the own rows of a machine take"),
    ] {
        let refused = sandbox.run(&format!("{run} {options}"));
        assert!(refused.status == Some(2) && refused.stderr.contains(part), "{options}: {}", refused.stderr);
    }
}

#[test]
fn graph_stores_hold_the_parts_of_machines_that_train() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("partition data parts --parts 3 --method hash --fanout 3,3 --batch-size 200");
    let run = "plan data --partition parts --hidden 8 --fanout 3,3 --batch-size 200";
    let plan = |options: &str| sandbox.ok_json(&format!("{run} {options}"));
    let number = |plan: &serde_json::Value, path: &str| plan.pointer(path).unwrap().as_f64().unwrap();
    let (all, apart) = (plan(""), plan("--machines 5 --graph-stores 2"));
    assert_eq!((&all["machines"], &all["parts"]), (&3.into(), &3.into()));
    assert_eq!((&apart["machines"], &apart["stores"]["count"]), (&5.into(), &2.into()), "{apart}");
    assert!(all.get("stores").is_none() && number(&apart, "/stores/work") > 0.0);
    assert!(number(&apart, "/stores/draws") > 0.0 && number(&apart, "/stores/reads") > 0.0);
    // machines that train own no rows, and a store holds no cache
    assert!(number(&apart, "/wire/rows") > number(&all, "/wire/rows"));
    let [trains, stores] = ["/memory_bytes", "/store_memory_bytes"].map(|path| number(&apart, path));
    assert!(trains < number(&all, "/memory_bytes") && stores > number(&all, "/memory_bytes"), "{apart}");
    for epoch in apart["strategies"].as_array().unwrap() {
        assert_eq!((&epoch["samplers"], &epoch["trainers"]), (&2.into(), &3.into()), "{epoch}");
        assert!(epoch["epoch_seconds"].as_f64().unwrap() > 0.0, "{epoch}");
    }
    let cached = plan("--machines 5 --graph-stores 2 --cache degree --cache-ratio 0.2");
    assert!(number(&cached, "/wire/rows") < number(&apart, "/wire/rows"), "{cached}");
    // fewer machines than parts
    let two = plan("--machines 2");
    assert_eq!((&two["machines"], &two["parts"]), (&2.into(), &3.into()), "{two}");
    let text = sandbox.ok(&format!("{run} --machines 5 --graph-stores 2"));
    assert!(
        text.contains("5 machines: 3 train, 2 graph stores") && text.contains("work of each store"),
        "{text}"
    );
    for (args, part) in [
        (format!("{run} --graph-stores 3"), "at least one rank must train"),
        (format!("{run} --machines 9 --graph-stores 4"), "4 graph stores share 3 parts"),
        (format!("{run} --machines 4"), "4 ranks share 3 parts"),
        ("plan data --hardware laptop --graph-stores 1".into(), "is not partitioned"),
    ] {
        let refused = sandbox.run(&args);
        assert!(refused.status == Some(2) && refused.stderr.contains(part), "{args}: {}", refused.stderr);
    }
}

#[test]
fn machines_train_on_nvidia_devices_of_the_hardware() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("partition data parts --parts 2 --method hash --fanout 3,3 --batch-size 200");
    sandbox.write(
        "machine.toml",
        "devices = { count = 2, memory = '1G', speed = 1000.0 }\nlink = { bandwidth = 1e12 }\n\
         host = { cores = 2, memory = '1G' }",
    );
    let run = "plan data --partition parts --hidden 128 --fanout 3,3 --batch-size 200 --threads 2";
    let plan = |options: &str| sandbox.ok_json(&format!("{run} {options}"));
    let on_device = "--hardware machine.toml --devices cuda:0";
    let (on_cores, quick) = (plan(""), plan(&format!("{on_device} --cache-ratio 0")));
    assert_eq!((&quick["devices"], &quick["hardware"]), (&1.into(), &"machine".into()), "{quick}");
    assert!(on_cores.get("hardware").is_none());
    let train = |plan: &serde_json::Value| plan["share"][2].as_f64().unwrap();
    assert!(train(&quick) < 0.1 * train(&on_cores), "{quick} {on_cores}");
    let names = |plan: &serde_json::Value| -> Vec<String> {
        let rows = plan["strategies"].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(names(&quick), ["sequential", "pipelined", "time-sharing", "factored"]);
    // each device caches rows of all machines, so factored is predicted with a cache as well
    let cached =
        plan("--hardware machine.toml --devices cuda:0,1 --cache degree --cache-ratio 0.2 --graph-stores 1");
    assert_eq!((&cached["devices"], &cached["stores"]["count"]), (&2.into(), &1.into()), "{cached}");
    assert!((cached["cache"][0].as_f64().unwrap() - 0.2).abs() < 0.01, "{cached}");
    assert_eq!(names(&cached), names(&quick));
    let text = sandbox.ok(&format!("{run} {on_device} --cache-ratio 0"));
    assert!(text.contains("it trains on devices of machine"), "{text}");
    let three = "--hardware machine.toml --devices cuda:0,1,2 --cache-ratio 0";
    for (options, part) in [
        ("--devices cuda:0 --cache-ratio 0", "add --hardware NAME"),
        (on_device, "add --cache-ratio, 0 for no cache"),
        (three, "has 2 devices"),
        ("--hardware machine.toml", "add --devices cuda:0"),
    ] {
        let refused = sandbox.run(&format!("{run} {options}"));
        assert!(refused.status == Some(2) && refused.stderr.contains(part), "{options}: {}", refused.stderr);
    }
}

/// Typed runs have no graph stores, and a plan says so with the reason of the run.
#[test]
fn plans_and_runs_of_typed_parts_refuse_the_same_options() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed papers --nodes 1200 --classes 4 --feature-dim 8");
    sandbox.ok("partition papers parts --parts 3 --method hash");
    let reason = "each rank holds a part and trains on its nodes";
    for command in ["plan papers --partition parts --machines 3", "train papers --out run"] {
        let refused = sandbox.run(&format!("{command} --model rsage --graph-stores 1"));
        assert_eq!(refused.status, Some(2), "{command}: {}", refused.stderr);
        assert!(refused.stderr.contains(reason), "{command}: {}", refused.stderr);
    }
}

#[test]
fn simulated_devices_divide_the_cores_of_each_machine() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("partition data parts --parts 2 --method hash --fanout 3,3 --batch-size 200");
    let run = "plan data --partition parts --hidden 8 --fanout 3,3 --batch-size 200 --threads 2";
    let plan = |options: &str| sandbox.ok_json(&format!("{run} {options}"));
    let empty = plan("--devices virtual:3 --cache-ratio 0");
    assert_eq!((&empty["devices"], &plan("")["devices"]), (&3.into(), &2.into()));
    assert_eq!(empty["strategies"].as_array().unwrap().len(), 4, "{empty}");
    let cached = plan("--devices virtual:3 --cache degree --cache-ratio 0.1");
    // the devices pool their caches
    assert!((cached["cache"][0].as_f64().unwrap() - 0.3).abs() < 0.01, "{cached}");
    assert!(cached["wire"]["rows"].as_f64() < empty["wire"]["rows"].as_f64());
    assert_eq!(cached["refused"][0]["name"], "factored", "{cached}");
    for (args, part) in [
        (format!("{run} --devices virtual:2"), "add --cache-ratio, 0 for no cache"),
        (format!("{run} --devices virtual:2 --cache-ratio 0.1 --cache lru"), "use a hotness"),
        (format!("{run} --devices cuda:0 --cache-ratio 0"), "use virtual:N"),
        ("plan data --hardware laptop --devices virtual:2".into(), "use --device-counts"),
    ] {
        let refused = sandbox.run(&args);
        assert!(refused.status == Some(2) && refused.stderr.contains(part), "{args}: {}", refused.stderr);
    }
}
