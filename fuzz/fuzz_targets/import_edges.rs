#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_edges`.

graphmill_fuzz::program!(import_edges);
