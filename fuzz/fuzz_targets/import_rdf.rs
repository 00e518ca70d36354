#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_rdf`.

graphmill_fuzz::program!(import_rdf);
