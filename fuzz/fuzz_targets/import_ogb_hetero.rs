#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_ogb_hetero`.

graphmill_fuzz::program!(import_ogb_hetero);
