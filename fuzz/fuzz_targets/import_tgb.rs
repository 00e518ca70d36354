#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_tgb`.

graphmill_fuzz::program!(import_tgb);
