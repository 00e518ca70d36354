//! Trains a model on arrays and predicts with it: the two sides of Zachary's karate club.
//!
//! Run it with `cargo run --release --example 01-train`.
//!
//! The club split in two after a dispute between its instructor (member 0) and its president
//! (member 33). The model learns from the sides of these two and from the members' meetings outside
//! the club, and predicts the sides of the other 32 members.
//!
//! Data: W. W. Zachary, An information flow model for conflict and fission in small groups, Journal
//! of Anthropological Research 33, 1977.

use graphmill::prelude::*;

const MEMBERS: usize = 34;
/// Pairs of members who met outside the club.
#[rustfmt::skip]
const MEETINGS: [(NodeId, NodeId); 78] = [
    (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (0, 7), (0, 8), (0, 10), (0, 11), (0, 12), (0, 13),
    (0, 17), (0, 19), (0, 21), (0, 31), (1, 2), (1, 3), (1, 7), (1, 13), (1, 17), (1, 19), (1, 21),
    (1, 30), (2, 3), (2, 7), (2, 8), (2, 9), (2, 13), (2, 27), (2, 28), (2, 32), (3, 7), (3, 12),
    (3, 13), (4, 6), (4, 10), (5, 6), (5, 10), (5, 16), (6, 16), (8, 30), (8, 32), (8, 33), (9, 33),
    (13, 33), (14, 32), (14, 33), (15, 32), (15, 33), (18, 32), (18, 33), (19, 33), (20, 32), (20, 33),
    (22, 32), (22, 33), (23, 25), (23, 27), (23, 29), (23, 32), (23, 33), (24, 25), (24, 27), (24, 31),
    (25, 31), (26, 29), (26, 33), (27, 33), (28, 31), (28, 33), (29, 32), (29, 33), (30, 32), (30, 33),
    (31, 32), (31, 33), (32, 33),
];
/// Members on the president's side.
const LEFT: [usize; 17] = [9, 14, 15, 18, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33];

/// Trains on two members and predicts the others.
pub fn main() -> graphmill::Result<()> {
    // one-hot features, which only identify the members
    let mut identity = vec![0.0; MEMBERS * MEMBERS];
    (0..MEMBERS).for_each(|v| identity[v * MEMBERS + v] = 1.0);
    let side = (0..MEMBERS).map(|v| i32::from(LEFT.contains(&v))).collect();
    let others: Vec<NodeId> = (1..33).collect();

    let club = DatasetBuilder::new(MEMBERS)
        .name("karate club")
        .undirected_edges(MEETINGS)
        .features(MEMBERS, identity)
        .classes(side)
        .split([0, 33], [], others.clone())
        .build()?;
    println!("{club}");

    let config = TrainConfig {
        model: "gcn".into(),
        sampler: "full".into(), // all neighbours, because the graph is small
        hidden: 16,
        lr: 0.01,
        epochs: 60,
        ..TrainConfig::default()
    };
    let trained = graphmill::train(&config, &club)?;
    let losses: Vec<f64> = trained.summary().epochs.iter().map(|epoch| epoch.loss).collect();
    println!("loss {:.3} in the first epoch, {:.3} in the last", losses[0], losses[losses.len() - 1]);

    let predicted = trained.classes(&club, &others)?;
    let correct =
        others.iter().zip(&predicted).filter(|(v, side)| LEFT.contains(&(**v as usize)) == (**side == 1));
    println!("the sides of {} of {} members are predicted correctly", correct.count(), others.len());
    let left: Vec<_> =
        others.iter().zip(&predicted).filter(|(_, side)| **side == 1).map(|(v, _)| v).collect();
    println!("predicted to leave with the president: {left:?}");
    Ok(())
}
