//! A real Slurm cluster on loopback, and the behaviour tests that run on it.
