#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::npy_header`.

graphmill_fuzz::program!(npy_header);
