#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::bottom_hop`.

graphmill_fuzz::program!(bottom_hop);
