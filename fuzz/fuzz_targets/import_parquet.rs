#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_parquet`.

graphmill_fuzz::program!(import_parquet);
