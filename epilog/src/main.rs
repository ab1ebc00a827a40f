//! Removes what the prolog made once the job has ended.

fn main() {}
