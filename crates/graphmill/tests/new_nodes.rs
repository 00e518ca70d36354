//! Predictions for new nodes of a dataset of several types: `predict --on`.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use graphmill_core::progress::Progress;
use graphmill_data::tables::Preprocessing;
use graphmill_engine::{
    saved::{Kind, SavedRun, on::NewTables},
    typed::SavedTypedRun,
};

use crate::common::Sandbox;

/// Number of accounts of [`bank`].
pub(crate) const ACCOUNTS: usize = 120;
const BRANCHES: usize = 10;
/// Accounts and branches from these numbers on are new.
pub(crate) const NEW: [usize; 2] = [100, 8];

const SCHEMA: &str = "
[[nodes]]
type = 'account'
files = '{}accounts.csv'
id = 'account_id'
label = 'segment'
foreign_keys = [{ column = 'branch_id', to = 'branch', type = 'belongs_to', reverse = 'has' }]

[[nodes]]
type = 'branch'
files = '{}branches.csv'
id = 'branch_id'

[[nodes]]
type = 'city'
files = 'cities.csv'
id = 'name'

[[edges]]
type = 'transfer'
files = '{}transfers.csv'
source = 'account'
destination = 'account'
src = 'from'
dst = 'to'
weight = 'amount'
time = 'at'
features = ['amount']
reverse = 'received'

[[edges]]
type = 'in'
files = '{}places.csv'
source = 'branch'
destination = 'city'
src = 'branch'
dst = 'city'
reverse = 'houses'
";

/// Writes the tables: whole, the known rows (`known-`) and the new rows (`new-`). Edges of new
/// nodes are new.
pub(crate) fn bank(sandbox: &Sandbox) {
    let rows = |file: &str, header: &str, rows: Vec<(bool, String)>| {
        for (prefix, is_in) in [("", [true, true]), ("known-", [true, false]), ("new-", [false, true])] {
            let mut text = format!("{header}\n");
            for (is_new, row) in &rows {
                if is_in[usize::from(*is_new)] {
                    writeln!(text, "{row}").unwrap();
                }
            }
            sandbox.write(&format!("{prefix}{file}"), text);
        }
    };
    let branch_of = |i: usize| if i < NEW[0] { i % NEW[1] } else { i % BRANCHES };
    let accounts = (0..ACCOUNTS).map(|i| {
        let branch = if i % 7 == 3 { String::new() } else { format!("b{}", branch_of(i)) };
        let segment = ["retail", "merchant", "mule"][i % 3];
        let age = 20 + 20 * (i % 3) + i % 9;
        (i >= NEW[0], format!("acc-{i:03},{},{age},{branch},{segment}", ["DE", "FR"][i / 3 % 2]))
    });
    rows("accounts.csv", "account_id,country,age,branch_id,segment", accounts.collect());
    let branches = (0..BRANCHES).map(|i| (i >= NEW[1], format!("b{i},{}", 5 * i * i)));
    rows("branches.csv", "branch_id,staff", branches.collect());
    sandbox.write("cities.csv", "name,people\nBerlin,37\nParis,21\nRome,28\n");
    let pairs = (0..ACCOUNTS).flat_map(|i| (1..4).map(move |k| (i, (i + 3 * k * (1 + i % 4)) % ACCOUNTS)));
    let transfers = pairs.map(|(i, j)| {
        let row = format!("acc-{i:03},acc-{j:03},{}.5,2024-02-{:02}", i % 40, 1 + j % 28);
        (i.max(j) >= NEW[0], row)
    });
    rows("transfers.csv", "from,to,amount,at", transfers.collect());
    let places = (0..BRANCHES).map(|i| (i >= NEW[1], format!("b{i},{}", ["Berlin", "Paris", "Rome"][i % 3])));
    rows("places.csv", "branch,city", places.collect());
    for (file, prefix) in [("whole.toml", ""), ("known.toml", "known-")] {
        sandbox.write(file, SCHEMA.replace("{}", prefix));
    }
}

/// Rows of a table by their key.
fn table(text: &str) -> HashMap<String, Vec<f32>> {
    let row = |line: &str| {
        let mut fields = line.split(',');
        let key = fields.next().unwrap().to_string();
        (key, fields.map(|field| field.parse().unwrap()).collect())
    };
    text.lines().skip(1).map(row).collect()
}

