//! Steps shared by all imports, in order: edges to CSC, largest component, split, normalization,
//! validation.

use std::{collections::BTreeMap, path::Path};

use graphmill_core::{
    Buffer, Error, Features, Graph, Labels, NodeId, Result, Split,
    features::FeatureData,
    keyed::{Stream, key},
    location::Location,
    memory,
    search::position,
    traverse::weak_components,
};
use rayon::prelude::*;

use super::{
    ImportOptions, Imported, Normalize, Raw, SplitRule, graphs, labels,
    normalize::{CHUNK_LEN, normalize},
    report::EdgeCounts,
};
use crate::{
    Dataset,
    dataset::no_label,
    external::{Rows, Scratch},
    npy::Element,
};

/// Builds the dataset from the data that the importer read from `source`.
pub(super) fn finish(
    raw: Raw,
    source: &Path,
    options: &ImportOptions,
    scratch: &Scratch,
) -> Result<Imported> {
    let at = Location::new(source, "import");
    let Raw { name, num_nodes, edges, features, normalization, mut labels, splits, graphs, metric, .. } = raw;
    let mut report = raw.report;
    // Building takes some 24 bytes a node in addition to the edges.
    drop(at.locate(memory::reserve::<[u64; 3]>(num_nodes))?);
    let counts = EdgeCounts::of(&edges);
    let mut graph = at.locate(edges.build(num_nodes))?;
    report.count_edges(counts, &graph);
    let has_units = |weights: &[f32]| position(weights, |&weight| weight != 1.0).is_none();
    if raw.omit_unit_weights && graph.edge_weight().is_some_and(has_units) {
        let (indptr, indices) = graph.buffers();
        graph = Graph::sorted(indptr.clone(), indices.clone(), None);
    }
    let mut unlabelled = labels::take_missing(&mut labels);
    let split = at.locate(given_split(splits, options.split.as_ref()))?;
    let name = options.name.clone().unwrap_or(name);
    let metric = options.metric.clone().or(metric);
    let normalization = normalization.filter(|_| features.dim > 0);
    let mut dataset =
        Dataset { name, graph, features, normalization, labels, split, graphs, metric, ..Dataset::default() };
    at.locate(dataset.validate())?;
    at.locate(check_labelled(&dataset.split, &unlabelled))?;
    if options.largest_component {
        let (nodes, edges) = (dataset.num_nodes(), dataset.graph.num_edges());
        dataset = largest_component(dataset, &mut unlabelled, scratch)?;
        report.nodes_dropped += (nodes - dataset.num_nodes()) as u64;
        report.edges_dropped += (edges - dataset.graph.num_edges()) as u64;
    }
    let is_labelled = |v| dataset.labels.is_labelled(v) && unlabelled.binary_search(&v).is_err();
    let seed = options.split_seed;
    if let Some(rule) = options.split.as_ref().filter(|rule| !matches!(rule, SplitRule::Given(_))) {
        dataset.split = at.locate(drawn(&dataset, rule, seed, is_labelled))?;
    }
    if let Some(how) = &dataset.normalization {
        let how = how.name();
        if options.normalize != Normalize::None {
            return Err(at.error(format!(
                "normalize {}: the features of the source are normalized already (normalize {how}); leave \
                 the \
                 option out, which keeps them and their statistics",
                options.normalize
            )));
        }
        scratch
            .note(&format!("features: normalized in the source (normalize {how}), kept with the statistics"));
    }
    if options.normalize != Normalize::None {
        report.normalization = at.locate(normalize(&mut dataset, options.normalize, scratch))?;
    }
    at.locate(dataset.validate())?;
    report.missing_labels = match &dataset.labels {
        Labels::Single { class, .. } => class.par_iter().filter(|class| **class < 0).count() as u64,
        Labels::Multi { .. } => unlabelled.len() as u64,
        Labels::Columns { .. } | Labels::Values { .. } => {
            let all = 0..dataset.num_nodes() as NodeId;
            all.into_par_iter().filter(|&v| !dataset.labels.is_labelled(v)).count() as u64
        }
    };
    Ok(Imported { dataset, report })
}

/// Split of the labelled nodes of a dataset by a rule other than `given`, as an import draws it.
///
/// # Errors
/// The rule takes the split of a source, or leaves no nodes to train on.
pub fn draw_split(dataset: &Dataset, rule: &SplitRule, seed: u64) -> Result<Split> {
    drawn(dataset, rule, seed, |v| dataset.labels.is_labelled(v))
}

