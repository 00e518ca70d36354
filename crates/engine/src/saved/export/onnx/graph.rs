//! A graph of ONNX operations under construction. Every value has a name; an operation returns that
//! of its output.

use std::ops::Range;

use super::message::{
    Attribute, Dim, FLOAT, GraphProto, INT64, Node, Shape, TensorProto, TensorType, Type, ValueInfo,
};

/// Operations, constants and inputs so far.
#[derive(Default)]
pub(super) struct Graph(GraphProto);

impl Graph {
    /// Declares an input. `doc` says what it holds.
    pub(super) fn input(&mut self, name: &str, elem_type: i32, dims: Vec<Dim>, doc: &str) -> String {
        self.0.input.push(value(name, elem_type, dims, doc));
        name.into()
    }

    /// Declares the value `from` as the output `name`, of 32-bit floats. `doc` says what it holds.
    pub(super) fn output(&mut self, name: &str, from: &str, dims: Vec<Dim>, doc: &str) {
        self.0.node.push(Node {
            input: vec![from.into()],
            output: vec![name.into()],
            name: name.into(),
            op_type: "Identity".into(),
            attribute: Vec::new(),
        });
        self.0.output.push(value(name, FLOAT, dims, doc));
    }

    /// The finished graph.
    pub(super) fn finish(mut self) -> GraphProto {
        self.0.name = "graphmill".into();
        self.0
    }

    /// A constant of 32-bit floats.
    pub(super) fn floats(&mut self, name: &str, dims: &[usize], data: &[f32]) -> String {
        let raw = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.constant(name, FLOAT, dims, raw)
    }

    /// A constant of 64-bit integers, named after its values.
    pub(super) fn ints(&mut self, dims: &[usize], data: &[i64]) -> String {
        let words: Vec<String> = data.iter().map(i64::to_string).collect();
        let name = format!("int{}.{}", dims.len(), words.join("_"));
        let raw = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.constant(&name, INT64, dims, raw)
    }

    fn constant(&mut self, name: &str, data_type: i32, dims: &[usize], raw_data: Vec<u8>) -> String {
        if self.0.initializer.iter().all(|tensor| tensor.name != name) {
            let dims = dims.iter().map(|&n| n as i64).collect();
            self.0.initializer.push(TensorProto { dims, data_type, name: name.into(), raw_data });
        }
        name.into()
    }

    /// Adds an operation.
    pub(super) fn op(&mut self, kind: &str, inputs: &[&str]) -> String {
        self.op_with(kind, inputs, Vec::new())
    }

    /// Adds an operation with attributes.
    pub(super) fn op_with(&mut self, kind: &str, inputs: &[&str], attribute: Vec<Attribute>) -> String {
        let name = format!("{kind}.{}", self.0.node.len());
        self.0.node.push(Node {
            input: inputs.iter().map(|&input| input.into()).collect(),
            output: vec![name.clone()],
            name: name.clone(),
            op_type: kind.into(),
            attribute,
        });
        name
    }

    /// Rows of `x` that `indices` name.
    pub(super) fn gather(&mut self, x: &str, indices: &str) -> String {
        self.op_with("Gather", &[x, indices], vec![Attribute::int("axis", 0)])
    }

    /// The first rows of `x`, as many as `count` (one number) says.
    pub(super) fn first(&mut self, x: &str, count: &str) -> String {
        let zero = self.ints(&[1], &[0]);
        self.op("Slice", &[x, &zero, count, &zero])
    }

    /// A range of the columns of `x`.
    pub(super) fn columns(&mut self, x: &str, range: Range<usize>) -> String {
        let [first, end, one] = [range.start, range.end, 1].map(|n| self.ints(&[1], &[n as i64]));
        self.op("Slice", &[x, &first, &end, &one])
    }

    /// Mean of the `parts` of each row, which stand side by side and are `width` wide.
    pub(super) fn mean_of_parts(&mut self, x: &str, parts: usize, width: usize) -> String {
        let shape = self.ints(&[3], &[-1, parts as i64, width as i64]);
        let x = self.op("Reshape", &[x, &shape]);
        let one = self.ints(&[1], &[1]);
        self.op_with("ReduceMean", &[&x, &one], vec![Attribute::int("keepdims", 0)])
    }

    /// Reduces rows by destination: `count x width` values that begin as `initial`, of which those
    /// of row `to[e]` take in row `e` of `rows` by `reduction`.
    pub(super) fn scatter(
        &mut self,
        rows: &str,
        Target { to, count }: Target,
        width: usize,
        (reduction, initial): (&str, f32),
    ) -> String {
        let width = self.ints(&[1], &[width as i64]);
        let shape = self.op_with("Concat", &[count, &width], vec![Attribute::int("axis", 0)]);
        let initial = self.floats(&format!("initial.{initial}"), &[], &[initial]);
        let start = self.op("Expand", &[&initial, &shape]);
        let one = self.ints(&[1], &[1]);
        let indices = self.op("Unsqueeze", &[to, &one]);
        // an index for each value: ScatterND needs one for each row, but onnxruntime's adds rows of
        // the same destination in several threads without a lock
        let shape = self.op("Shape", &[rows]);
        let indices = self.op("Expand", &[&indices, &shape]);
        let attributes = vec![Attribute::int("axis", 0), Attribute::text("reduction", reduction)];
        self.op_with("ScatterElements", &[&start, &indices, rows], attributes)
    }

    /// Sums of the rows of each destination.
    pub(super) fn sum(&mut self, rows: &str, target: Target, width: usize) -> String {
        self.scatter(rows, target, width, ("add", 0.0))
    }
}

/// Destinations of edges.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// Destination row of each edge.
    pub(super) to: &'a str,
    /// Number of destinations, a vector of one number.
    pub(super) count: &'a str,
}

/// Description of an input or output.
fn value(name: &str, elem_type: i32, dim: Vec<Dim>, doc: &str) -> ValueInfo {
    let tensor = Some(TensorType { elem_type, shape: Some(Shape { dim }) });
    ValueInfo { name: name.into(), kind: Some(Type { tensor }), doc_string: doc.into() }
}
