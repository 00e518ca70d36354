//! Inputs of the tests, and orders of models.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "every test file takes what it needs")]

pub use graphmill_nn::testing::{Checked, check, distance, dot, global, nudge, pass, random, random_block};
use graphmill_nn::{Model, ProductOrder, cost::BlockShape};

/// Every combination of orders that the layers support.
pub fn all_orders(model: &Model) -> Vec<Vec<ProductOrder>> {
    let sides =
        [BlockShape { dst: 1, src: 1000, edges: 1000 }, BlockShape { dst: 1000, src: 1, edges: 9000 }];
    let mut seen: Vec<Vec<ProductOrder>> = Vec::new();
    for choice in 0..1 << model.num_layers() {
        let shapes: Vec<BlockShape> = (0..model.num_layers()).map(|l| sides[choice >> l & 1]).collect();
        let orders = model.orders(&shapes);
        if !seen.contains(&orders) {
            seen.push(orders);
        }
    }
    seen
}
