//! Benchmarks and their committed results.
