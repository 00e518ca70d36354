#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_tables`.

graphmill_fuzz::program!(import_tables);
