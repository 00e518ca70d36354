#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::fetch_sums`.

graphmill_fuzz::program!(fetch_sums);
