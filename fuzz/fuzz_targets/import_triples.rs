#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_triples`.

graphmill_fuzz::program!(import_triples);
