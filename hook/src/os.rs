//! All that the hook asks of the kernel and of the process itself.
//!
//! Every call leaves `errno` as it was, or is made between [`Errno::save`] and its end: the program must not notice.

pub(crate) mod cells;
mod clock;
pub(crate) mod elf;
mod environment;
mod error;
mod file;
mod futex;
pub(crate) mod glibc;
pub(crate) mod load_order;
mod mapping;
mod maps;
pub(crate) mod of_process;
mod output;
mod process;
pub(crate) mod processor;
mod scratch;
pub(crate) mod seccomp;
mod socket;
mod sys;
mod thread;

pub(crate) use clock::{Exact, milliseconds, nanoseconds, nap, now, pause};
pub(crate) use environment::Variable;
pub(crate) use error::{Errno, Error};
pub(crate) use file::{File, inode};
pub(crate) use futex::{Held, Lock, wait_until_changed, wake_all};
pub(crate) use mapping::{is_mapped, map, map_shared, one_byte};
pub(crate) use maps::each_mapping_of_itself;
pub(crate) use output::{is_stderr_for_words, write_to_stderr, write_to_syslog};
pub(crate) use process::{
    is_gone, is_outermost, is_secure, may_write_files, outermost, process_id, process_name,
    real_uid, thread_id,
};
pub(crate) use scratch::Scratch;
pub(crate) use socket::{ask, is_listening};
pub(crate) use softmig_policy::node::fixed_str;
#[cfg(panic = "abort")]
pub(crate) use sys::abort;
#[cfg(test)]
pub(crate) use sys::is_so_in_a_child;
pub(crate) use sys::{map_over, unmap, variable};
pub(crate) use thread::{Thread, name_thread, start_thread};
