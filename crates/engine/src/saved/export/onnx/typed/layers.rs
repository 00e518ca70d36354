//! Typed layers without edge features.

use super::{Place, Rows, rows};
use crate::{
    Result,
    checkpoint::tensors::Tensor,
    saved::export::onnx::{graph::Target, layers::Builder, parts::ATTENTION_SLOPE},
};

/// R-SAGE and R-GCN: the sum of the own row and of the neighbours' means by edge type, each with
/// weights.
pub(super) fn relation_sum(builder: &mut Builder, place: &Place, t: usize, x: &Rows) -> Result<String> {
    let is_shared = place.shape.word("model") == "rgcn";
    let name = if is_shared { place.shared() } else { place.of_type(t) };
    let mut sum = own_rows(builder, place, (t, &name), x)?;
    for (r, from, edges) in place.read_entering(t) {
        let mean = builder.mean(rows(x, from), &edges.edges, place.widths.0);
        let weight = relation_weight(builder, place, r)?;
        let part = builder.graph.op("MatMul", &[&mean, &weight]);
        sum = builder.add(&sum, &part);
    }
    Ok(sum)
}

/// Own rows of type `t` with weights whose names begin with `name`, or its bias alone.
fn own_rows(builder: &mut Builder, place: &Place, (t, name): (usize, &str), x: &Rows) -> Result<String> {
    let count = place.count(t);
    if place.shape.0["no_own_rows"] == true {
        let bias = builder.constant(&format!("{}bias", place.of_type(t)))?;
        return Ok(builder.copies(&bias, count, place.widths.1));
    }
    let own = builder.graph.first(rows(x, t), count);
    let own = builder.product(&own, &format!("{name}own."))?;
    builder.bias(&own, name)
}

/// Weights of an edge type: its own, a sum of the bases, or blocks on a diagonal.
fn relation_weight(builder: &mut Builder, place: &Place, r: usize) -> Result<String> {
    let (name, [bases, blocks]) = (place.of_relation(r), ["bases", "blocks"].map(|n| place.shape.number(n)));
    let shape = [place.widths.0, place.widths.1];
    if bases > 0 {
        let coefficients = &builder.params.get(&format!("{name}coefficients"))?.data;
        let mut sum = vec![0.0; shape[0] * shape[1]];
        for (b, factor) in coefficients.iter().enumerate() {
            let number = if b == 0 { String::new() } else { format!(".{b}") };
            let basis = &builder.params.get(&format!("{}basis{number}", place.shared()))?.data;
            sum.iter_mut().zip(basis).for_each(|(sum, x)| *sum += factor * x);
        }
        return Ok(builder.graph.floats(&format!("{name}weight"), &shape, &sum));
    }
    if blocks > 0 {
        return diagonal(builder, &format!("{name}blocks"), blocks);
    }
    builder.constant(&format!("{name}weight"))
}

/// The square matrix with the blocks of a parameter, which stand side by side, on its diagonal.
fn diagonal(builder: &mut Builder, name: &str, blocks: usize) -> Result<String> {
    let Tensor { shape: [size, cols], data, .. } = builder.params.get(name)?;
    let (rows, width) = (size * blocks, cols / blocks);
    let mut dense = vec![0.0; rows * cols];
    for (i, row) in data.chunks_exact(*cols).enumerate() {
        for (b, part) in row.chunks_exact(width).enumerate() {
            dense[(b * size + i) * cols + b * width..][..width].copy_from_slice(part);
        }
    }
    Ok(builder.graph.floats(&format!("{name}.diagonal"), &[rows, *cols], &dense))
}

/// R-GAT: the sum of the own row and of graph attention to the neighbours of each edge type.
pub(super) fn rgat(builder: &mut Builder, place: &Place, t: usize, x: &Rows) -> Result<String> {
    let heads = place.heads();
    let mut sum = own_rows(builder, place, (t, &place.of_type(t)), x)?;
    let own = builder.graph.first(rows(x, t), place.count(t));
    for (r, from, typed) in place.read_entering(t) {
        let (name, edges) = (place.of_relation(r), &typed.edges);
        let [z, of_own] = [rows(x, from), own.as_str()].map(|x| builder.product(x, &name));
        let [z, of_own] = [z?, of_own?].map(|x| builder.split_heads(&x, heads));
        let source = builder.score(&z, heads, &format!("{name}source"))?;
        let target = builder.score(&of_own, heads, &format!("{name}target"))?;
        let [source, target] =
            [(&source, &edges.source), (&target, &edges.target)].map(|(x, at)| builder.graph.gather(x, at));
        let score = builder.add(&source, &target);
        let score = builder.leaky(&score, ATTENTION_SLOPE);
        let z = builder.graph.gather(&z, &edges.source);
        let part = builder.softmax_sum(&z, &score, edges.target(), (heads, place.is_last));
        sum = builder.add(&sum, &part);
    }
    Ok(sum)
}

