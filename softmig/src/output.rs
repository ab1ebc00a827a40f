//! How the command speaks: lines, tables and exit statuses.

pub(crate) mod exit_status;
pub(crate) mod say;
pub(crate) mod table;
