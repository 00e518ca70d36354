use graphmill_graph::generate::{self, SbmOptions};

use super::*;

fn data() -> Dataset {
    let options = SbmOptions { nodes: 2000, classes: 4, feature_dim: 8, ..SbmOptions::default() };
    generate::sbm(&options).unwrap()
}
