#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::torch`.

graphmill_fuzz::program!(torch);
