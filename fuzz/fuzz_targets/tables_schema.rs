#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::tables_schema`.

graphmill_fuzz::program!(tables_schema);
