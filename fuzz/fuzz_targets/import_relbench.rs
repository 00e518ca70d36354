#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_relbench`.

graphmill_fuzz::program!(import_relbench);
