//! Typed graph of papers with the types, relations and proportions of IGB-H.
//!
//! # Algorithm
//!
//! There are `P = 2^scale` papers, `1.55 P` authors, `P / 400` institutes and `P / 24` fields of
//! study (`fos`). Every node has one of `C` classes; those of papers are the targets. The other end
//! of an edge has the class of the first one with probability `p_in`, and otherwise any class:
//!
//! | edge type | reverse | edges |
//! | --- | --- | --- |
//! | `paper:cites:paper` | `rev_cites` | 12 P |
//! | `paper:written_by:author` | `rev_written_by` | 4 P |
//! | `paper:topic:fos` | `rev_topic` | 6 P |
//! | `author:affiliated_to:institute` | `rev_affiliated_to` | one for each author |
//!
//! First ends are uniformly random; cited papers, institutes and fields with small ids are more
//! likely, with degrees that follow a power law of exponent 3. All nodes have features, which carry
//! their class.
//!
//! Reads the options `scale`, `classes`, `edges`, `degree`, `p_in`, `directed` (no reverses),
//! `dim`, `feature_type`, `signal`, `label_noise`, the split and `seed`. `edges` or `degree` scale
//! the edges of the papers; the authors' are one each.
//!
//! # Cost
//!
//! O(V F + E): every edge is drawn once, and sorted in both directions within the memory budget.
//!
//! # Memory
//!
//! The budget of the scratch, and 8 bytes per node for the classes.
//!
//! # Source
//!
//! Khatua, Mailthody, Taleka, Ma, Song and Hwu, *IGB: addressing the gaps in labeling, features,
//! heterogeneity, and size of public graph datasets for deep learning research*, KDD 2023, whose
//! medium graph has 10,000,000 papers and 15,544,654 authors; the names of the reverses are those
//! of MLPerf's R-GAT benchmark.
//!
//! # Deviations
//!
//! Degrees, institutes and fields of study are rounded, classes are independent of them, and the
//! features are Gaussian rather than embeddings of titles.

use graphmill_core::{
    Error, NodeId, Result,
    keyed::{Stream, key},
};

use super::{
    GenerateOptions,
    attributes::{Purpose, domain, gaussian_features, random_split},
    options::check_share,
    relation::{Members, Relation},
    sbm::replace_some,
};
use crate::{
    external::Scratch,
    typed::{FeatureTable, TypedBuilder, TypedDataset},
};

/// Names of the node types.
const NODE_TYPES: [&str; 4] = ["paper", "author", "institute", "fos"];
/// Edges of a paper by edge type: citations, authors, topics.
const OF_PAPER: [usize; 3] = [12, 4, 6];

/// Generates the graph of `options`.
///
/// # Errors
/// A number is out of range, the graph exceeds the memory, or writing to the scratch directory
/// fails.
pub(super) fn generate(options: &GenerateOptions, scratch: &Scratch) -> Result<TypedDataset> {
    check_share("p_in", options.p_in)?;
    check_share("label_noise", options.label_noise)?;
    if options.scale > 30 {
        return Err(Error::invalid(format!(
            "scale {}: 2^{} papers and their authors do not fit 32-bit node ids, at most 2^30 do",
            options.scale, options.scale
        )));
    }
    let papers = 1usize << options.scale;
    let counts = [papers, papers * 31 / 20, papers / 400, papers / 24].map(|count| count.max(1));
    let [_, authors, ..] = counts;
    let of_papers: usize = OF_PAPER.iter().sum::<usize>() * papers;
    let two = if options.directed { 1.0 } else { 2.0 };
    let expected = ((of_papers + authors) as f64 * two).min((papers as f64).powi(2));
    let draws = options.edges_to_draw(counts.iter().sum(), expected, scratch)?.saturating_sub(authors);

    // a key of its own for each type, as draws are keyed by the node
    let of_type = |t: u64| GenerateOptions { seed: key(&[options.seed, t]), ..options.clone() };
    let types = [0, 1, 2, 3].map(|t| Members::random(counts[t], &of_type(t as u64)));
    let mut builder = TypedBuilder::new("igbh");
    for ((name, members), t) in NODE_TYPES.into_iter().zip(&types).zip(0..) {
        let rows = (scratch, &*format!("{name}-features"));
        let features = gaussian_features(members.len(), &of_type(t), rows, Some(&members.class))?;
        let node_type = builder.node_type(name, members.len());
        if let Some(table) = FeatureTable::of_features(&features) {
            node_type.feature_table(table);
        }
    }
    add_edges(&mut builder, options, scratch, &types, draws)?;

    let class = &types[0].class;
    let split = random_split(papers, options, |_| true)?;
    let [train, valid, test] = split.parts().map(|(_, nodes)| nodes.to_vec());
    builder
        .task("class")
        .on_nodes("paper")
        .classes(options.classes, replace_some(class.clone(), options))
        .metric("accuracy")
        .split(train, valid, test);
    builder.build()
}

