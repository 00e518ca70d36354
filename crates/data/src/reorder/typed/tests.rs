//! Rearranged datasets beside plain lists of their contents, in which nodes have their old ids.

use graphmill_core::{Labels, keyed};
use proptest::prelude::*;

use super::*;
use crate::typed::{CandidateLists, EdgeType, Keys, Negatives, Seeds, Targets, Task, TypedBuilder};

/// Dataset of two node types whose every value identifies its node, edge or row.
fn dataset(users: usize, items: usize, pairs: &[(u32, u32)], seed: u64) -> TypedDataset {
    let (users_, items_) = (users as u32, items as u32);
    let pairs: Vec<(u32, u32)> = pairs.iter().map(|&(u, v)| (u % users_, v % items_)).collect();
    let (src, dst): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    let edges = pairs.len() as i64;
    let draw = |v: u64, below: u64| (keyed::key(&[seed, v]) % below) as u32;
    let mut builder = TypedBuilder::new("shop");
    builder
        .node_type("user", users)
        .integer_keys((0..users as i64).map(|v| 100 + v).collect::<Vec<_>>())
        .time((0..users as i64).collect::<Vec<_>>());
    let sparse: Vec<f32> = (0..3 * items).map(|i| if i % 2 == 0 { 0.0 } else { i as f32 }).collect();
    builder
        .node_type("item", items)
        .text_keys((0..items).map(|v| format!("item {v}")))
        .sparse_features(SparseRows::from_dense(3, &sparse).unwrap());
    builder
        .edge_type("user", "buys", "item")
        .edges(src, dst)
        .weights((0..edges).map(|e| e as f32).collect::<Vec<_>>())
        .time((0..edges).map(|e| 7 * e).collect::<Vec<_>>())
        .features(2, (0..2 * edges).collect::<Vec<_>>())
        .with_reverse("bought-by");
    let users_of = |n: usize| (0..n).map(|v| v as i32 % 5).collect::<Vec<_>>();
    builder.task("churn").on_nodes("user").classes(5, users_of(users)).split(
        (0..users_).step_by(2).collect::<Vec<_>>(),
        (1..users_).step_by(4).collect::<Vec<_>>(),
        [],
    );
    // rows in any order, with a repeated node
    let seeds: Vec<u32> = (0..5).map(|i| draw(i, items as u64)).collect();
    let targets = seeds.iter().flat_map(|&v| [v as f32, -(v as f32)]).collect::<Vec<_>>();
    builder.task("price").on_nodes("item").node_seeds(seeds).values(2, targets).split([0, 3], [1], [4]);
    let buys = EdgeType::new("user", "buys", "item");
    let known: Vec<u32> = (0..edges as u32).collect();
    let [train, rest] = [&known[..known.len() / 2], &known[known.len() / 2..]];
    builder
        .task("rating")
        .on_edges(buys.clone())
        .values(1, (0..edges).map(|e| e as f32).collect::<Vec<_>>())
        .split(train, rest, []);
    let positives = vec![draw(10, users as u64), draw(11, items as u64), 0, 0, draw(12, users as u64), 0];
    builder.task("next").on_edges(buys.clone()).positives([positives, vec![0, 0], vec![]]).negatives([
        Some(Negatives::Destinations {
            each: 2,
            nodes: (0..6).map(|i| draw(i, items as u64)).collect::<Vec<_>>().into(),
        }),
        Some(Negatives::Pairs(vec![draw(20, users as u64), draw(21, items as u64)].into())),
        None,
    ]);
    let positives = vec![0, 0, draw(13, users as u64), 0];
    let lists = CandidateLists::new([vec![draw(14, items as u64)], vec![0, draw(15, items as u64)]]);
    // pairs to predict need no edges
    let sees = EdgeType::new("user", "sees", "item");
    builder.task("ranked").on_edges(sees).positives([vec![], positives, vec![]]).negatives([
        None,
        Some(Negatives::Lists(lists)),
        None,
    ]);
    let mut data = builder.build().unwrap();
    // links whose rows are the edges, with negatives of each
    let mut task = Task::new("links", crate::typed::TaskOn::Edges(buys));
    let rows: Vec<u32> = (0..edges as u32).step_by(2).collect();
    let nodes = (0..rows.len() as u64).map(|i| draw(30 + i, users as u64)).collect::<Vec<_>>();
    task.negatives[0] = Some(Negatives::Sources { each: 1, nodes: nodes.into() });
    task.split.train = rows.into();
    data.tasks.push(task);
    data.validate().unwrap();
    data
}

