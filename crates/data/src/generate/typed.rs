//! Typed graph of papers whose classes follow from relations.
//!
//! # Algorithm
//!
//! Node types: `paper` (half of the nodes, with keys), `author` (four tenths), `topic` (eight
//! hundredths, without features) and `institution` (the rest). Every node has one of `C` classes;
//! those of papers are the targets. Let `c'` be the class at the other half of the circle, `c +
//! C/2` modulo `C`. An edge is drawn for a uniformly random paper of class `c`; with probability
//! `p_in` its other end is
//!
//! | edge type | ends at a node of class |
//! | --- | --- |
//! | `author:writes:paper` | `c` |
//! | `author:reviews:paper` | `c'` |
//! | `paper:cites:paper`, undirected | `c` or `c'` |
//! | `paper:about:topic` | `c` or `c'` |
//!
//! and otherwise any node. `institution:employs:author` has an edge to each author, from its class
//! with the same probability. All other edge types are reverses. Without the types, neighbours fit
//! `c` and `c'` equally well, so a model that ignores relations reaches about half of the accuracy
//! of one that reads them. Features of papers are noise; those of authors and institutions carry
//! their class.
//!
//! Reads the options `nodes`, `classes`, `edges`, `degree`, `p_in`, `directed` (no reverses),
//! `dim`, `feature_type`, `signal`, `label_noise`, the split and `seed`. A quarter of the drawn
//! edges is of each of the four edge types.
//!
//! # Cost
//!
//! O(V + E).
//!
//! # Source
//!
//! None: a stochastic block model for each relation.

use graphmill_core::{
    NodeId, Result,
    keyed::{Stream, key},
};

use super::{
    GenerateOptions,
    attributes::{Purpose, domain, gaussian_features, random_split},
    options::{check_nodes, check_share},
    relation::{Members, Relation},
    sbm::replace_some,
};
use crate::{
    external::Scratch,
    typed::{FeatureTable, TypedBuilder, TypedDataset},
};

/// Default average number of drawn edges per node.
const DEFAULT_DEGREE: f64 = 8.0;
/// Number of edge types that are drawn for papers.
const DRAWN: usize = 4;
/// Names of the node types.
const NODE_TYPES: [&str; 4] = ["paper", "author", "topic", "institution"];

/// Generates the graph of `options`.
///
/// # Errors
/// A number is out of range, the graph exceeds the memory, or writing to the scratch directory
/// fails.
pub(super) fn generate(options: &GenerateOptions, scratch: &Scratch) -> Result<TypedDataset> {
    check_nodes(options.nodes)?;
    check_share("p_in", options.p_in)?;
    check_share("label_noise", options.label_noise)?;
    let two = if options.directed { 1.0 } else { 2.0 };
    let expected = (DEFAULT_DEGREE * options.nodes as f64 * two).min((options.nodes as f64).powi(2));
    let draws = options.edges_to_draw(options.nodes, expected, scratch)?;

    let count = |share: f64| ((options.nodes as f64 * share) as usize).max(1);
    let counts = [count(0.5), count(0.4), count(0.08), count(0.02)];
    // a key of its own for each type, as draws are keyed by the node
    let of_type = |t: u64| GenerateOptions { seed: key(&[options.seed, t]), ..options.clone() };
    let mut t = 0;
    let types = counts.map(|count| {
        t += 1;
        Members::random(count, &of_type(t - 1))
    });
    let mut builder = TypedBuilder::new("typed");
    for (t, (name, members)) in NODE_TYPES.into_iter().zip(&types).enumerate() {
        let node_type = builder.node_type(name, members.len());
        let class = (name != "paper").then_some(&members.class[..]);
        if name != "topic" {
            let features = gaussian_features(
                members.len(),
                &of_type(t as u64),
                (scratch, &format!("{name}-features")),
                class,
            )?;
            FeatureTable::of_features(&features).into_iter().for_each(|table| {
                node_type.feature_table(table);
            });
        }
        if name == "paper" {
            let keys = (0..members.len() as i64).map(|v| 1_000_000 + 7 * v);
            node_type.integer_keys(keys.collect::<Vec<_>>());
        }
    }
    add_edges(&mut builder, options, scratch, &types, draws / DRAWN)?;

    let papers = &types[0].class;
    let split = random_split(papers.len(), options, |_| true)?;
    let [train, valid, test] = split.parts().map(|(_, nodes)| nodes.to_vec());
    let names = (0..options.classes).map(|class| format!("area-{class}"));
    builder
        .task("area")
        .on_nodes("paper")
        .classes(options.classes, replace_some(papers.clone(), options))
        .names(names)
        .metric("accuracy")
        .split(train, valid, test);
    builder.build()
}