/// Adds `draws` edges of papers in the proportions of [`OF_PAPER`], and an institute for each
/// author.
fn add_edges<'t>(
    builder: &mut TypedBuilder,
    options: &GenerateOptions,
    scratch: &Scratch,
    types: &'t [Members; 4],
    draws: usize,
) -> Result<()> {
    let [papers, authors, institutes, fields] = types;
    let domain = domain(options.seed, Purpose::Edge);
    let stream = |number: u64, e: u64| Stream::new(key(&[domain, number, e]));
    let relation = |ends, [from, to]: [&Members; 2], back| {
        let reverse = (!options.directed).then_some(back);
        Relation { ends, nodes: [from.len(), to.len()], reverse }
    };
    let of_paper = |number: u64, to: &'t Members, draw: fn(&Members, &mut Stream, usize, f64) -> NodeId| {
        move |e: u64| {
            let mut stream = stream(number, e);
            let paper = stream.below(papers.len() as u64) as NodeId;
            let class = papers.class[paper as usize] as usize;
            (paper, draw(to, &mut stream, class, options.p_in))
        }
    };
    let count = |number: usize| draws * OF_PAPER[number] / OF_PAPER.iter().sum::<usize>();

    let cites = relation(["paper", "cites", "paper"], [papers, papers], "rev_cites");
    cites.add(builder, scratch, count(0), of_paper(0, papers, Members::draw_popular))?;
    let written = relation(["paper", "written_by", "author"], [papers, authors], "rev_written_by");
    written.add(builder, scratch, count(1), of_paper(1, authors, Members::draw))?;
    let topic = relation(["paper", "topic", "fos"], [papers, fields], "rev_topic");
    topic.add(builder, scratch, count(2), of_paper(2, fields, Members::draw_popular))?;
    let ends = ["author", "affiliated_to", "institute"];
    let affiliated = relation(ends, [authors, institutes], "rev_affiliated_to");
    affiliated.add(builder, scratch, authors.len(), |author| {
        let class = authors.class[author as usize] as usize;
        (author as NodeId, institutes.draw_popular(&mut stream(3, author), class, options.p_in))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dataset::Work,
        generate::generate_typed_to,
        typed::{self, EdgeType, Verify},
    };

    fn options() -> GenerateOptions {
        GenerateOptions { scale: 11, classes: 4, dim: 6, p_in: 0.8, ..GenerateOptions::default() }
    }

    #[test]
    fn types_and_edges_have_their_proportions() {
        let data = generate(&options(), &Scratch::in_memory()).unwrap();
        let counts: Vec<_> = data.nodes.iter().map(|nodes| (nodes.name.as_str(), nodes.count)).collect();
        assert_eq!(counts, [("paper", 2048), ("author", 3174), ("institute", 5), ("fos", 85)]);
        let count = |edge: [&str; 3]| {
            let [from, name, to] = edge;
            data.edge_type(&EdgeType::new(from, name, to)).unwrap().num_edges()
        };
        let edges = [
            (["paper", "cites", "paper"], ["paper", "rev_cites", "paper"], 12 * 2048),
            (["paper", "written_by", "author"], ["author", "rev_written_by", "paper"], 4 * 2048),
            (["paper", "topic", "fos"], ["fos", "rev_topic", "paper"], 6 * 2048),
            (["author", "affiliated_to", "institute"], ["institute", "rev_affiliated_to", "author"], 3174),
        ];
        for (forth, back, expected) in edges {
            assert_eq!((count(forth), count(back)), (expected, expected), "{forth:?}");
        }
        // the first paper is cited most: its expected degree is 1 / sqrt(512) of its class's edges
        let cites = data.edge_type(&EdgeType::new("paper", "cites", "paper")).unwrap();
        let degree = |v: usize| cites.in_neighbors(v as NodeId).len();
        assert!(degree(0) > 100 && (1000..1100).map(degree).sum::<usize>() < 2000, "{}", degree(0));
    }

    #[test]
    fn edges_end_at_their_class_with_the_given_probability() {
        let data = generate(&options(), &Scratch::in_memory()).unwrap();
        let class = |t: u64, count| {
            Members::random(count, &GenerateOptions { seed: key(&[options().seed, t]), ..options() })
        };
        let (papers, authors) = (class(0, 2048), class(1, 3174));
        let written = data.edge_type(&EdgeType::new("paper", "written_by", "author")).unwrap();
        let same = |v: usize| {
            let own = |u: &&NodeId| papers.class[**u as usize] == authors.class[v];
            written.in_neighbors(v as NodeId).iter().filter(own).count()
        };
        let share = (0..3174).map(same).sum::<usize>() as f64 / written.num_edges() as f64;
        // 0.8 + 0.2 / 4, binomial(8192): sigma 0.004
        assert!((share - 0.85).abs() < 0.02, "{share}");
    }

    #[test]
    fn a_memory_budget_and_threads_do_not_change_the_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let whole = generate(&options(), &Scratch::in_memory()).unwrap();
        let (dst, path) = (directory.path().join("igbh"), directory.path().join("scratch"));
        let work = Work { memory: Some(64 << 20), ..Work::default() };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        pool.install(|| generate_typed_to("igbh", &dst, &options(), work)).unwrap();
        let saved = typed::open(&dst, Verify::All).unwrap();
        std::fs::create_dir(&path).unwrap();
        let tiny = generate(&options(), &Scratch::open_within(&path, 1 << 12)).unwrap();
        for other in [&saved, &tiny] {
            assert_eq!(other.identity().unwrap(), whole.identity().unwrap());
        }
        assert!(!directory.path().join("igbh.generating").exists());
    }

    #[test]
    fn small_directed_and_scaled_graphs_are_sound() {
        for scale in [0, 1, 5] {
            let small = generate(&GenerateOptions { scale, dim: 0, ..options() }, &Scratch::in_memory());
            assert_eq!(small.unwrap().edges.len(), 8);
        }
        let scaled = GenerateOptions { edges: Some(10_000), directed: true, ..options() };
        let scaled = generate(&scaled, &Scratch::in_memory()).unwrap();
        assert_eq!(scaled.edges.len(), 4);
        let edges = scaled.num_edges();
        assert!((9_990..=10_000).contains(&edges), "{edges}");
        let error = generate(&GenerateOptions { scale: 31, ..options() }, &Scratch::in_memory());
        assert!(error.unwrap_err().to_string().contains("at most 2^30"));
    }
}
