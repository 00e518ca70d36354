#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_mat_links`.

graphmill_fuzz::program!(import_mat_links);
