#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::npz`.

graphmill_fuzz::program!(npz);
