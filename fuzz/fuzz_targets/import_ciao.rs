#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_ciao`.

graphmill_fuzz::program!(import_ciao);
