#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::checkpoint`.

graphmill_fuzz::program!(checkpoint);
