//! One GPU: its seats, a thread for each that waits until its process wakes it, and one for the clock.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::alarm::{Alarm, Ring};
use super::authorizer::{Admission, Authorizer};
use super::clock::now;
use super::gpu_state::{GpuState, Newcomer};
use super::other_gpus::{Node, OtherGpus};
use super::page::Page;
use super::scheduler::Scheduler;
use super::session::Session;
use super::settings::Standing;
use super::steering::Unseated;
use super::tenant::Account;
use crate::schedule::{Job, SeatId};

/// A thread that waits for a process calls nothing deep.
const STACK: usize = 128 << 10;

/// A GPU, and the processes that have seats there.
#[derive(Debug)]
pub(super) struct Gpu {
    state: Mutex<GpuState>,
    /// That of the thread that looks when it is time.
    alarm: Arc<Alarm>,
}

impl Gpu {
    pub(super) fn start(scheduler: Scheduler, node: &Arc<Mutex<Node>>) -> io::Result<Arc<Self>> {
        // Those that an earlier arbiter left waiting are to run.
        let has_waiting = !scheduler.waiting.is_empty();
        let alarm = Arc::new(Alarm::default());
        let others = OtherGpus::join(node, &alarm);
        let gpu = Arc::new(Self {
            state: Mutex::new(GpuState::new(scheduler, others)),
            alarm,
        });
        let this = Arc::clone(&gpu);
        spawn("clock", move || this.keep_time())?;
        if has_waiting {
            gpu.alarm.call();
        }
        Ok(gpu)
    }

    fn state(&self) -> MutexGuard<'_, GpuState> {
        // Nothing is left half done where a thread could have panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a process. Gives the file of its page.
    pub(super) fn sit(
        self: &Arc<Self>,
        admission: Admission,
        newcomer: Newcomer,
    ) -> io::Result<(SeatId, OwnedFd)> {
        let (page, file) = Page::new()?;
        let (seat, session) = self.state().sit(admission, page, newcomer)?;
        let this = Arc::clone(self);
        match spawn("seat", move || this.listen(seat, &session)) {
            Ok(_) => Ok((seat, file)),
            Err(error) => {
                self.remove(seat);
                Err(error)
            }
        }
    }

    /// See [`GpuState::is_steered`].
    pub(super) fn is_steered(&self) -> bool {
        self.state().is_steered()
    }

    /// A process has ended.
    pub(super) fn note_end(&self, seat: SeatId) {
        self.state().note_end(seat);
        self.look(seat);
    }

    /// A process has given up its seat.
    pub(super) fn remove(&self, seat: SeatId) {
        self.state().remove(seat);
        self.look(seat);
    }

    /// The arbiter ends.
    pub(super) fn end(&self) {
        self.state().end();
        self.alarm.end();
    }

    /// See [`GpuState::set_standing`].
    pub(super) fn set_standing(&self, standing: &Standing) {
        self.state().set_standing(standing);
    }

    /// Whom to ask for the job of a process that the GPU's log names.
    pub(super) fn set_authorizer(&self, authorizer: Arc<dyn Authorizer>) {
        self.state().named.authorizer = Some(authorizer);
    }

    /// See [`GpuState::set_unseated`].
    pub(super) fn set_unseated(&self, unseated: BTreeMap<u32, Unseated>) {
        self.state().set_unseated(unseated);
    }

    /// See [`GpuState::account`]. First all seats are polled: while a job is alone nothing may have happened for hours.
    pub(super) fn account(&self) -> Account {
        let mut state = self.state();
        if !state.is_over
            && let Some(due) = state.look(None)
        {
            self.alarm.ring_by(due);
        }
        state.account()
    }

    /// See [`GpuState::forget`].
    pub(super) fn forget(&self, is_over: impl Fn(Job) -> bool) {
        self.state().forget(is_over);
    }

    /// Polls a seat and does what is to be done.
    fn look(&self, seat: SeatId) {
        if let Some(due) = self.state().look(Some(seat)) {
            self.alarm.ring_by(due);
        }
    }

    /// Lets the clock poll a seat at which no thread listens for this time, and all others.
    fn poll_soon(&self, wait: Duration) {
        let due = self.state().poll_soon(wait);
        self.alarm.ring_by(due);
    }

    /// Looks when it is time.
    fn keep_time(&self) {
        // Jobs are held when they should be, not when it is convenient.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while let Some(ring) = self.alarm.wait() {
            let mut state = self.state();
            if state.is_over {
                return;
            }
            let next = match ring {
                Ring::Called => state.look_now(),
                // A thread that was woken may have looked meanwhile.
                Ring::Due if state.next.is_some_and(|next| next <= now()) => state.look(None),
                Ring::Due => state.next,
            };
            drop(state);
            if let Some(next) = next {
                self.alarm.ring_by(next);
            }
        }
    }

    /// Updates the GPU whenever a seat's process wakes this thread, as often as its job may.
    fn listen(&self, seat: SeatId, session: &Session) {
        loop {
            let wait = session.woken();
            if wait > Duration::ZERO {
                self.poll_soon(wait);
                thread::sleep(wait);
            }
            let wakes = session.page.wakes();
            if session.has_left() {
                return;
            }
            session.update_channels();
            self.look(seat);
            session.page.wait_for_wake(wakes);
        }
    }
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    thread.spawn(run)
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
