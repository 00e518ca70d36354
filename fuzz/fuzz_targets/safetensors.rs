#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::safetensors`.

graphmill_fuzz::program!(safetensors);
