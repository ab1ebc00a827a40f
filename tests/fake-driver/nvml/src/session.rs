//! Whether NVML is initialized, and which GPUs the process has.

use std::sync::{Mutex, PoisonError};

use softmig_driver_sys::nvml::*;
use softmig_fake_node::{Answers, AttachError, Gpu, Membership, Process, Standing};

use crate::Outcome;
use crate::exports::exports;

/// This process's part in the node.
static MEMBERSHIP: Membership = Membership::new();

static STATE: Mutex<State> = Mutex::new(State {
    initialized: 0,
    gpus: Vec::new(),
});

struct State {
    /// How many times more than it was shut down.
    initialized: u32,
    /// The node's numbers of the GPUs that the process can open: NVML's index is one into it.
    gpus: Vec<usize>,
}

/// NVML while it is initialized.
pub(crate) struct Session {
    pub(crate) node: &'static Process,
    pub(crate) gpus: Vec<usize>,
}

exports! {
    /// Initializes NVML.
    fn nvmlInit() => init();

    /// Initializes NVML.
    fn nvmlInit_v2() => init();

    /// Initializes NVML; no flag changes anything here, and unknown ones are accepted as by the real one.
    fn nvmlInitWithFlags(_flags: u32) => init();

    /// Takes back one initialization.
    fn nvmlShutdown() => shutdown();
}

/// This process's part in the node. A child that was forked joins by itself: NVML has nothing that cannot be shared.
pub(crate) fn process() -> Outcome<&'static Process> {
    MEMBERSHIP.join().map_err(|error| match error {
        AttachError::Absent | AttachError::Node(_) => NVML_ERROR_DRIVER_NOT_LOADED,
        AttachError::Full => NVML_ERROR_INSUFFICIENT_RESOURCES,
    })
}

fn init() -> Outcome {
    let process = process()?;
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.initialized == 0 {
        state.gpus = process.description().open_gpus();
    }
    state.initialized += 1;
    Ok(())
}

fn shutdown() -> Outcome {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let left = state.initialized.checked_sub(1);
    state.initialized = left.ok_or(NVML_ERROR_UNINITIALIZED)?;
    Ok(())
}

/// Runs something that needs NVML to be initialized.
pub(crate) fn session<T>(body: impl FnOnce(&Session) -> Outcome<T>) -> Outcome<T> {
    let gpus = {
        let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if state.initialized == 0 {
            return Err(NVML_ERROR_UNINITIALIZED);
        }
        state.gpus.clone()
    };
    body(&Session {
        node: process()?,
        gpus,
    })
}

impl Session {
    /// A GPU that the process has, by the node's number.
    pub(crate) fn gpu(&self, number: usize) -> Outcome<&'static Gpu> {
        if !self.gpus.contains(&number) {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        let gpus = &self.node.description().gpus;
        let gpu = gpus.get(number).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
        match gpu.answers {
            Answers::Nothing => Err(NVML_ERROR_GPU_IS_LOST),
            Answers::All | Answers::NoMemoryV2 => Ok(gpu),
        }
    }
}

/// Runs when the library is unloaded or the process ends by itself: it leaves the node.
extern "C" fn end() {
    if let Standing::Member(process) = MEMBERSHIP.standing() {
        process.leave();
    }
}

// SAFETY: the section is an array of functions without arguments, which the loader calls.
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;
