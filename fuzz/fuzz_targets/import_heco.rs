#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_heco`.

graphmill_fuzz::program!(import_heco);
