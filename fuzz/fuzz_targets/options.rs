#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::options`.

graphmill_fuzz::program!(options);
