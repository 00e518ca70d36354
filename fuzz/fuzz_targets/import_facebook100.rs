#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_facebook100`.

graphmill_fuzz::program!(import_facebook100);
