//! Where softmig's files are on a node, for the programs that root runs. The hook has its own constants, without std.

/// What belongs to the jobs that are here now.
pub const RUN: &str = "/var/run/softmig";

/// The monitor's socket, where processes ask for their turns.
pub const SOCKET: &str = "/var/run/softmig/arbiter.sock";

/// The logs of the jobs that were here.
pub const LOG: &str = "/var/log/softmig";

/// What is kept when the node starts anew.
pub const LIB: &str = "/var/lib/softmig";

/// The node's settings.
pub const NODE_CONF: &str = "/etc/softmig/node.conf";

/// The most that is read of a job's conf. A conf is far smaller, and a larger file is not valid.
pub const LONGEST_CONF: u64 = 64 << 10;
