#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::manifest`.

graphmill_fuzz::program!(manifest);
