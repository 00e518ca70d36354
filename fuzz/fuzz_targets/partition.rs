#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::partition`.

graphmill_fuzz::program!(partition);
