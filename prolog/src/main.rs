//! Writes a job's limits on the node before it starts.

fn main() {}
