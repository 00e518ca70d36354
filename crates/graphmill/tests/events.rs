//! Streams of events on the command line: import, training, scores, refusals.

mod common;

use common::Sandbox;

#[test]
fn a_stream_is_imported_trained_and_scored() {
    let sandbox = Sandbox::new();
    let mut text = String::from("u,i,ts,label,idx\n");
    for e in 1..=400u32 {
        let user = 1 + (e * 7919 + e / 40) % 12;
        text += &format!("{user},{},{},0,{e}\n", 13 + (user * 3 + e / 100) % 8, e * 60);
    }
    sandbox.write("ml_visits.csv", text);
    sandbox.ok("import events ml_visits.csv visits");
    let options = "--model tgn --hidden 8 --time-dim 4 --epochs 2 --lr 0.01 --batch-size 50";
    let summary = sandbox.ok_json(&format!("train visits {options} --out run"));
    let config = &summary["config"];
    assert_eq!((&config["fanout"], &config["time_draw"]), (&vec![10].into(), &"last".into()));
    assert_eq!(
        (&summary["test"]["metric"], &summary["dataset"]["test"]),
        (&"average-precision".into(), &60.into())
    );
    let scores = sandbox.ok_json("eval run");
    assert_eq!(scores["test"], summary["test"]["score"]);
    assert!(scores["parts"][1]["scores"]["auc"].is_number(), "{scores}");
    for (args, why) in [
        ("predict run --out rows.csv", "the run learned a stream of events (--model tgn)"),
        ("train visits --model tgn --order random", "events are learned in the order of their times"),
        ("train --model tgat", "import one with graphmill import events or temporal"),
    ] {
        let outcome = sandbox.run(args);
        assert!(outcome.status != Some(0) && outcome.stderr.contains(why), "{args}: {}", outcome.stderr);
    }
}
