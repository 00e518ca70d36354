#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_mag240m`.

graphmill_fuzz::program!(import_mag240m);