/// Options for the new accounts and branches of [`bank`].
pub(crate) const ON: &str = "--on new-accounts.csv --on branch=new-branches.csv \
                             --edges transfer=new-transfers.csv --edges branch__in__city=new-places.csv";

#[test]
fn new_nodes_get_the_scores_that_they_have_in_the_dataset() {
    let sandbox = Sandbox::new();
    bank(&sandbox);
    sandbox.ok("import tables bank known.toml");
    sandbox.ok("import tables whole whole.toml --like bank");
    let readers = ["gine", "gatv2-edge", "sage-edge", "edge-gated"];
    for model in ["rsage", "rgcn", "rgat", "hgt", "simple-hgn"].into_iter().chain(readers) {
        sandbox.ok(&format!(
            "train bank --model {model} --epochs 3 --hidden 8 --fanout 5,5 --batch-size 32 --lr 0.02 --out \
             {model}"
        ));
        let predict = |options: &str| format!("predict {model} {options} --probabilities --out -");
        let expected = table(&sandbox.ok(&predict("--dataset whole")));
        let found = table(&sandbox.ok(&predict(ON)));
        assert_eq!(found.len(), ACCOUNTS - NEW[0], "{model}");
        for (key, row) in &found {
            for (a, b) in row.iter().zip(&expected[key]) {
                assert!((a - b).abs() < 1e-5, "{model}, {key}: {row:?} {:?}", expected[key]);
            }
        }
        // Neighbours matter.
        let others = sandbox.ok(&predict(&ON.replace("--edges transfer=new-transfers.csv", "")));
        assert_ne!(table(&others), found, "{model}");
        if readers.contains(&model) {
            // so do the features of new edges
            let text = String::from_utf8(sandbox.read("new-transfers.csv")).unwrap();
            sandbox.write("other-transfers.csv", text.replace(".5,", "0.5,"));
            let others = predict(&ON.replace("new-transfers", "other-transfers"));
            assert_ne!(table(&sandbox.ok(&others)), found, "{model}");
        }
    }
    // Edges between known nodes are left out and counted, the reverse ones too.
    let document = sandbox.ok_json(
        "predict rsage --on new-accounts.csv --on branch=new-branches.csv --edges transfer=transfers.csv \
         --edges in=places.csv --out new.npy",
    );
    let lines = |file: &str| String::from_utf8(sandbox.read(file)).unwrap().lines().count() - 1;
    let known = 2 * (lines("known-transfers.csv") + lines("known-places.csv"));
    assert!(document["rows"] == 20 && document["known_edges"] == known, "{document} {known}");
}

#[test]
fn faults_of_new_nodes_say_how_to_fix_them() {
    let sandbox = Sandbox::new();
    bank(&sandbox);
    sandbox.write("cities.csv", "name\nBerlin\nParis\nRome\n");
    sandbox.ok("import tables bank known.toml");
    sandbox.ok("train bank --epochs 1 --hidden 8 --fanout 5,5 --out run");
    sandbox.write("account.csv", "account_id,country,age,branch_id\nx,DE,30,b1\n");
    sandbox.write("stray.csv", "account_id,country,age,branch_id\nx,DE,30,b77\n");
    sandbox.write("branch.csv", "branch_id,staff\nb9,4\n");
    sandbox.write("city.csv", "name\nOslo\n");
    sandbox.write("transfer.csv", "from,to,amount\nx,acc-001,3\nacc-002,y,4\n");
    let refused = |options: &str, message: &str| {
        let failed = sandbox.run(&format!("predict run {options} --out -"));
        assert!(failed.status != Some(0) && failed.stderr.contains(message), "{options}: {}", failed.stderr);
    };
    refused("--on branch=branch.csv", "the run predicts nodes of 'account', and no table has new ones");
    refused("--on account.csv --on city=city.csv", "new nodes of 'city': the type has no features");
    refused(
        "--on acount=account.csv",
        "'acount' is not the node type of a table of bank; use one of: account",
    );
    refused(
        "--on stray.csv",
        "stray.csv: column 'branch_id': 1 row names a node of 'branch' that neither the new tables nor the \
         dataset has: line 2 'b77'",
    );
    refused(
        "--on account=account.csv --edges transfer=transfer.csv",
        "transfer.csv: column 'to': 1 row names a node of 'account' that neither the new tables nor the \
         dataset has: line 3 'y'",
    );
    refused(
        "--on account.csv --edges transfer.csv",
        "bank has several edge tables; name one of them before the table, as in \
         'account__transfer__account=transfer.csv': account__transfer__account, branch__in__city",
    );
    refused("--on account.csv --edges received=transfer.csv", "are the reverse of 'transfer'");
    refused("--on account.csv --edges belongs_to=transfer.csv", "come from a column of the nodes 'account'");
    refused("--on account=known-accounts.csv", "100 of 100 rows have a key that is in bank already");
    refused("--on account.csv --on branch=known-branches.csv", "known-branches.csv: 8 of 8 rows have a key");
    sandbox.write("transfer.csv", "from,to,amount\nx,,3\n");
    refused("--on account.csv --edges transfer=transfer.csv", "1 of 1 rows have no source or destination");

    // Records of earlier versions do not distinguish foreign keys from edge tables.
    let record = String::from_utf8(sandbox.read("bank/preprocessing.json")).unwrap();
    let knows = |record: &str| Preprocessing::parse(record, "record".as_ref()).unwrap().knows_foreign_keys();
    let mut earlier: serde_json::Value = serde_json::from_str(&record).unwrap();
    for edges in earlier["edges"].as_object_mut().unwrap().values_mut() {
        edges.as_object_mut().unwrap().remove("foreign_key");
    }
    assert!(knows(&record) && !knows(&earlier.to_string()));
}

