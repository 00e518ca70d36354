//! Documents of answers, in JSON.
//!
//! Documents are written as they are read, without a tree of values: most of a small answer's time
//! would go there. A score has the shortest decimal that is read as the same 32-bit number.

use std::ops::Range;

use graphmill_core::{ClassColumn, NodeId};
use graphmill_engine::predictor::{Answers, NewAnswers, Predictor, Task};
use serde::Serialize;

use crate::new_nodes::unknown_values;

/// Answers to be written.
pub(crate) struct Reply<'r> {
    pub(crate) predictor: &'r Predictor,
    pub(crate) answers: &'r Answers,
    /// Known nodes, or else `new`.
    pub(crate) nodes: &'r [NodeId],
    pub(crate) new: Option<&'r NewAnswers>,
    /// Number of the most likely classes to name.
    pub(crate) top_k: Option<usize>,
}

impl Reply<'_> {
    /// Key of the answer number `i`.
    pub(crate) fn key(&self, i: usize) -> Option<String> {
        match self.new {
            Some(new) => new.keys.get(i).cloned(),
            None => self.predictor.key(self.nodes[i]),
        }
    }

    /// Scores of the answer number `i`.
    fn scores(&self, i: usize) -> &[f32] {
        &self.answers.scores[i * self.answers.cols..(i + 1) * self.answers.cols]
    }

    /// The scores of a node that belong together: those of each column of classes, or all.
    pub(crate) fn parts(&self) -> Vec<Part<'_>> {
        let names = self.predictor.class_names();
        let columns = self.predictor.class_columns();
        if columns.is_empty() {
            return vec![Part { number: 0, column: None, names, range: 0..self.answers.cols }];
        }
        let part = |(number, range): (usize, Range<usize>)| {
            // other names than those of all classes are of another dataset
            let of_column = names.get(range.clone()).unwrap_or_default();
            Part { number, column: Some(&columns[number].name), names: of_column, range }
        };
        ClassColumn::ranges(columns).enumerate().map(part).collect()
    }

    /// The JSON document.
    pub(crate) fn json(&self) -> Vec<u8> {
        let (task, count) = (self.predictor.task(), self.answers.len());
        let parts = &self.parts()[..];
        let mut out = Vec::with_capacity(128 + count * (48 + 14 * self.answers.cols));
        out.extend(b"{\"task\":");
        put(&mut out, task.name());
        if task != Task::Values {
            out.extend(b",\"classes\":");
            put_parts(&mut out, parts, |out, part| {
                each(out, 0..part.range.len(), |out, class| part.put_class(out, class));
            });
        }
        out.extend(b",\"predictions\":");
        each(&mut out, 0..count, |out, i| self.put_prediction(out, parts, i));
        if let Some(new) = self.new {
            out.extend(b",\"new_edges\":");
            put(&mut out, &new.read.new_edges);
            out.extend(b",\"known_edges\":");
            put(&mut out, &new.read.known_edges);
            out.extend(b",\"unknown_values\":");
            put(&mut out, &unknown_values(new));
        }
        out.push(b'}');
        out
    }

    fn put_prediction(&self, out: &mut Vec<u8>, parts: &[Part], i: usize) {
        if self.new.is_some() {
            out.extend(b"{\"row\":");
            put(out, &i);
        } else {
            out.extend(b"{\"id\":");
            put(out, &self.nodes[i]);
        }
        if let Some(key) = self.key(i) {
            out.extend(b",\"key\":");
            put(out, &key);
        }
        if let Some(classes) = self.answers.classes.get(i * parts.len()..(i + 1) * parts.len()) {
            out.extend(b",\"class\":");
            put_parts(out, parts, |out, part| part.put_class(out, classes[part.number] as usize));
        }
        let scores = self.scores(i);
        if let Some(k) = self.top_k {
            out.extend(b",\"top\":");
            put_parts(out, parts, |out, part| part.put_top(out, &scores[part.range.clone()], k));
        } else {
            out.extend(match self.predictor.task() {
                Task::Values => &b",\"values\":"[..],
                Task::Classes | Task::Columns | Task::Labels => b",\"probabilities\":",
            });
            put_parts(out, parts, |out, part| put(out, &scores[part.range.clone()]));
        }
        out.push(b'}');
    }
}

/// Scores of a node that belong together.
pub(crate) struct Part<'r> {
    /// Number of the part, and of its class in an answer.
    pub(crate) number: usize,
    /// Name of the column of classes, if there are several.
    pub(crate) column: Option<&'r str>,
    /// Names of its classes; empty if they have none.
    pub(crate) names: &'r [String],
    /// Places of its scores among those of a node.
    pub(crate) range: Range<usize>,
}

impl Part<'_> {
    /// Writes the name of a class of the part, or its number.
    fn put_class(&self, out: &mut Vec<u8>, class: usize) {
        match self.names.get(class) {
            Some(name) => put(out, name),
            None => put(out, &class),
        }
    }

    /// Writes the `k` most likely classes by their `scores`.
    fn put_top(&self, out: &mut Vec<u8>, scores: &[f32], k: usize) {
        let mut ranks: Vec<usize> = (0..scores.len()).collect();
        ranks.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        each(out, ranks.into_iter().take(k), |out, class| {
            out.extend(b"{\"class\":");
            self.put_class(out, class);
            out.extend(b",\"probability\":");
            put(out, &scores[class]);
            out.push(b'}');
        });
    }
}

/// Writes the only part, or an object with each column of classes.
fn put_parts(out: &mut Vec<u8>, parts: &[Part], write: impl Fn(&mut Vec<u8>, &Part)) {
    for (i, part) in parts.iter().enumerate() {
        let Some(column) = part.column else {
            write(out, part);
            continue;
        };
        out.push(if i == 0 { b'{' } else { b',' });
        put(out, column);
        out.push(b':');
        write(out, part);
        if i + 1 == parts.len() {
            out.push(b'}');
        }
    }
}

/// Writes an array.
pub(crate) fn each<T>(
    out: &mut Vec<u8>,
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// Writes a value.
pub(crate) fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // writing to a vector cannot fail, and no value has keys that are not texts
    let _ = serde_json::to_writer(out, value);
}
