#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_pyg`.

graphmill_fuzz::program!(import_pyg);
