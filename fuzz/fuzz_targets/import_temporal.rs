#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_temporal`.

graphmill_fuzz::program!(import_temporal);
