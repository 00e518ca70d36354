#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::serve_body`.

graphmill_fuzz::program!(serve_body);
