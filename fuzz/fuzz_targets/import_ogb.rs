#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_ogb`.

graphmill_fuzz::program!(import_ogb);
