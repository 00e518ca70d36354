#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_graphsaint`.

graphmill_fuzz::program!(import_graphsaint);
