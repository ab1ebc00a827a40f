//! What the processes of a proof may do.

use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::io;

/// To read the log of all users, to look which files another user's program has and borrow that of the driver, and to let a program
/// be another user's and end it.
pub(crate) const TO_PROVE: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// To look which files another process has, and to borrow and use that of the driver.
const TO_BORROW: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// The account `daemon`, which every system has for programs without rights. Nothing ends programs of such accounts.
pub(crate) const OTHER: u32 = 1;

/// Keeps no more of root's rights than it takes to ask the driver through another process's file. There is one thread yet.
///
/// # Errors
/// The system's.
pub fn keep_rights_to_borrow() -> io::Result<()> {
    keep(TO_BORROW)
}

/// Keeps no more of root's rights than these, for this process and all that it starts. There is one thread yet.
pub(crate) fn keep(rights: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let permitted = capabilities(None)?.permitted & rights;
    let sets = CapabilitySets {
        effective: permitted,
        permitted,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Becomes another user's process, where this one may.
pub(crate) fn become_user(user: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    // Else the one that proves could not borrow its files without rights over every process.
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}
