//! The softmig command.

fn main() {}
