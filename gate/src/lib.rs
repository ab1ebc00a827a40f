//! The device gate: in a job with a slice, only processes that have softmig's library may open a GPU.
//!
//! A BPF program decides that in the kernel ([`program`]), at the root of the control groups of version 2, which every process
//! of a node is in. Its tables and its attachment are files in a bpf file system, so they outlive the monitor, and end when
//! the files are removed:
//!
//! | file | what | written by |
//! |---|---|---|
//! | `jobs` | names of the control groups of jobs that have the gate | prolog, epilog ([`Jobs`]) |
//! | `admitted` | processes that may open GPUs | the monitor ([`Gate::admit`]) |
//! | `asked` | processes that opened the control device and are not admitted | the program |
//! | `refused` | jobs and users with a process that was refused | the program |
//! | `link` | the attachment | the monitor ([`Gate::set_up`]) |
//!
//! It needs Linux 5.8, BTF (`/sys/kernel/btf/vmlinux`), a bpf file system and `CAP_SYS_ADMIN`. On nodes whose jobs have
//! control groups of version 1, version 2 need not be mounted.

mod admitted;
pub mod btf;
mod error;
mod gate;
mod groups;
mod instruction;
mod jobs;
pub mod layout;
mod library;
pub mod program;
mod sys;
mod tables;

pub use admitted::NotAdmitted;
pub use error::GateError;
pub use gate::{Gate, Refusal, Settings, check};
pub use jobs::Jobs;
pub use library::Library;
pub use program::Devices;
pub use tables::{FOLDER, is_set_up, remove};
