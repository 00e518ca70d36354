#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::import_dgl_chunked`.

graphmill_fuzz::program!(import_dgl_chunked);
