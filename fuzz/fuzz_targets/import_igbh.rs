#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_igbh`.

graphmill_fuzz::program!(import_igbh);
