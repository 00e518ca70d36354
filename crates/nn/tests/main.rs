//! Tests of layers and operations, one module each. They are one program, because to link a program
//! takes longer than most of them run. Those that count allocations are a program of their own.
//! `cargo test -p graphmill-nn --test main gradients::` runs one module.

mod backend_bf16;
mod backend_cpu;
mod dygformer;
mod edges;
mod formulas;
mod gradients;
mod link;
mod model;
mod operations;
mod restricted;
mod reuse;
mod rows_alone;
mod slices;
mod sparse;
mod support;
mod table;
mod temporal;
mod typed;
