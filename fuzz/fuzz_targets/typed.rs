#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::typed`.

graphmill_fuzz::program!(typed);
