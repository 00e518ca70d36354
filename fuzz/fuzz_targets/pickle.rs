#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::pickle`.

graphmill_fuzz::program!(pickle);
