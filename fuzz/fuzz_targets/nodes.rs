#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::nodes`.

graphmill_fuzz::program!(nodes);
