//! softmig-monitor: a GPU node's daemon, run by systemd as root.

fn main() {}
