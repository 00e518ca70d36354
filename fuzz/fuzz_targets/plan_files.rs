#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::plan_files`.

graphmill_fuzz::program!(plan_files);