#[test]
fn new_nodes_of_a_type_without_a_key_are_refused() {
    let sandbox = Sandbox::new();
    let (mut people, mut visits) = (String::from("id,age,label\n"), String::from("person,cost\n"));
    for i in 0..40 {
        writeln!(people, "p{i},{},{}", 20 + i % 9, ["k", "l"][i % 2]).unwrap();
        writeln!(visits, "p{i},{}.5", i % 7).unwrap();
    }
    sandbox.write("people.csv", people);
    sandbox.write("visits.csv", visits);
    let schema = "
[[nodes]]
type = 'person'
files = 'people.csv'
id = 'id'
label = 'label'

[[nodes]]
type = 'visit'
files = 'visits.csv'
foreign_keys = [{ column = 'person', to = 'person', type = 'of', reverse = 'visits' }]
";
    sandbox.write("clinic.toml", schema);
    sandbox.ok("import tables clinic clinic.toml");
    sandbox.ok("train clinic --epochs 1 --hidden 4 --fanout 3,3 --out run");
    sandbox.write("person.csv", "id,age,label\nnew,30,\n");
    sandbox.write("visit.csv", "person,cost\nnew,3.5\n");
    let failed = sandbox.run("predict run --on person=person.csv --on visit=visit.csv --out -");
    assert_eq!(failed.status, Some(2), "{}", failed.stderr);
    let message = "nodes 'visit': the import read no column of their keys, so new nodes have none; import \
                   the tables again with such a column (id), or leave the table out";
    assert!(failed.stderr.contains(message), "{}", failed.stderr);
    sandbox.ok("predict run --on person=person.csv --out -");
}

/// Progress of work that is stopped.
struct Stopped;

impl Progress for Stopped {
    fn is_stopped(&self) -> bool {
        true
    }
}

#[test]
fn an_interrupt_ends_the_import_of_new_nodes() {
    let sandbox = Sandbox::new();
    bank(&sandbox);
    sandbox.ok("import tables bank known.toml");
    sandbox.ok("train bank --epochs 1 --hidden 8 --fanout 5,5 --out run");
    // The import would end with a fault: the branch is unknown.
    sandbox.write("stray.csv", "account_id,country,age,branch_id\nx,DE,30,b77\n");
    let run = SavedRun::open(&sandbox.path("run"), false).unwrap();
    let run = SavedTypedRun::of(&run).unwrap();
    let data = run.dataset(Some(&sandbox.path("bank"))).unwrap();
    let stray = sandbox.path("stray.csv").display().to_string();
    let new = NewTables { nodes: vec![stray].into(), ..NewTables::default() };
    let (out, watch): (_, Arc<dyn Progress>) = (sandbox.path("out.csv"), Arc::new(Stopped));
    let error = run.predict_new(&data, &new, Kind::Classes, &out, &watch).unwrap_err();
    assert_eq!(error.to_string(), graphmill_core::Error::Stopped.to_string());
    assert!(!out.exists());
}
