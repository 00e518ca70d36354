#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_hne`.

graphmill_fuzz::program!(import_hne);
