//! How a library has its process join a node: at the first call, once, and again in a child where it may.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::AttachError;
use crate::process::Process;

/// A library's process in its node. Made for a static.
pub struct Membership {
    /// Made by the first call, never freed, since other threads may be using it.
    process: AtomicPtr<Process>,
    /// Held while joining.
    joining: Mutex<()>,
}

/// Whether this process has joined the node.
#[derive(Clone, Copy)]
pub enum Standing {
    /// It has not joined.
    Stranger,
    /// It has.
    Member(&'static Process),
    /// Its parent had when it forked. Nothing of that is here.
    Child,
}

impl Membership {
    /// Of a process that has not joined.
    #[must_use]
    pub const fn new() -> Membership {
        Membership {
            process: AtomicPtr::new(std::ptr::null_mut()),
            joining: Mutex::new(()),
        }
    }

    /// Whether this process has joined the node.
    #[must_use]
    pub fn standing(&self) -> Standing {
        // Acquire, as join's Release: who finds it finds it complete.
        let known = self.process.load(Ordering::Acquire);
        // SAFETY: null, or a box that `join` leaked.
        match unsafe { known.as_ref() } {
            None => Standing::Stranger,
            Some(process) if process.is_here() => Standing::Member(process),
            Some(_) => Standing::Child,
        }
    }

    /// Joins the node, unless this process has. A child joins by itself; ask [`Membership::standing`] first where it
    /// must not.
    ///
    /// # Errors
    /// As [`Process::attach`].
    pub fn join(&self) -> Result<&'static Process, AttachError> {
        if let Standing::Member(process) = self.standing() {
            return Ok(process);
        }
        let _joining = self.joining.lock().unwrap_or_else(PoisonError::into_inner);
        if let Standing::Member(process) = self.standing() {
            return Ok(process);
        }
        let process: &'static Process = Box::leak(Box::new(Process::attach(&crate::place())?));
        let pointer = std::ptr::from_ref(process).cast_mut();
        self.process.store(pointer, Ordering::Release);
        Ok(process)
    }
}

impl Default for Membership {
    fn default() -> Self {
        Membership::new()
    }
}
