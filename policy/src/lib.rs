//! Parses requests for GPU slices, decides on them and computes their limits.