/// Contents of a dataset as sorted texts in which nodes have the names that `name` gives.
fn contents(data: &TypedDataset, name: &dyn Fn(usize, u32) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    let row = |table: Option<&FeatureTable>, i: usize| {
        let mut out = vec![0.0; table.map_or(0, |table| table.width)];
        if let Some(table) = table {
            table.copy_row(i, &mut out);
        }
        out
    };
    for (t, nodes) in data.nodes.iter().enumerate() {
        for v in 0..nodes.count {
            let key = nodes.keys.as_ref().map(|keys: &Keys| keys.get(v).to_string());
            let time = nodes.time.as_ref().map(|time| time[v]);
            lines.push(format!(
                "{} {key:?} {time:?} {:?}",
                name(t, v as u32),
                row(nodes.features.as_ref(), v)
            ));
        }
    }
    let mut edge_names = Vec::new();
    for (e, edges) in data.edges.iter().enumerate() {
        let (source, destination) = data.schema().unwrap().ends(e);
        let mut names = Vec::new();
        for (i, &v) in edges.destinations().iter().enumerate() {
            let ends = format!("{} {}", name(source, edges.indices[i]), name(destination, v));
            let weight = edges.weights.as_ref().map(|weights| weights[i]);
            let time = edges.time.as_ref().map(|time| time[i]);
            names.push(format!("{e} {ends} {weight:?} {time:?} {:?}", row(edges.features.as_ref(), i)));
        }
        lines.extend(names.iter().cloned());
        edge_names.push(names);
    }
    for task in &data.tasks {
        let e = data
            .edges
            .iter()
            .position(|edges| task.on == crate::typed::TaskOn::Edges(edges.edge_type.clone()));
        let number = |name: &str| data.nodes.iter().position(|nodes| nodes.name == name).unwrap();
        let [source, destination] = match &task.on {
            crate::typed::TaskOn::Edges(on) => [number(&on.source), number(&on.destination)],
            crate::typed::TaskOn::Nodes(on) => [number(on); 2],
        };
        let row_name = |row: usize| match (&task.seeds, e) {
            (Some(Seeds::Nodes(ids)), _) => format!("row {row} {}", name(source, ids[row])),
            (Some(Seeds::Pairs(ids)), _) => {
                format!("row {row} {} {}", name(source, ids[2 * row]), name(destination, ids[2 * row + 1]))
            }
            (None, Some(e)) => edge_names[e][row].clone(),
            (None, None) => name(source, row as u32),
        };
        for row in 0..data.rows_of(task) {
            let target = match &task.targets {
                Targets::None => String::new(),
                Targets::Classes(Labels::Single { class, .. }) => class[row].to_string(),
                Targets::Values { width, values } => format!("{:?}", &values[row * width..(row + 1) * width]),
                Targets::Classes(_) => unimplemented!("not in these datasets"),
            };
            lines.push(format!("{} {} {target}", task.name, row_name(row)));
        }
        for ((part, ids), negatives) in task.split.parts().into_iter().zip(&task.negatives) {
            lines.extend(ids.iter().map(|&row| format!("{part} {}", row_name(row as usize))));
            let of_positive = |t: usize, lists: &CandidateLists| {
                let of = ids.iter().enumerate();
                of.map(|(i, &row)| {
                    let names: Vec<String> = lists.list(i).iter().map(|&v| name(t, v)).collect();
                    format!("{part} negatives of {}: {names:?}", row_name(row as usize))
                })
                .collect::<Vec<_>>()
            };
            match negatives {
                None => {}
                Some(Negatives::Pairs(pairs)) => lines.extend(
                    pairs
                        .chunks(2)
                        .map(|ids| format!("{part} {} {}", name(source, ids[0]), name(destination, ids[1]))),
                ),
                Some(Negatives::Destinations { each, nodes }) => {
                    let lists = CandidateLists::equal(ids.len(), *each, nodes.clone());
                    lines.extend(of_positive(destination, &lists));
                }
                Some(Negatives::Sources { each, nodes }) => {
                    let lists = CandidateLists::equal(ids.len(), *each, nodes.clone());
                    lines.extend(of_positive(source, &lists));
                }
                Some(Negatives::Lists(lists)) => lines.extend(of_positive(destination, lists)),
            }
        }
    }
    lines.sort();
    lines
}

