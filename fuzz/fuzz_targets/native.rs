#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::native`.

graphmill_fuzz::program!(native);
