#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::fetch_unpack`.

graphmill_fuzz::program!(fetch_unpack);