fn drawn(
    dataset: &Dataset,
    rule: &SplitRule,
    seed: u64,
    is_labelled: impl Fn(NodeId) -> bool,
) -> Result<Split> {
    match rule {
        SplitRule::Planetoid { train, valid } => per_class(dataset, *train, *valid, seed),
        SplitRule::Random { train, valid, test } => {
            let labelled = (0..dataset.num_nodes() as NodeId).filter(|&v| is_labelled(v)).collect();
            random(labelled, [*train, *valid, *test], seed)
        }
        SplitRule::Graphs(parts) => graphs::split(&dataset.graphs, is_labelled, parts),
        SplitRule::Given(_) => Err(Error::invalid(
            "split given: the dataset comes from no source with splits; use planetoid:TRAIN,VALID or \
             random:A,B,C",
        )),
    }
}

/// Checks that no node of the split is in `unlabelled`, the nodes whose sets of classes have no
/// values.
fn check_labelled(split: &Split, unlabelled: &[NodeId]) -> Result<()> {
    for (part, ids) in split.parts() {
        if let Some(&v) = unlabelled.iter().find(|v| ids.binary_search(v).is_ok()) {
            return Err(no_label(v, part));
        }
    }
    Ok(())
}

/// Split of the source selected by the rule; an empty split if the rule computes one.
fn given_split(mut splits: Vec<Split>, rule: Option<&SplitRule>) -> Result<Split> {
    match rule {
        None if splits.is_empty() => Ok(Split::default()),
        None => Ok(splits.swap_remove(0)),
        Some(SplitRule::Given(_)) if splits.is_empty() => {
            Err(Error::invalid("the source has no split; use planetoid:TRAIN,VALID or random:A,B,C"))
        }
        Some(SplitRule::Given(k)) if *k >= splits.len() => Err(Error::invalid(format!(
            "split given:{k}: the source has {} split(s), numbered from 0",
            splits.len()
        ))),
        Some(SplitRule::Given(k)) => Ok(splits.swap_remove(*k)),
        Some(_) => Ok(Split::default()),
    }
}

/// Keeps the largest weakly connected component (on a tie, that of the smallest node) with the
/// features, labels and split of its nodes; `unlabelled` is updated to the remaining ones. O(V F +
/// E).
fn largest_component(dataset: Dataset, unlabelled: &mut Vec<NodeId>, scratch: &Scratch) -> Result<Dataset> {
    let component = weak_components(&dataset.graph);
    let mut size: Vec<u32> = memory::zeroed(component.len())?;
    for &c in &component {
        size[c as usize] += 1;
    }
    let Some(largest) = (0..size.len()).max_by_key(|&c| (size[c], std::cmp::Reverse(c))) else {
        return Ok(dataset);
    };
    let kept: Vec<NodeId> =
        (0..component.len() as NodeId).filter(|&v| component[v as usize] as usize == largest).collect();
    const GONE: NodeId = NodeId::MAX;
    let mut number = memory::filled(GONE, component.len())?;
    for (i, &v) in kept.iter().enumerate() {
        number[v as usize] = i as NodeId;
    }
    unlabelled.retain(|&v| number[v as usize] != GONE);
    unlabelled.iter_mut().for_each(|v| *v = number[*v as usize]);
    // A component contains all its in-neighbours, and renumbering keeps their order.
    let graph = &dataset.graph;
    let mut indptr = memory::reserve(kept.len() + 1)?;
    indptr.push(0);
    let mut indices = scratch.column::<NodeId>("component-indices")?;
    let mut weights = graph.edge_weight().map(|_| scratch.column::<f32>("component-weights")).transpose()?;
    let mut some = Vec::new();
    for &v in &kept {
        if let (Some(weights), Some(all)) = (&mut weights, graph.edge_weight()) {
            weights
                .extend(&all[graph.indptr()[v as usize] as usize..graph.indptr()[v as usize + 1] as usize])?;
        }
        some.extend(graph.in_neighbors(v).iter().map(|&u| number[u as usize]));
        indptr.push((indices.len() + some.len()) as u64);
        if some.len() >= CHUNK_LEN {
            indices.extend(&some)?;
            some.clear();
        }
    }
    indices.extend(&some)?;
    let graph = Graph::sorted(indptr.into(), indices.finish()?, weights.map(Rows::finish).transpose()?);
    let part = |ids: &[NodeId]| -> Buffer<NodeId> {
        ids.iter().map(|&v| number[v as usize]).filter(|&v| v != GONE).collect::<Vec<_>>().into()
    };
    let dim = dataset.features.dim;
    let data = match &dataset.features.data {
        FeatureData::F32(data) => FeatureData::F32(kept_rows(scratch, data, dim, &kept)?),
        FeatureData::F16(data) => FeatureData::F16(kept_rows(scratch, data, dim, &kept)?),
        FeatureData::Csr(data) => FeatureData::Csr(data.select(&kept)?),
    };
    let labels = match &dataset.labels {
        Labels::Single { class, classes } => {
            Labels::Single { class: rows(class, 1, &kept).into(), classes: *classes }
        }
        Labels::Multi { member, classes } => {
            Labels::Multi { member: rows(member, *classes, &kept).into(), classes: *classes }
        }
        Labels::Columns { class, columns } => {
            let class = rows(class, columns.len(), &kept).into();
            Labels::Columns { class, columns: columns.clone() }
        }
        Labels::Values { values, width } => {
            Labels::Values { values: rows(values, *width, &kept).into(), width: *width }
        }
    };
    let split = Split {
        train: part(&dataset.split.train),
        valid: part(&dataset.split.valid),
        test: part(&dataset.split.test),
    };
    let graphs = graphs::restrict(&dataset.graphs, &kept);
    Ok(Dataset { graph, features: Features { dim, data }, labels, split, graphs, ..dataset })
}

