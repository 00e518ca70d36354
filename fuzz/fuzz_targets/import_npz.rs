#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_npz`.

graphmill_fuzz::program!(import_npz);
