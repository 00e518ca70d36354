//! Imports of typed graphs, links and events by the command: datasets, reports and wrong options.

use crate::common::Sandbox;

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("kg/train.txt", "a\tr\tb\nb\ts\tb\na\tr\tc\n");
    sandbox.write("kg/test.txt", "d\tr\ta\n");
    sandbox
}

#[test]
fn typed_sources_become_datasets_of_format_2() {
    let sandbox = sandbox();
    let text = sandbox.ok("import triples kg data --add-reverses");
    assert!(text.contains("kg: 4 nodes of 1 type, 5 edges of 3 types, 2 tasks"), "{text}");
    assert!(text.contains("entities that only test names: 1"), "{text}");
    let info = sandbox.ok("info data");
    assert!(info.contains("entity:rev_r:entity"), "{info}");
    let document = sandbox.ok_json("import triples kg other");
    assert_eq!((&document["nodes"], &document["edges"]), (&4.into(), &3.into()));
    assert_eq!(document["report"]["edges"]["entity:s:entity"]["self_loops_kept"], 1);
    sandbox.ok("import triples kg small --add-reverses --memory 64M");
    assert!(sandbox.read("data/graphmill.json") == sandbox.read("small/graphmill.json"));
    // A killed import leaves its directory, which the next one replaces.
    sandbox
        .write("data2.importing/work.json", "{\"format\":\"graphmill-scratch-1\",\"work\":\"triples 1 2\"}");
    sandbox.write("data2.importing/scratch-edges-0.bin", "half");
    sandbox.ok("import triples kg data2 --add-reverses");
    assert!(!sandbox.path("data2.importing").exists());
    assert!(sandbox.read("data/graphmill.json") == sandbox.read("data2/graphmill.json"));
    sandbox.ok("import triples kg data --force --no-self-loops --name known");
    assert!(sandbox.ok("info data").contains("known"));
}

#[test]
fn options_of_the_other_kind_of_formats_are_wrong_usage() {
    let sandbox = sandbox();
    let fails = |command: &str, status: i32, part: &str| {
        let outcome = sandbox.run(command);
        assert!(outcome.stderr.contains(part), "{command}: {}", outcome.stderr);
        assert_eq!(outcome.status, Some(status), "{command}");
    };
    let wrong = "--largest-component does not belong to the format 'triples'";
    fails("import triples kg data --largest-component", 2, wrong);
    fails("import triples kg data --no-literals", 2, "'no-literals' has no effect on the format 'triples'");
    let wrong = "--add-reverses does not belong to the format 'edges'";
    fails("import edges kg/train.txt data --add-reverses", 2, wrong);
    sandbox.write("kg/test.txt", "d\tr\nx\n");
    fails("import triples kg data", 1, "line 1: three fields expected");
    assert!(!sandbox.path("data").exists());
}
