#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_graphbolt`.

graphmill_fuzz::program!(import_graphbolt);
