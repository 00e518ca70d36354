#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::run_dir`.

graphmill_fuzz::program!(run_dir);
