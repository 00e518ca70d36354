#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_musae`.

graphmill_fuzz::program!(import_musae);
