#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::tables_append`.

graphmill_fuzz::program!(tables_append);
