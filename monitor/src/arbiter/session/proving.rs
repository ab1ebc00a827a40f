//! Finds out which channels are a process's own.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use softmig_region::seat::{self, MOST_CHANNELS};
use softmig_rm::Channel;

use super::{Channels, Session};
use crate::arbiter::borrower::{NoAnswer, Question};
use crate::arbiter::clock::now;
use crate::arbiter::tenant::NotSteered;
use crate::jobs::pidfd::has_ended;
use crate::schedule::Nanos;

/// The longest time for which nothing is done for a process that told of more than its job has paid for.
const LONGEST_REST: Nanos = 250_000_000;
/// How long a supervisor is left alone that did not answer.
const AGAIN: Nanos = 250_000_000;
/// Channels are not proven more often than this.
const PAUSE: Nanos = 20_000_000;

impl Session {
    /// Proves its channels and sets the time slice of its groups, where that is due. Only the thread that listens here does
    /// it: the driver is asked through the process's own files, which can take long.
    pub(in crate::arbiter) fn update_channels(&self) {
        let version = self.page.version();
        let is_new = self.version.load(SeqCst) != version;
        // Its first channels do not wait, and are not paid for.
        if version == 1 || self.rate_limit.until_proof(now()) == 0 {
            self.tell_supervisor(version);
        }
        let unproven = self.unproven.load(SeqCst);
        let slice = if self.uses_gpu() {
            self.slice.load(SeqCst)
        } else {
            0
        };
        let is_other = slice != 0 && slice != self.has_slice.load(SeqCst);
        if is_new || unproven != 0 || is_other {
            // It may change them as often as it likes.
            let rest = PAUSE - (now() - self.proved.swap(now(), SeqCst)).clamp(0, PAUSE);
            // Its first proof does not wait: until then it cannot be held.
            let is_first = self.version.load(SeqCst) == 0;
            let unpaid = if is_new && !is_first {
                self.rate_limit.until_proof(now())
            } else {
                0
            };
            let rest = rest.max(unpaid.min(LONGEST_REST));
            std::thread::sleep(Duration::from_nanos(rest.unsigned_abs()));
            // Until all groups have it.
            self.has_slice.fetch_min(slice, SeqCst);
            if unpaid > LONGEST_REST {
                // What is held meanwhile can be proven. The page's version still is another one.
                return self.page.wake();
            }
            self.tell_supervisor(version);
            let (channels, is_set) = match self.prove(slice, is_new) {
                Ok(proved) => proved,
                // The driver is busy.
                Err(NoAnswer::Passing) => return self.page.wake(),
                // Or it keeps its user's helper from answering. Until it does, others of the user are not asked for.
                Err(NoAnswer::Kept) => {
                    self.set_channels(Channels::Not(NotSteered::Keeps));
                    std::thread::sleep(Duration::from_nanos(LONGEST_REST.unsigned_abs()));
                    return self.page.wake();
                }
            };
            self.set_channels(channels);
            let has = if is_set { slice } else { 0 };
            self.has_slice.store(has, SeqCst);
            self.version.store(version, SeqCst);
            // Channels that were held since then are still to be proven.
            let _ = (self.unproven).compare_exchange(unproven, 0, SeqCst, SeqCst);
        }
        if self.told.load(SeqCst) != version {
            std::thread::sleep(Duration::from_nanos(PAUSE.unsigned_abs()));
            self.page.wake();
        }
    }

    /// Tells the supervisor of its pack of its channels, which proves them itself, and has to know them if the process ends before the
    /// driver answers here. The process waits for that before it launches more. If the supervisor does not answer, it is told again.
    fn tell_supervisor(&self, version: u32) {
        if self.told.load(SeqCst) == version || now() < self.tells_from.load(SeqCst) {
            return;
        }
        if let Some(member) = &self.pack {
            if !member.note_channels(&self.page.channels().unwrap_or_default()) {
                return self.tells_from.store(now() + AGAIN, SeqCst);
            }
            if version != 1 {
                self.rate_limit.pay_for_proof(now(), 0);
            }
        }
        self.told.store(version, SeqCst);
        self.page.hear(version);
    }

    /// Finds out which of the channels that it tells of are its own: those of groups for which the driver answers through the
    /// process's own file. Sets this slice, unless it is 0, and tells whether no group has another. If it told of them anew, its job
    /// pays.
    fn prove(&self, slice: u64, is_new: bool) -> Result<(Channels, bool), NoAnswer> {
        let not = |why| Ok((Channels::Not(why), true));
        if self.is_unruly.load(SeqCst) {
            return not(NotSteered::Runs);
        }
        let Some(process) = &self.process else {
            // The rest was not told by it.
            return Ok((Channels::from_own(self.known()), true));
        };
        /// Each call to the driver with such a channel fails, and the others are then told one by one.
        const MOST_REFUSED: usize = 2 * MOST_CHANNELS;
        if self.refused.load(SeqCst) > MOST_REFUSED {
            return not(NotSteered::NotOwn);
        }
        let Some(mut told) = self.page.channels() else {
            return not(NotSteered::TooMany);
        };
        if told.is_empty() {
            return Ok((Channels::Unknown, true));
        }
        let group = |it: &seat::Channel| (it.file, it.client, it.group);
        {
            let mut elsewhere = self.elsewhere();
            let all: BTreeSet<Channel> = told.iter().map(named).collect();
            elsewhere.retain(|it| all.contains(it));
            told.retain(|it| !elsewhere.contains(&named(it)));
        }
        // What was not its own is not asked for again.
        if let Channels::Known(known) = &*self.channels()
            && !is_new
        {
            told.retain(|it| known.contains(&named(it)));
        }
        let mut groups: Vec<_> = told.iter().map(group).collect();
        groups.sort_unstable();
        groups.dedup();
        let question = Question {
            pid: self.pid,
            groups,
            slice,
        };
        let answer = self.user.ask(process, &question)?;
        if self.pack.is_some() && has_ended(process) {
            // It has no file any more that could prove them. Until it is noted, they stay known as they are.
            return Err(NoAnswer::Passing);
        }
        if is_new {
            self.rate_limit.pay_for_proof(now(), question.groups.len());
        }
        if answer.is_new {
            self.has_new_slice.store(true, SeqCst);
        }
        if answer.refusal.is_some() {
            (*self.refusal()).clone_from(&answer.refusal);
        }
        if answer.is_busy {
            return Err(NoAnswer::Passing);
        }
        let own = told.iter().filter(|it| answer.own.contains(&group(it)));
        let own = Channels::from_own(own.map(named).collect());
        Ok((own, !answer.is_unset))
    }
}

/// A channel as the driver knows it.
fn named(told: &seat::Channel) -> Channel {
    Channel {
        client: told.client,
        handle: told.handle,
    }
}
