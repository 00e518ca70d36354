#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::rules`.

graphmill_fuzz::program!(rules);
