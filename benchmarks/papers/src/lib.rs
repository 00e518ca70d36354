//! Reproductions of the papers' own figures, and formulas of theirs that no strategy uses.
//!
//! | module | content | command |
//! | --- | --- | --- |
//! | [`fgnn`] | FGNN's epochs on eight devices, predicted and compared with the published ones | `graphmill plan --paper fgnn` |
//! | [`bgl_user_item`] | BGL's largest graph on 4 to 64 machines | `graphmill plan --paper bgl` |
//! | [`bgl_stages`], [`fit`] | BGL's allocation of cores and bandwidth to its eight stages | `cargo run -p graphmill-papers -- bgl-stages FILE` |
//!
//! `cargo run -p graphmill-papers -- NAME` runs each of them without the command-line program.

#![forbid(unsafe_code)]

pub mod bgl_stages;
pub mod bgl_user_item;
pub mod fgnn;
pub mod fit;
