//! One GPU: its seats, a thread for each that waits until its process wakes it, and one for the clock.
//!
//! Who looks after the GPU has its state, and may wait for the driver, for seconds where many processes end. The server waits for nobody
//! meanwhile, and no other seat's thread does: they leave what they know, and whoever has the state next takes it in.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use softmig_region::seat::Version;

use super::alarm::{Alarm, Ring};
use super::authorizer::{Admission, Authorizer};
use super::clock::now;
use super::gpu_state::{Change, GpuState};
use super::other_gpus::{Node, OtherGpus};
use super::page::Page;
use super::rate_limit::RateLimit;
use super::scheduler::Scheduler;
use super::session::{Newcomer, Session};
use super::settings::Standing;
use super::steering::Unseated;
use super::tenant::Account;
use crate::schedule::{Job, Nanos, SeatId};

/// A thread that waits for a process calls nothing deep.
const STACK: usize = 128 << 10;

/// A GPU, and the processes that have seats there.
#[derive(Debug)]
pub(super) struct Gpu {
    state: Mutex<GpuState>,
    news: Mutex<News>,
    /// Whether its jobs were steered when somebody had the state last.
    was_steered: AtomicBool,
    /// That of the thread that looks when it is time.
    alarm: Arc<Alarm>,
}

/// What `state` does not know yet.
#[derive(Debug, Default)]
struct News {
    changes: Vec<Change>,
    /// Until when seats have no listening thread.
    unattended_until: Option<Nanos>,
    last_seat: u64,
    /// The limits of jobs, which all seats of a job share, also those that come later.
    limits: BTreeMap<Job, Arc<RateLimit>>,
}

impl Gpu {
    pub(super) fn start(scheduler: Scheduler, node: &Arc<Mutex<Node>>) -> io::Result<Arc<Self>> {
        // Those that an earlier arbiter left waiting are to run.
        let has_waiting = !scheduler.waiting.is_empty();
        let alarm = Arc::new(Alarm::default());
        let others = OtherGpus::join(node, &alarm);
        let gpu = Arc::new(Self {
            state: Mutex::new(GpuState::new(scheduler, others)),
            news: Mutex::default(),
            was_steered: AtomicBool::new(false),
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
        self.tell_news(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, unless another thread has it.
    fn free_state(&self) -> Option<MutexGuard<'_, GpuState>> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.tell_news(state))
    }

    fn tell_news<'a>(&self, mut state: MutexGuard<'a, GpuState>) -> MutexGuard<'a, GpuState> {
        let mut news = self.news();
        let changes = std::mem::take(&mut news.changes);
        let unattended_until = news.unattended_until.take();
        drop(news);
        for change in changes {
            state.change(change);
        }
        if let Some(until) = unattended_until {
            state.poll_soon(until);
        }
        self.was_steered.store(state.is_steered, SeqCst);
        state
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a process. Gives the file of its page.
    pub(super) fn sit(
        self: &Arc<Self>,
        admission: Admission,
        newcomer: Newcomer,
    ) -> io::Result<(SeatId, OwnedFd)> {
        let (page, file) = Page::new()?;
        if newcomer.version == Version::Turns {
            page.set_free_for_good(admission.share);
        }
        page.heartbeat(now());
        let job = admission.job;
        let mut news = self.news();
        let limit = Arc::clone(news.limits.entry(job).or_default());
        news.last_seat += 1;
        let seat = SeatId {
            job,
            number: news.last_seat,
        };
        let session = Arc::new(Session::new(page, newcomer, limit));
        let came = Change::Came(seat, Arc::clone(&session), admission);
        news.changes.push(came);
        drop(news);
        self.alarm.ring_by(now());
        let this = Arc::clone(self);
        match spawn("seat", move || this.listen(seat, &session)) {
            Ok(_) => Ok((seat, file)),
            Err(error) => {
                self.remove(seat);
                Err(error)
            }
        }
    }

    /// Whether jobs are steered, or can be from now on.
    pub(super) fn is_steered(&self) -> bool {
        match self.free_state() {
            Some(mut state) => state.is_steered(),
            None if self.was_steered.load(SeqCst) => true,
            None => self.state().is_steered(),
        }
    }

    /// Whether a process with an old library may have a seat: whether jobs were steered when somebody looked last. If not, it asks again.
    pub(super) fn takes_old(&self) -> bool {
        let was_steered = self.was_steered.load(SeqCst);
        let has_asked = || matches!(self.news().changes.last(), Some(Change::Asked));
        if !was_steered && !has_asked() {
            self.note(Change::Asked);
        }
        was_steered
    }

    /// A process has ended.
    pub(super) fn note_end(&self, seat: SeatId) {
        self.note(Change::Ended(seat));
    }

    /// A process has given up its seat.
    pub(super) fn remove(&self, seat: SeatId) {
        self.note(Change::Left(seat));
    }

    fn note(&self, change: Change) {
        self.news().changes.push(change);
        self.alarm.ring_by(now());
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
        self.state().forget(&is_over);
        let mut news = self.news();
        news.limits
            .retain(|&job, limit| !is_over(job) || Arc::strong_count(limit) > 1);
    }

    /// Polls a seat and does what is to be done, or lets the clock do it.
    fn look(&self, seat: SeatId) {
        let Some(mut state) = self.free_state() else {
            return self.poll_soon(Duration::ZERO);
        };
        if let Some(due) = state.look(Some(seat)) {
            self.alarm.ring_by(due);
        }
    }

    /// Lets the clock poll a seat at which no thread listens for this time, and all others.
    fn poll_soon(&self, wait: Duration) {
        let now = now();
        let wait = Nanos::try_from(wait.as_nanos()).unwrap_or(Nanos::MAX);
        let until = Some(now.saturating_add(wait));
        let mut news = self.news();
        news.unattended_until = news.unattended_until.max(until);
        drop(news);
        self.alarm.ring_by(now);
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
