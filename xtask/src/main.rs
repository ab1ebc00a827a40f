//! cargo xtask: demo, test, bench.

fn main() {}