/// Rows `kept` of a row-major matrix of `width` columns.
fn rows<T: Copy>(data: &[T], width: usize, kept: &[NodeId]) -> Vec<T> {
    kept.iter().flat_map(|&v| &data[v as usize * width..(v as usize + 1) * width]).copied().collect()
}

/// Variant of [`rows`] through the scratch, for tables beyond memory.
fn kept_rows<T: Element>(scratch: &Scratch, data: &[T], dim: usize, kept: &[NodeId]) -> Result<Buffer<T>> {
    let mut out = scratch.rows("component-features", dim)?;
    if dim > 0 {
        kept.chunks(CHUNK_LEN.div_ceil(dim)).try_for_each(|kept| out.extend(&rows(data, dim, kept)))?;
    }
    out.finish()
}

/// Purposes of random numbers, part of the stream's key.
const PER_CLASS: u64 = 1;
const RANDOM: u64 = 2;

/// Draws `train` and `valid` nodes of every class and uses all other labelled nodes for testing
/// (Shchur et al. 2018, section 3). Classes without labelled nodes are skipped.
fn per_class(dataset: &Dataset, train: usize, valid: usize, seed: u64) -> Result<Split> {
    let Labels::Single { class, .. } = &dataset.labels else {
        return Err(Error::invalid(
            "split planetoid: nodes have several classes here; use random:A,B,C instead",
        ));
    };
    let mut members: BTreeMap<i32, Vec<NodeId>> = BTreeMap::new();
    for (v, &c) in class.iter().enumerate().filter(|(_, c)| **c >= 0) {
        members.entry(c).or_default().push(v as NodeId);
    }
    if members.is_empty() {
        return Err(Error::invalid("split planetoid: no node has a label"));
    }
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for (c, mut nodes) in members {
        if nodes.len() < train.saturating_add(valid) {
            return Err(Error::invalid(format!(
                "split planetoid:{train},{valid}: class {c} has only {} labelled nodes; ask for fewer, or \
                 use random:A,B,C",
                nodes.len()
            )));
        }
        Stream::new(key(&[seed, PER_CLASS, c as u64])).shuffle(&mut nodes);
        parts[0].extend_from_slice(&nodes[..train]);
        parts[1].extend_from_slice(&nodes[train..train + valid]);
        parts[2].extend_from_slice(&nodes[train + valid..]);
    }
    Ok(sorted(parts))
}

/// Draws fractions of `nodes`, the labelled ones in ascending order; each bound is rounded to the
/// nearest node.
fn random(mut nodes: Vec<NodeId>, fractions: [f64; 3], seed: u64) -> Result<Split> {
    let total = nodes.len();
    Stream::new(key(&[seed, RANDOM])).shuffle(&mut nodes);
    let mut sum = 0.0;
    let ends = fractions.map(|fraction| {
        sum += fraction;
        ((sum * total as f64).round() as usize).min(total)
    });
    if ends[0] == 0 {
        return Err(Error::invalid(format!(
            "split random: {} of {total} labelled nodes leave none to train on",
            fractions[0]
        )));
    }
    Ok(sorted([
        nodes[..ends[0]].to_vec(),
        nodes[ends[0]..ends[1]].to_vec(),
        nodes[ends[1]..ends[2]].to_vec(),
    ]))
}

