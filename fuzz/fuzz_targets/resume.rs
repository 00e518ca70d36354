#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::resume`.

graphmill_fuzz::program!(resume);
