#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_ogb_nodes`.

graphmill_fuzz::program!(import_ogb_nodes);
