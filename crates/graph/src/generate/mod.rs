//! Graphs made up on the spot: deterministic for a seed, whatever the number of threads.
