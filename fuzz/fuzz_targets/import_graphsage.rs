#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_graphsage`.

graphmill_fuzz::program!(import_graphsage);