/// HGT: attention by keys, queries and values of the types, with matrices of the edge types and a
/// skip.
pub(super) fn hgt(builder: &mut Builder, place: &Place, t: usize, x: &Rows) -> Result<String> {
    let (heads, name) = (place.heads(), place.of_type(t));
    let own = builder.graph.first(rows(x, t), place.count(t));
    let query = builder.linear(&own, &format!("{name}query."))?;
    let query = builder.split_heads(&query, heads);
    let (mut scores, mut messages, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for (r, from, typed) in place.read_entering(t) {
        let (name, from_name, edges) = (place.of_relation(r), place.of_type(from), &typed.edges);
        let mut mapped = |part: &str, matrix: &str| -> Result<String> {
            let rows = builder.linear(rows(x, from), &format!("{from_name}{part}."))?;
            let matrix = diagonal(builder, &format!("{name}{matrix}"), heads.0)?;
            let rows = builder.graph.op("MatMul", &[&rows, &matrix]);
            let rows = builder.split_heads(&rows, heads);
            Ok(builder.graph.gather(&rows, &edges.source))
        };
        let (key, value) = (mapped("key", "attention")?, mapped("value", "message")?);
        let of_target = builder.graph.gather(&query, &edges.target);
        let score = builder.dot(&key, &of_target);
        let root = (heads.1 as f32).sqrt();
        let prior: Vec<f32> =
            builder.params.get(&format!("{name}prior"))?.data.iter().map(|prior| prior / root).collect();
        let prior = builder.graph.floats(&format!("{name}factor"), &[1, heads.0], &prior);
        scores.push(builder.graph.op("Mul", &[&score, &prior]));
        messages.push(value);
        targets.push(edges.target.clone());
    }
    let mixed = attended(builder, place, t, [scores, messages, targets]);
    let mixed = builder.gelu(&mixed);
    let mixed = builder.linear(&mixed, &format!("{name}out."))?;
    if place.widths.0 != place.widths.1 {
        return Ok(mixed);
    }
    let share = 1.0 / (1.0 + (-builder.params.get(&format!("{name}skip"))?.data[0]).exp());
    let [of_mixed, of_own] = [("share", share), ("rest", 1.0 - share)]
        .map(|(part, value)| builder.graph.floats(&format!("{name}{part}"), &[], &[value]));
    let mixed = builder.graph.op("Mul", &[&mixed, &of_mixed]);
    let own = builder.graph.op("Mul", &[&own, &of_own]);
    Ok(builder.add(&mixed, &own))
}

/// Simple-HGN: attention to the neighbours and the own row, whose scores have a term for each edge
/// type.
pub(super) fn simple_hgn(builder: &mut Builder, place: &Place, t: usize, x: &Rows) -> Result<String> {
    let (heads, name, count) = (place.heads(), place.shared(), place.count(t));
    let slope = place.shape.0["negative_slope"].as_f64().unwrap_or_default() as f32;
    let own = builder.graph.first(rows(x, t), count);
    let product = builder.product(&own, &name)?;
    let own_z = builder.split_heads(&product, heads);
    let target = builder.score(&own_z, heads, &format!("{name}target"))?;
    let own_source = builder.score(&own_z, heads, &format!("{name}source"))?;
    let terms = relation_terms(builder, &name, heads.0)?;
    let term = |builder: &mut Builder, r: usize| {
        builder.graph.floats(&format!("{name}term.{r}"), &[1, heads.0], &terms[r])
    };
    // the own row has the last term
    let own_term = term(builder, terms.len() - 1);
    let score = builder.add(&own_source, &own_term);
    let score = builder.add(&score, &target);
    let (mut scores, mut messages) = (vec![builder.leaky(&score, slope)], vec![own_z]);
    let mut targets = vec![builder.numbers(count)];
    for (r, from, typed) in place.read_entering(t) {
        let edges = &typed.edges;
        let z = builder.product(rows(x, from), &name)?;
        let z = builder.split_heads(&z, heads);
        let source = builder.score(&z, heads, &format!("{name}source"))?;
        let [source, of_target] =
            [(&source, &edges.source), (&target, &edges.target)].map(|(x, at)| builder.graph.gather(x, at));
        let of_relation = term(builder, r);
        let score = builder.add(&source, &of_relation);
        let score = builder.add(&score, &of_target);
        scores.push(builder.leaky(&score, slope));
        messages.push(builder.graph.gather(&z, &edges.source));
        targets.push(edges.target.clone());
    }
    let mut mixed = attended(builder, place, t, [scores, messages, targets]);
    if place.layer > 0 {
        let residual = builder.product(&own, &format!("{name}residual."))?;
        mixed = builder.add(&mixed, &residual);
    }
    if place.is_last {
        mixed = builder.graph.mean_of_parts(&mixed, heads.0, heads.1);
        mixed = builder.unit_length(&mixed);
    }
    Ok(mixed)
}

/// Terms of the scores by edge type and head, and last those of the own row.
fn relation_terms(builder: &Builder, name: &str, heads: usize) -> Result<Vec<Vec<f32>>> {
    let [rows, weight, edge] =
        ["relation", "relation.weight", "edge"].map(|part| builder.params.get(&format!("{name}{part}")));
    let (rows, weight, edge) = (rows?, weight?, edge?);
    let (dim, width) = (rows.shape[1], weight.shape[1] / heads);
    let term = |row: &[f32], head: usize| -> f32 {
        let columns = head * width..(head + 1) * width;
        let product = |c: usize| (0..dim).map(|i| row[i] * weight.data[i * weight.shape[1] + c]).sum::<f32>();
        columns.map(|c| product(c) * edge.data[c]).sum()
    };
    let of_row = |row: &[f32]| (0..heads).map(|head| term(row, head)).collect();
    Ok(rows.data.chunks_exact(dim).map(of_row).collect())
}

/// Messages (`E x H x C`) weighted by the softmax of their scores (`E x H`) over the destinations
/// of type `t`, the heads side by side; zeros without edges.
pub(super) fn attended(
    builder: &mut Builder,
    place: &Place,
    t: usize,
    [scores, messages, targets]: [Vec<String>; 3],
) -> String {
    let (heads, count) = (place.heads(), place.count(t));
    if scores.is_empty() {
        let zero = builder.graph.floats("zero", &[], &[0.0]);
        return builder.copies(&zero, count, heads.0 * heads.1);
    }
    let [scores, messages, to] = [scores, messages, targets].map(|lists| builder.stack(&lists));
    builder.softmax_sum(&messages, &scores, Target { to: &to, count }, (heads, false))
}
