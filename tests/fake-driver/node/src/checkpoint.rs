//! Processes whose memory another process moves to the host and back. Blocks that several may hold stay where they are.

use crate::error::CheckpointError;
use crate::layout::{Slot, get, set};
use crate::memory;
use crate::pids::Translator;
use crate::process::Process;

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It runs.
    Running,
    /// Its calls of the driver wait.
    Locked,
    /// And its memory is on the host.
    Checkpointed,
}

impl Stage {
    fn of(slot: &Slot) -> Stage {
        match get(&slot.stage) {
            0 => Stage::Running,
            1 => Stage::Locked,
            _ => Stage::Checkpointed,
        }
    }
}

impl Process {
    /// How far a process is, by the number that this one knows it by.
    ///
    /// # Errors
    /// [`CheckpointError::Unknown`] where no such process takes part.
    pub fn stage_of(&self, pid: u32) -> Result<Stage, CheckpointError> {
        let _held = self.mapped.shared().lock.lock();
        Ok(Stage::of(self.other(pid)?))
    }

    /// Whether calls of this process have to wait.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.record()
            .is_some_and(|slot| Stage::of(slot) != Stage::Running)
    }

    /// Takes a process from one stage to the next, or back to the one before.
    ///
    /// # Errors
    /// [`CheckpointError::Stage`] where it is not at `from`, [`CheckpointError::Full`] where its memory does not fit on
    /// its device any more.
    pub fn step(&self, pid: u32, from: Stage, to: Stage) -> Result<(), CheckpointError> {
        let _held = self.mapped.shared().lock.lock();
        let slot = self.other(pid)?;
        if Stage::of(slot) != from {
            return Err(CheckpointError::Stage);
        }
        match (from, to) {
            (Stage::Locked, Stage::Checkpointed) => move_all(&slot.bytes, &slot.aside),
            (Stage::Checkpointed, Stage::Locked) => {
                for (device, aside) in slot.aside.iter().enumerate() {
                    let bytes = aside.iter().map(get).sum();
                    memory::require(&self.mapped, device, bytes)
                        .map_err(|_| CheckpointError::Full)?;
                }
                move_all(&slot.aside, &slot.bytes);
            }
            (Stage::Running, Stage::Locked) | (Stage::Locked, Stage::Running) => {}
            _ => return Err(CheckpointError::Stage),
        }
        set(&slot.stage, to as u64);
        Ok(())
    }

    fn other(&self, pid: u32) -> Result<&Slot, CheckpointError> {
        let mut translator = Translator::new();
        let mut slots = self.mapped.shared().slots.iter();
        slots
            .find(|slot| slot.is_taken() && translator.translate(slot) == Some(pid))
            .ok_or(CheckpointError::Unknown)
    }
}

type Figures =
    [[std::sync::atomic::AtomicU64; crate::kind::Kind::ALL.len()]; crate::layout::DEVICES];

fn move_all(from: &Figures, to: &Figures) {
    for (from, to) in from.iter().flatten().zip(to.iter().flatten()) {
        set(to, get(from));
        set(from, 0);
    }
}
