//! The NumPy `.npy` format.
