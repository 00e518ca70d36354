#![cfg_attr(fuzzing, no_main)]
//! See `graphmill_fuzz::targets::features_checksums`.

graphmill_fuzz::program!(features_checksums);
