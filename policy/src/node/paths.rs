//! Where softmig's files are on a node.

use core::ffi::CStr;

/// The folder of the jobs that are here now.
pub const RUN: &str = "/var/run/softmig";

/// The name of the monitor's socket in [`RUN`], where processes ask for their turns.
pub const ARBITER: &str = "arbiter.sock";

/// Its path.
pub const ARBITER_SOCKET: &CStr = c"/var/run/softmig/arbiter.sock";

/// The logs of the jobs that were here.
pub const LOG: &str = "/var/log/softmig";

/// The folder that is kept when the node starts anew.
pub const LIB: &str = "/var/lib/softmig";

/// The node's settings.
pub const NODE_CONF: &str = "/etc/softmig/node.conf";

/// The most that is read of a job's conf. A conf is far smaller, and a larger file is not valid.
pub const LONGEST_CONF: u64 = 64 << 10;
