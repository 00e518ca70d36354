#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::edge_alias`.

graphmill_fuzz::program!(edge_alias);