/// Adds `count` edges of each edge type of papers, their reverses, and the employers of authors.
fn add_edges<'t>(
    builder: &mut TypedBuilder,
    options: &GenerateOptions,
    scratch: &Scratch,
    types: &'t [Members; 4],
    count: usize,
) -> Result<()> {
    let ([papers, authors, topics, institutions], half) = (types, options.classes / 2);
    // a paper, and a node of `to` whose class is that of the paper plus one of the `offsets`
    let draw = |number: u64, to: &'t Members, offsets: [usize; 2]| {
        let domain = key(&[domain(options.seed, Purpose::Edge), number]);
        move |e: u64| {
            let mut stream = Stream::new(key(&[domain, e]));
            let paper = stream.below(papers.len() as u64) as usize;
            let class = papers.class[paper] as usize + offsets[stream.below(2) as usize];
            (paper as NodeId, to.draw(&mut stream, class, options.p_in))
        }
    };
    let relation = |ends, [from, to]: [&Members; 2], back| {
        let reverse = (!options.directed).then_some(back);
        Relation { ends, nodes: [from.len(), to.len()], reverse }
    };
    let swapped = |(paper, other)| (other, paper);

    let writes = relation(["author", "writes", "paper"], [authors, papers], "written-by");
    let edge = draw(0, authors, [0, 0]);
    writes.add(builder, scratch, count, |e| swapped(edge(e)))?;
    let reviews = relation(["author", "reviews", "paper"], [authors, papers], "reviewed-by");
    let edge = draw(1, authors, [half, half]);
    reviews.add(builder, scratch, count, |e| swapped(edge(e)))?;
    let about = relation(["paper", "about", "topic"], [papers, topics], "covers");
    about.add(builder, scratch, count, draw(2, topics, [0, half]))?;
    let cites = relation(["paper", "cites", "paper"], [papers, papers], "cites");
    cites.add(builder, scratch, count, draw(3, papers, [0, half]))?;

    let domain = key(&[domain(options.seed, Purpose::Edge), DRAWN as u64]);
    let (ends, nodes) = (["institution", "employs", "author"], [institutions.len(), authors.len()]);
    Relation { ends, nodes, reverse: None }.add(builder, scratch, authors.len(), |author| {
        let mut stream = Stream::new(key(&[domain, author]));
        let class = authors.class[author as usize] as usize;
        (institutions.draw(&mut stream, class, options.p_in), author as NodeId)
    })
}

#[cfg(test)]
mod tests {
    use graphmill_core::Labels;

    use super::*;
    use crate::{generate::attributes::random_classes, typed::Targets};

    fn generate(options: &GenerateOptions) -> Result<TypedDataset> {
        super::generate(options, &Scratch::in_memory())
    }

    fn options() -> GenerateOptions {
        GenerateOptions { nodes: 2000, classes: 4, dim: 6, p_in: 0.8, ..GenerateOptions::default() }
    }

    fn classes(data: &TypedDataset) -> Vec<i32> {
        let Targets::Classes(Labels::Single { class, .. }) = &data.tasks[0].targets else {
            panic!("single labels")
        };
        class.to_vec()
    }

    #[test]
    fn bytes_do_not_depend_on_the_number_of_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let (one, three) = (generate(&options()).unwrap(), pool.install(|| generate(&options()).unwrap()));
        assert_eq!(classes(&one), classes(&three));
        for (a, b) in one.edges.iter().zip(&three.edges) {
            assert_eq!((&a.indptr[..], &a.indices[..]), (&b.indptr[..], &b.indices[..]), "{}", a.edge_type);
        }
        let other = generate(&GenerateOptions { seed: 9, ..options() }).unwrap();
        assert_ne!(classes(&one), classes(&other));
    }

    #[test]
    fn classes_follow_from_the_authors_of_a_paper_and_not_from_all_its_neighbours() {
        let data = generate(&options()).unwrap();
        let (class, papers) = (classes(&data), data.nodes[0].count);
        let authors = random_classes(data.nodes[1].count, 4, key(&[0, 1]));
        // share of edges whose author has the class of the paper, or the one across the circle
        let share = |name: &str, offset: i32| {
            let edges = data.edges.iter().find(|edges| edges.edge_type.name == name).unwrap();
            let hit = |v: usize| {
                let of = |u: &&NodeId| authors[**u as usize] == (class[v] + offset) % 4;
                edges.in_neighbors(v as NodeId).iter().filter(of).count()
            };
            (0..papers).map(hit).sum::<usize>() as f64 / edges.num_edges() as f64
        };
        // binomial(4000, 0.85): sigma 0.006
        for (name, offset) in [("writes", 0), ("reviews", 2)] {
            assert!((share(name, offset) - 0.85).abs() < 0.03, "{name}: {}", share(name, offset));
        }
        assert!(share("writes", 2) < 0.1 && share("reviews", 0) < 0.1);
    }

    #[test]
    fn small_and_directed_graphs_are_sound() {
        for (nodes, classes) in [(1, 1), (5, 3), (40, 7)] {
            let small = GenerateOptions { nodes, classes, degree: Some(1.0), ..options() };
            assert_eq!(generate(&small).unwrap().edges.len(), 8);
            let directed = generate(&GenerateOptions { directed: true, dim: 0, ..small }).unwrap();
            assert_eq!((directed.edges.len(), directed.nodes.len()), (5, 4));
            assert!(directed.nodes.iter().all(|nodes| nodes.features.is_none()));
        }
        let wrong = generate(&GenerateOptions { p_in: 1.5, ..options() }).unwrap_err().to_string();
        assert!(wrong.contains("p_in is 1.5"), "{wrong}");
    }
}
