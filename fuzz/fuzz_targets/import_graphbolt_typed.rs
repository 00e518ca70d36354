#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_graphbolt_typed`.

graphmill_fuzz::program!(import_graphbolt_typed);