fn sorted(mut parts: [Vec<NodeId>; 3]) -> Split {
    parts.iter_mut().for_each(|part| part.sort_unstable());
    let [train, valid, test] = parts;
    Split { train: train.into(), valid: valid.into(), test: test.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{NamedGraph, Normalization};

    /// Two components, {0, 2, 4} and {1, 3}, and the isolated node 5.
    fn raw() -> Raw {
        raw_of(&ImportOptions::default(), false)
    }

    fn raw_of(options: &ImportOptions, undirected: bool) -> Raw {
        let mut edges = Scratch::in_memory().edges(options.edge_options(undirected));
        edges.extend(&[0, 2, 1, 0, 2], &[2, 4, 3, 2, 2]).unwrap();
        Raw {
            name: "tiny".into(),
            num_nodes: 6,
            edges,
            omit_unit_weights: false,
            features: Features::f32(2, vec![1., 1., 9., 9., 3., 1., 9., 9., 5., 1., 0., 0.]),
            labels: Labels::Single { class: vec![0, 1, 1, 0, -1, 0].into(), classes: 2 },
            splits: vec![
                Split { train: vec![0, 1].into(), valid: vec![2].into(), test: vec![3].into() },
                Split { train: vec![2].into(), valid: vec![].into(), test: vec![0].into() },
            ],
            graphs: Vec::new(),
            metric: None,
            normalization: None,
            report: Default::default(),
        }
    }

    fn finish(raw: Raw, source: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Dataset> {
        super::finish(raw, source, options, scratch).map(|imported| imported.dataset)
    }

    fn done(options: ImportOptions) -> Dataset {
        finish(raw_of(&options, false), Path::new("tiny"), &options, &Scratch::in_memory()).unwrap()
    }

    fn floats(dataset: &Dataset) -> Vec<f32> {
        match &dataset.features.data {
            FeatureData::F32(data) => data.to_vec(),
            FeatureData::F16(data) => data.iter().map(|x| x.to_f32()).collect(),
            FeatureData::Csr(data) => data.to_dense().unwrap(),
        }
    }

    #[test]
    fn edges_follow_the_options() {
        assert_eq!(done(ImportOptions::default()).graph.in_neighbors(2), [0, 2]);
        let options = ImportOptions { keep_duplicates: true, no_self_loops: true, ..Default::default() };
        assert_eq!(done(options).graph.in_neighbors(2), [0, 0]);
        let options = ImportOptions { undirected: true, ..Default::default() };
        assert_eq!(done(options).graph.in_neighbors(2), [0, 2, 4]);
        let options = ImportOptions { keep_duplicates: true, ..Default::default() };
        let forced =
            finish(raw_of(&options, true), Path::new("tiny"), &options, &Scratch::in_memory()).unwrap();
        assert_eq!((forced.graph.in_neighbors(2), forced.graph.num_edges()), (&[0, 4][..], 6));
    }

    #[test]
    fn the_largest_component_keeps_the_data_of_its_nodes() {
        let dataset = done(ImportOptions { largest_component: true, ..Default::default() });
        assert_eq!(dataset.num_nodes(), 3);
        assert_eq!(dataset.graph.in_neighbors(1), [0, 1]);
        assert_eq!(dataset.graph.in_neighbors(2), [1]);
        assert_eq!(floats(&dataset), [1., 1., 3., 1., 5., 1.]);
        let Labels::Single { class, classes: 2 } = &dataset.labels else { panic!() };
        assert_eq!(class[..], [0, 1, -1]);
        assert_eq!((&dataset.split.train[..], &dataset.split.valid[..]), (&[0][..], &[1][..]));
        assert!(dataset.split.test.is_empty());
    }

    #[test]
    fn graphs_are_split_by_name_and_follow_the_component() {
        let graphs = || Raw {
            num_nodes: 6,
            graphs: vec![NamedGraph::new("most", 0..5), NamedGraph::new("lone", 5..6)],
            ..raw()
        };
        let rule = |rule: &str| ImportOptions { split: Some(rule.parse().unwrap()), ..Default::default() };
        let dataset =
            finish(graphs(), Path::new("tiny"), &rule("graphs:most//lone"), &Scratch::in_memory()).unwrap();
        assert_eq!((&dataset.split.train[..], &dataset.split.test[..]), (&[0, 1, 2, 3][..], &[5][..]));
        let options = ImportOptions { largest_component: true, ..Default::default() };
        let dataset = finish(graphs(), Path::new("tiny"), &options, &Scratch::in_memory()).unwrap();
        assert_eq!(dataset.graphs, [NamedGraph::new("most", 0..3)]);
        let error = finish(graphs(), Path::new("tiny"), &rule("graphs:most/all/lone"), &Scratch::in_memory())
            .unwrap_err()
            .to_string();
        assert!(error.contains("unknown graph 'all'; known: most, lone"), "{error}");
        assert!(finish(raw(), Path::new("tiny"), &rule("graphs:a//"), &Scratch::in_memory()).is_err());
    }

    #[test]
    fn given_splits_are_numbered() {
        let rule = |k| ImportOptions { split: Some(SplitRule::Given(k)), ..Default::default() };
        assert_eq!(done(rule(1)).split.train[..], [2]);
        assert_eq!(done(ImportOptions::default()).split.train[..], [0, 1]);
        let error =
            finish(raw(), Path::new("tiny"), &rule(2), &Scratch::in_memory()).unwrap_err().to_string();
        assert!(error.contains("2 split(s)"), "{error}");
        let none = Raw { splits: vec![], ..raw() };
        assert!(
            finish(none, Path::new("tiny"), &rule(0), &Scratch::in_memory())
                .unwrap_err()
                .to_string()
                .contains("no split")
        );
    }

    #[test]
    fn splits_of_a_dataset_in_memory_are_those_of_an_import() {
        for text in ["planetoid:1,1", "random:40,20,40", "random:0.4,0.2,0.4"] {
            let rule: SplitRule = text.parse().unwrap();
            let imported = done(ImportOptions { split: Some(rule.clone()), ..Default::default() });
            let parts = |split: &Split| split.parts().map(|(_, ids)| ids.to_vec());
            let drawn = draw_split(&done(ImportOptions::default()), &rule, 0).unwrap();
            assert_eq!(parts(&drawn), parts(&imported.split), "{text}");
        }
        let error = draw_split(&done(ImportOptions::default()), &SplitRule::Given(0), 0).unwrap_err();
        assert!(error.to_string().contains("use planetoid:TRAIN,VALID or random:A,B,C"), "{error}");
    }

    #[test]
    fn computed_splits_cover_the_labelled_nodes_and_depend_on_the_seed() {
        let rule = |rule: &str, split_seed| {
            let split = Some(rule.parse().unwrap());
            done(ImportOptions { split, split_seed, ..Default::default() }).split
        };
        let all = |split: &Split| {
            let mut all = [&split.train[..], &split.valid, &split.test].concat();
            all.sort_unstable();
            all
        };
        let split = rule("planetoid:1,1", 0);
        assert_eq!(all(&split), [0, 1, 2, 3, 5]);
        assert_eq!((split.train.len(), split.valid.len(), split.test.len()), (2, 2, 1));
        let split = rule("random:0.4,0.2,0.4", 0);
        assert_eq!(all(&split), [0, 1, 2, 3, 5]);
        assert_eq!((split.train.len(), split.valid.len(), split.test.len()), (2, 1, 2));
        let trains: std::collections::BTreeSet<Vec<u32>> =
            (0..20).map(|seed| rule("random:0.4,0.2,0.4", seed).train.to_vec()).collect();
        assert!(trains.len() > 3, "seeds make no difference");
        assert_eq!(rule("random:0.4,0,0", 3).train[..], rule("random:0.4,0,0", 3).train[..]);
        let fails = |rule: &str| {
            let options = ImportOptions { split: Some(rule.parse().unwrap()), ..Default::default() };
            finish(raw(), Path::new("tiny"), &options, &Scratch::in_memory()).unwrap_err().to_string()
        };
        assert!(fails("planetoid:2,1").contains("class 1 has only 2"), "{}", fails("planetoid:2,1"));
        assert!(fails("random:0.01,0.5,0.1").contains("none to train on"));
    }

    #[test]
    fn features_are_normalized_by_rows_or_columns() {
        let dataset = done(ImportOptions { normalize: Normalize::Rows, ..Default::default() });
        assert_eq!(floats(&dataset)[4..6], [0.75, 0.25]);
        assert_eq!(floats(&dataset)[10..], [0.0, 0.0]);
        // Training nodes 0 and 1: column 0 is 1 and 9, column 1 is 1 and 9.
        let dataset = done(ImportOptions { normalize: Normalize::Standard, ..Default::default() });
        assert_eq!(floats(&dataset)[..6], [-1., -1., 1., 1., -0.5, -1.]);
        // A single training node: every column is constant, so it is only shifted.
        let split = Some(SplitRule::Given(1));
        let dataset = done(ImportOptions { normalize: Normalize::Standard, split, ..Default::default() });
        assert_eq!(floats(&dataset)[..6], [-2., 0., 6., 8., 0., 0.]);
        let none = Raw { splits: vec![], ..raw() };
        let options = ImportOptions { normalize: Normalize::Standard, ..Default::default() };
        let error = finish(none, Path::new("tiny"), &options, &Scratch::in_memory()).unwrap_err().to_string();
        assert!(error.contains("training nodes"), "{error}");
    }

    #[test]
    fn sparse_features_take_the_same_steps() {
        let sparse =
            |dense: Vec<f32>| Features::csr(graphmill_core::SparseRows::from_dense(2, &dense).unwrap());
        let values = vec![1., 0., 9., 9., 0., 3., 9., 0., 5., 1., 0., 0.];
        for normalize in [Normalize::None, Normalize::Rows] {
            let options = ImportOptions { normalize, largest_component: true, ..Default::default() };
            let import = |features| {
                let raw = Raw { features, ..raw() };
                finish(raw, Path::new("tiny"), &options, &Scratch::in_memory()).unwrap()
            };
            let (dense, sparse) = (import(Features::f32(2, values.clone())), import(sparse(values.clone())));
            assert_eq!(floats(&sparse), floats(&dense), "{normalize}");
            assert!(matches!(sparse.features.data, FeatureData::Csr(_)), "{normalize}");
            assert_eq!(sparse.normalization, dense.normalization);
        }
    }

    /// Subtracting means would fill in every zero.
    #[test]
    fn sparse_features_are_scaled_without_centring_and_stay_sparse() {
        let values = vec![1., 0., 9., 9., 0., 3., 9., 0., 5., 1., 0., 0.];
        let options = ImportOptions { normalize: Normalize::Standard, ..Default::default() };
        let import = |features| {
            let raw = Raw { features, ..raw() };
            super::finish(raw, Path::new("tiny"), &options, &Scratch::in_memory()).unwrap()
        };
        let dense = import(Features::f32(2, values.clone()));
        let sparse = import(Features::csr(graphmill_core::SparseRows::from_dense(2, &values).unwrap()));
        assert!(matches!(sparse.dataset.features.data, FeatureData::Csr(_)));
        let of = |imported: &Imported| match imported.dataset.normalization.clone() {
            Some(Normalization::Standard { mean, deviation }) => (mean, deviation),
            other => panic!("{other:?}"),
        };
        let ((mean, deviation), (none, alike)) = (of(&dense), of(&sparse));
        assert_eq!((mean, &deviation, none), (Some(vec![5., 4.5]), &vec![4., 4.5], None));
        assert_eq!(deviation, alike);
        let expected: Vec<f32> =
            values.iter().zip([4., 4.5].into_iter().cycle()).map(|(x, deviation)| x / deviation).collect();
        assert_eq!(floats(&sparse.dataset), expected);
        let [dense, sparse] = [dense, sparse].map(|imported| imported.report);
        let text = sparse.to_string();
        for word in ["without centring", "112 B", "dense-features", "48 B"] {
            assert!(text.contains(word), "'{word}' not in: {text}");
        }
        assert!(!sparse.normalization.unwrap().centred);
        let report = dense.normalization.unwrap();
        assert!(report.centred && report.fitted_on == 2 && report.kind == "standard");
    }

    #[test]
    fn inconsistent_parts_are_rejected_with_the_source() {
        let wrong = Raw { labels: Labels::Single { class: vec![0].into(), classes: 1 }, ..raw() };
        let error = finish(wrong, Path::new("tiny"), &ImportOptions::default(), &Scratch::in_memory())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("tiny: import: 1 labels for 6 nodes"), "{error}");
        let wrong = Raw { num_nodes: usize::MAX, ..raw() };
        assert!(finish(wrong, Path::new("tiny"), &ImportOptions::default(), &Scratch::in_memory()).is_err());
    }
}