fn old_name(t: usize, v: u32) -> String {
    format!("{t}:{v}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every order gives the same graph, columns and tasks under its permutation, types keep their
    /// ranges, and rows ascend. A second order composes with the first in the original ids.
    #[test]
    fn reordered_datasets_are_the_same_under_the_permutation(
        users in 1usize..12, items in 1usize..9, pairs in prop::collection::vec((0u32..99, 0u32..99), 0..40),
        seed in 0u64..1000,
    ) {
        let data = dataset(users, items, &pairs, seed);
        let expected = contents(&data, &old_name);
        let mut from = data;
        for by in ["random", "bfs", "degree", "rcm"] {
            let make = crate::reorder::TABLE.iter().find(|entry| entry.name == by).unwrap().make.make;
            let order = make(&from.graph().unwrap().union().unwrap(), seed).unwrap();
            let orders = orders_by_type(&from, &order).unwrap();
            let orders = Orders { by_type: &orders, is_selection: false };
            let made = rearrange(&from, orders, &Scratch::in_memory(), &mut Seconds::default()).unwrap();
            made.validate().unwrap();
            let original = |t: usize, v: u32| {
                old_name(t, made.nodes[t].original_ids.as_ref().unwrap()[v as usize])
            };
            prop_assert_eq!(contents(&made, &original), expected.clone());
            for edges in &made.edges {
                let mut rows = (0..edges.indptr.len() as u32 - 1).map(|v| edges.in_neighbors(v));
                let is_sorted = rows.all(|row| row.is_sorted());
                prop_assert!(is_sorted);
            }
            from = made;
        }
    }

    /// A selection has the selected nodes, the edges among them, and the rows of tasks on both.
    #[test]
    fn selections_hold_the_induced_graph(
        users in 1usize..12, items in 1usize..9, pairs in prop::collection::vec((0u32..99, 0u32..99), 0..40),
        seed in 0u64..1000,
    ) {
        let data = dataset(users, items, &pairs, seed);
        let orders: Vec<Vec<u32>> = [users, items].iter().enumerate().map(|(t, &count)| {
            let is_kept = |&v: &u32| !keyed::key(&[seed, t as u64, v.into()]).is_multiple_of(3);
            (0..count as u32).filter(is_kept).collect()
        }).collect();
        let selected = Orders { by_type: &orders, is_selection: true };
        let made = rearrange(&data, selected, &Scratch::in_memory(), &mut Seconds::default()).unwrap();
        made.validate().unwrap();
        prop_assert!(made.tasks.iter().all(|task| task.negatives.iter().all(Option::is_none)));
        let name = |t: usize, v: u32| old_name(t, orders[t][v as usize]);
        for (t, nodes) in made.nodes.iter().enumerate() {
            let key = |of: &NodeData, v: usize| of.keys.as_ref().unwrap().get(v).to_string();
            let keys: Vec<String> = (0..nodes.count).map(|v| key(nodes, v)).collect();
            let expected = orders[t].iter().map(|&v| key(&data.nodes[t], v as usize));
            prop_assert!(expected.eq(keys));
        }
        let whole = contents(&data, &old_name);
        let is_in_whole = |line: &String| line.contains("row ") || whole.contains(line);
        prop_assert!(contents(&made, &name).iter().all(is_in_whole), "{:?}", contents(&made, &name));
        for (e, (edges, all)) in made.edges.iter().zip(&data.edges).enumerate() {
            let (source, destination) = data.schema().unwrap().ends(e);
            let ends = all.indices.iter().zip(all.destinations());
            let is_kept = |(u, v): &(&u32, u32)| {
                orders[source].contains(u) && orders[destination].contains(v)
            };
            let kept = ends.filter(is_kept).count();
            prop_assert_eq!(edges.num_edges(), kept);
        }
    }
}

/// Columns beyond the budget of the scratch become files of the dataset.
#[test]
fn reordered_directories_hold_the_same_dataset_for_any_budget() {
    let pairs: Vec<(u32, u32)> = (0..3000).map(|i| (i * 7919 % 4001, i * 31 % 997)).collect();
    let data = dataset(1200, 700, &pairs, 5);
    let directory = tempfile::tempdir().unwrap();
    let order = |data: &TypedDataset| Ok((0..data.num_nodes() as u32).rev().collect());
    let texts = [None, Some(1)].map(|memory| {
        let dst = directory.path().join(format!("{memory:?}"));
        reorder_types_to(&data, &dst, "reverse", order, Work { memory, ..Work::default() }).unwrap();
        let made = crate::typed::open(&dst, crate::typed::Verify::All).unwrap();
        let original =
            |t: usize, v: u32| old_name(t, made.nodes[t].original_ids.as_ref().unwrap()[v as usize]);
        assert!(contents(&made, &original) == contents(&data, &old_name));
        std::fs::read_to_string(dst.join("graphmill.json")).unwrap()
    });
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn wrong_orders_are_rejected() {
    let data = dataset(3, 2, &[(0, 1)], 0);
    let directory = tempfile::tempdir().unwrap();
    for order in [vec![0, 1, 2, 3], vec![0, 1, 2, 3, 3], vec![0, 1, 1, 3, 4]] {
        let made = reorder_types_to(
            &data,
            &directory.path().join("new"),
            "x",
            |_| Ok(order.clone()),
            Work::default(),
        );
        assert!(made.is_err(), "{order:?}");
    }
}
