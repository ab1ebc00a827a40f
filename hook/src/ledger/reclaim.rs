//! Room on a GPU: how it is taken, and what is tried before a program is refused.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use softmig_region::Taken;

use super::device::LimitedGpu;
use super::in_progress::CallGuard;
use super::oom_log;
use super::slot::longest_wait;
use super::{nvml_usage, orphans, pools, stale};
use crate::identity::message::{Missing, Request};
use crate::os;

impl LimitedGpu {
    /// Takes `units` for what `function`, the call that is under way, is about to ask of the driver. False if the job may not
    /// have it: the program is out of memory.
    #[inline]
    pub(crate) fn reserve(&self, call: &CallGuard, units: u32, function: &CStr) -> bool {
        let is_given = self.reserve_quietly(units) || self.find_room(call, units, function);
        if is_given && units > 0 {
            self.note_recovery();
        }
        is_given
    }

    /// The same, without looking for room.
    #[inline]
    pub(crate) fn reserve_quietly(&self, units: u32) -> bool {
        match self.try_reserve(units) {
            Ok(Taken::FromSlack) => true,
            Ok(Taken::Granted { held }) => {
                self.look_outside(held, units);
                true
            }
            Err(_) => false,
        }
    }

    /// Compares with the driver's figures each time that half of the rest is gone: memory without a name grows unseen.
    /// `units` are reserved and not the driver's yet.
    fn look_outside(&self, held: u64, units: u32) {
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        // Relaxed: to look twice, or once too seldom, does no harm.
        let look_at = self.state().look_at.load(Ordering::Relaxed);
        // Memory that was given back since makes room for memory without a name.
        let is_much_less = held < look_at / 2;
        if held < look_at.max(self.limit() / 2) && !is_much_less {
            return;
        }
        let left = self.limit().saturating_sub(held);
        let next = held.saturating_add(left / 2).max(1);
        self.state().look_at.store(next, Ordering::Relaxed);
        nvml_usage::raise(self, units);
    }

    /// Whether the job is within its limit after code was loaded, as far as the driver says.
    pub(crate) fn has_room_for_code(&self) -> bool {
        nvml_usage::after_code(self);
        self.is_within_limit()
    }

    /// The same before more code is used: unused memory makes room for what came already.
    pub(crate) fn has_room(&self) -> bool {
        if self.has_room_for_code() {
            return true;
        }
        let _errno = os::Errno::save();
        let _guard = CallGuard::on(self);
        pools::give_back(self);
        orphans::give_back(self, false);
        nvml_usage::correct(self);
        self.is_within_limit()
    }

    /// Charges what the driver says now, more or less.
    pub(crate) fn look_again(&self) {
        let _guard = CallGuard::on(self);
        nvml_usage::correct(self);
    }

    /// The last attempts to find room before a program hears that it is out of memory.
    #[cold]
    fn find_room(&self, call: &CallGuard, units: u32, function: &CStr) -> bool {
        let _errno = os::Errno::save();
        // One thread at a time: what is found to be held no more is given back only while no other call is under way. Each waits until
        // others have looked for room.
        let longest = longest_wait().saturating_mul(2);
        let _searching = call.pause(|| self.state().searching.hold_within(longest));
        let fits = || self.try_reserve(units).is_ok();
        if fits() {
            return true;
        }
        // Memory of processes that have ended. The driver takes its time to give it back; without limits a program
        // waits for that as well.
        let deadline = os::milliseconds().saturating_add(longest_wait());
        loop {
            let is_late = os::milliseconds() > deadline;
            let reaped = self.reap();
            orphans::give_back(self, false);
            // Another process that waits may have forgotten the dead first.
            if fits() {
                return true;
            }
            if !reaped.is_waiting || is_late {
                break;
            }
            os::pause();
        }
        // Unused memory of pools, and what is charged for something that the driver has given up.
        pools::give_back(self);
        stale::forget_freed(self);
        if fits() {
            return true;
        }
        nvml_usage::correct(self);
        // Another thread or process reserves memory before it asks the driver, and refunds what the driver then
        // refuses.
        os::pause();
        if fits() {
            return true;
        }
        let observes = oom_log::say(&Request {
            function,
            units,
            gpu: self.number(),
            held: self.held(),
            held_here: self.held_here(),
            limit: self.limit(),
            is_first: self.is_first_refusal(),
            larger: None,
        });
        if observes {
            self.charge(units);
        } else {
            self.note_refusal(units);
        }
        observes
    }
}

impl LimitedGpu {
    /// The driver refused what the job may have: somebody else holds that memory, unless the driver has enough and refuses for another
    /// reason.
    #[cold]
    pub(crate) fn note_missing(&self, units: u32, function: &CStr) {
        let _errno = os::Errno::save();
        // There may be no context, or one of another GPU.
        let free = nvml_usage::free(self).map(softmig_region::units);
        if let Some(free) = free.filter(|free| units > *free) {
            oom_log::say_missing(&Missing {
                function,
                units,
                gpu: self.number(),
                held: self.held(),
                limit: self.limit(),
                free,
            });
        }
    }
}
