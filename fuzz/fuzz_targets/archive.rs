#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::archive`.

graphmill_fuzz::program!(archive);
