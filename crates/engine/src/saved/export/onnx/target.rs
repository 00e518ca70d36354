//! Values at the scale of the targets: the inverse of their transform.

use serde_json::Value as Json;

use super::{
    graph::Graph,
    message::{Attribute, INT64},
};

/// The outputs `x` at the scale of the targets of `options`, or `x` if these are classes.
pub(super) fn values(graph: &mut Graph, options: &Json, x: String) -> String {
    let scale = &options["target_scale"];
    let (Some(mean), Some(deviation)) = (numbers(&scale["mean"]), numbers(&scale["deviation"])) else {
        return x;
    };
    let deviation = graph.floats("target.deviation", &[1, deviation.len()], &deviation);
    let mean = graph.floats("target.mean", &[1, mean.len()], &mean);
    let scaled = graph.op("Mul", &[&x, &deviation]);
    let x = graph.op("Add", &[&scaled, &mean]);
    match scale["transform"].as_str() {
        Some("log") => {
            // exp(|x|) - 1 with the sign of x, without the cancellation near 0
            let [one, half] = [1.0, 0.5].map(|value| number(graph, value));
            let size = graph.op("Abs", &[&x]);
            let power = graph.op("Exp", &[&size]);
            let sum = graph.op("Add", &[&power, &one]);
            let halved = graph.op("Mul", &[&x, &half]);
            let tangent = graph.op("Tanh", &[&halved]);
            graph.op("Mul", &[&tangent, &sum])
        }
        Some("quantile") => {
            let all = scale["quantiles"].as_array().into_iter().flatten().filter_map(numbers);
            let columns: Vec<String> = all
                .enumerate()
                .map(|(c, quantiles)| {
                    let column = graph.columns(&x, c..c + 1);
                    by_quantiles(graph, &column, c, &quantiles)
                })
                .collect();
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            graph.op_with("Concat", &columns, vec![Attribute::int("axis", 1)])
        }
        _ => x,
    }
}

/// Numbers of a JSON array.
fn numbers(array: &Json) -> Option<Vec<f32>> {
    array.as_array()?.iter().map(|value| value.as_f64().map(|value| value as f32)).collect()
}

/// A constant of one number.
fn number(graph: &mut Graph, value: f32) -> String {
    graph.floats(&format!("target.{value}"), &[], &[value])
}

/// Values of the normal scores `x` (`N x 1`) of target `c`, on the line through its quantiles.
fn by_quantiles(graph: &mut Graph, x: &str, c: usize, quantiles: &[f32]) -> String {
    let count = quantiles.len() as f32;
    let [root, one, half, zero] = [0.5f32.sqrt(), 1.0, 0.5, 0.0].map(|value| number(graph, value));
    let [count, last] = [count, count - 1.0].map(|value| number(graph, value));
    let scaled = graph.op("Mul", &[x, &root]);
    let erf = graph.op("Erf", &[&scaled]);
    let sum = graph.op("Add", &[&erf, &one]);
    let share = graph.op("Mul", &[&sum, &half]);
    let places = graph.op("Mul", &[&share, &count]);
    let rank = graph.op("Sub", &[&places, &half]);
    let rank = graph.op("Clip", &[&rank, &zero, &last]);
    let low = graph.op("Floor", &[&rank]);
    let next = graph.op("Add", &[&low, &one]);
    let high = graph.op("Min", &[&next, &last]);
    let table = graph.floats(&format!("target.quantiles.{c}"), &[quantiles.len()], quantiles);
    let [low_value, high_value] = [&low, &high].map(|place| {
        let place = graph.op_with("Cast", &[place], vec![Attribute::int("to", INT64.into())]);
        graph.gather(&table, &place)
    });
    let part = graph.op("Sub", &[&rank, &low]);
    let difference = graph.op("Sub", &[&high_value, &low_value]);
    let more = graph.op("Mul", &[&part, &difference]);
    graph.op("Add", &[&low_value, &more])
}
