#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::config`.

graphmill_fuzz::program!(config);
