#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_interactions`.

graphmill_fuzz::program!(import_interactions);
