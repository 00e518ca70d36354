#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_planetoid`.

graphmill_fuzz::program!(import_planetoid);
