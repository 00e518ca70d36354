#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::npy`.

graphmill_fuzz::program!(npy);
