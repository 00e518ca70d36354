#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_hgb`.

graphmill_fuzz::program!(import_hgb);
