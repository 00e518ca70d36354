#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_events`.

graphmill_fuzz::program!(import_events);
