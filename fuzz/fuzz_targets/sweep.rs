#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::sweep`.

graphmill_fuzz::program!(sweep);
