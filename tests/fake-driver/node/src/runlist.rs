//! The GPU's own scheduler, where the node's description asks for one: which process's work runs when.
//!
//! Each context has a *channel group*. Groups with work run one after the other, each for its time slice:
//!
//! - A group whose slice is over is interrupted if another has work. It goes on later, where it was.
//! - A group that runs out of work leaves at once if another has work. Else it stays, without work.
//! - A group whose channels are held does not run. Its work stays queued.
//! - The change from one group to another takes time, which the log counts for the one that comes.
//! - Groups of clients of one MPS server have the GPU together, as one. Each does its work as if it were alone.
//!
//! Nothing runs by itself here. Each call of a process first plays the time that has passed since the last one
//! ([`catch_up`]). All of it happens under the node's lock. Work is known by sums: what a group was given in all, and what of
//! that is done. So the end of a kernel is an amount of work: when that amount is done, the kernel ends.
//!
//! A process that is killed while it holds the lock may leave a step half done. That costs a group some microseconds.

use crate::layout::{Group, RUNS, Run, Runlist, SWITCHES, Slot, get, set};
use crate::mapped::Mapped;
use crate::{clock, mps, reap, timeline};

/// The time slice that the driver gives a group.
pub(crate) const DRIVERS_SLICE: u64 = 2_048_000;
/// The time of a change after a group that was interrupted, and after one that left by itself (measured on an H200).
pub(crate) const AFTER_CUT: u64 = 137_000;
pub(crate) const AFTER_LEAVING: u64 = 60_000;
/// How often to look for processes that have died.
const BETWEEN_DEATHS: u64 = 20_000_000;

/// The runlist of a device, and what is needed to play it.
pub(crate) struct Player<'a> {
    mapped: &'a Mapped,
    device: usize,
    list: &'a Runlist,
}

/// Plays a device until now, without those that have died.
pub(crate) fn catch_up(mapped: &Mapped, device: usize) {
    let Some(player) = Player::of(mapped, device) else {
        return;
    };
    let now = clock::now(mapped);
    if now >= get(&player.list.reaped) + BETWEEN_DEATHS {
        set(&player.list.reaped, now);
        reap::reap(mapped);
    }
    player.advance(now);
}

/// Ends the groups of a process that has died or left.
pub(crate) fn drop_process(mapped: &Mapped, slot: usize) {
    for player in (0..).map_while(|device| Player::of(mapped, device)) {
        player.advance(clock::now(mapped));
        for (index, group) in player.list.groups.iter().enumerate() {
            if get(&group.slot) == slot as u64 + 1 {
                player.end_group(index);
            }
        }
    }
}

/// Whether a process that has ended left work, and nobody has held its channels since then.
pub(crate) fn leaves_work(mapped: &Mapped, slot: usize) -> bool {
    let mut players = (0..).map_while(|device| Player::of(mapped, device));
    players.any(|player| {
        player.advance(clock::now(mapped));
        let groups = player.list.groups.iter();
        let mut its = groups.filter(|group| get(&group.slot) == slot as u64 + 1);
        its.any(|group| group.left() > 0 && get(&group.is_off) == 0)
    })
}

impl<'a> Player<'a> {
    /// That of a device; `None` where the node has no scheduler.
    pub(crate) fn of(mapped: &'a Mapped, device: usize) -> Option<Player<'a>> {
        let description = &mapped.description;
        description
            .device(device)
            .filter(|_| description.scheduler)?;
        let list = mapped.shared().runlists.get(device)?;
        Some(Player {
            mapped,
            device,
            list,
        })
    }

    /// Plays until this time.
    pub(crate) fn advance(&self, to: u64) {
        while get(&self.list.now) < to {
            let until = self.step(get(&self.list.now), to);
            set(&self.list.now, until);
        }
    }

    /// Does what happens now. Returns until when nothing else does.
    fn step(&self, now: u64, to: u64) -> u64 {
        let Some(group) = self.resident() else {
            return match self.next() {
                Some(next) => {
                    self.bring(next, now);
                    now
                }
                None => to,
            };
        };
        let begins = get(&self.list.begins);
        if now < begins {
            return begins.min(to);
        }
        let ready = self.with(group).filter(|it| it.is_ready());
        let left = ready.map(Group::left).max().unwrap_or(0);
        let others_wait = self.next().is_some();
        if left == 0 && !others_wait {
            return to;
        }
        if left == 0 {
            self.take_away(now, AFTER_LEAVING);
            return now;
        }
        if !others_wait {
            let until = to.min(now + left);
            self.run_with(group, now, until);
            self.renew_slice(group, until);
            return until;
        }
        let end = get(&self.list.slice_ends);
        if now >= end {
            self.take_away(now, AFTER_CUT);
            return now;
        }
        let until = to.min(now + left).min(end);
        self.run_with(group, now, until);
        until
    }

    /// The group that is on the GPU.
    fn resident(&self) -> Option<&'a Group> {
        let index = get(&self.list.resident).checked_sub(1)?;
        self.list.groups.get(index as usize)
    }

    /// The groups that have the GPU together with this one, itself included.
    fn with(&self, group: &'a Group) -> impl Iterator<Item = &'a Group> {
        let slots = &self.mapped.shared().slots;
        let server = |group: &Group| {
            let slot = get(&group.slot).checked_sub(1);
            let slot = slot.and_then(|slot| slots.get(slot as usize));
            slot.map_or(0, |slot| get(&slot.server))
        };
        let its = server(group);
        let is_with = move |it: &&Group| match its {
            0 => std::ptr::eq(*it, group),
            its => server(it) == its,
        };
        self.list.groups.iter().filter(is_with)
    }

    /// The group whose turn it is after the one that is or was there: another, with work, whose channels are not held.
    fn next(&self) -> Option<usize> {
        let count = self.list.groups.len();
        let first = get(&self.list.next) as usize;
        let resident = self.resident();
        let mut in_order = (0..count).map(|more| (first + more) % count);
        in_order.find(|index| {
            self.list.groups.get(*index).is_some_and(|group| {
                // Those that have the GPU together have one turn.
                let mut ready = self.with(group).filter(|it| it.is_ready());
                let is_first = ready.next().is_some_and(|it| std::ptr::eq(it, group));
                let mut there = resident.into_iter().flat_map(|it| self.with(it));
                is_first && !there.any(|it| std::ptr::eq(it, group))
            })
        })
    }

    /// A group comes.
    fn bring(&self, index: usize, now: u64) {
        let Some(group) = self.list.groups.get(index) else {
            return;
        };
        set(&group.waited, group.longest_wait(now));
        let begins = now + get(&self.list.change);
        set(&self.list.resident, index as u64 + 1);
        let slot = get(&group.slot) as usize - 1;
        set(&self.list.named, mps::named(self.mapped, slot) as u64);
        set(&self.list.next, index as u64 + 1);
        set(&self.list.begins, begins);
        set(&self.list.slice_ends, begins + get(&group.slice));
        self.log(group, now, true);
    }

    /// The group that is there leaves. The next change takes `change` nanoseconds.
    fn take_away(&self, now: u64, change: u64) {
        if let Some(group) = self.resident() {
            set(&group.since, now);
            self.log(group, now, false);
        }
        set(&self.list.resident, 0);
        set(&self.list.change, change);
    }

    /// As long as no other group has work, one slice follows the other.
    fn renew_slice(&self, group: &Group, now: u64) {
        let (end, slice) = (get(&self.list.slice_ends), get(&group.slice).max(1));
        if now >= end {
            set(
                &self.list.slice_ends,
                end + ((now - end) / slice + 1) * slice,
            );
        }
    }

    /// For how long a group waited at most, as far as it is known now.
    pub(crate) fn longest_wait(&self, index: usize) -> u64 {
        let is_there = get(&self.list.resident) == index as u64 + 1;
        let group = self.list.groups.get(index);
        group.map_or(0, |group| match is_there || group.left() == 0 {
            true => get(&group.waited),
            false => group.longest_wait(get(&self.list.now)),
        })
    }

    /// The work of those that have the GPU together goes on for this stretch of time, or until it is done.
    fn run_with(&self, group: &'a Group, from: u64, until: u64) {
        for one in self.with(group).filter(|it| it.is_ready()) {
            set(&one.since, until);
            self.run(one, from, until.min(from + one.left()));
        }
    }

    /// A group's work goes on for this stretch of time.
    fn run(&self, group: &Group, from: u64, until: u64) {
        group.note_run(from, until);
        set(&group.done, get(&group.done) + (until - from));
        let shared = self.mapped.shared();
        let slot = get(&group.slot) as usize - 1;
        if let Some(state) = shared.devices.get(self.device) {
            timeline::remember(state, slot, from, until);
        }
        let busy = shared
            .slots
            .get(slot)
            .and_then(|it| it.busy.get(self.device));
        if let Some(busy) = busy {
            set(busy, get(busy) + (until - from));
        }
    }

    /// Lets a group's channel run, or holds it once more: it runs when it was let run as often as it was held.
    pub(crate) fn hold(&self, index: usize, channel: usize, is_on: bool) {
        let Some(group) = self.list.groups.get(index) else {
            return;
        };
        let Some(held) = group.held.get(channel) else {
            return;
        };
        let slot = get(&group.slot).checked_sub(1);
        if !is_on && slot.is_some_and(|slot| mps::has_ended(self.mapped, slot as usize)) {
            set(&group.is_off, 1);
        }
        let times = get(held);
        set(
            held,
            if is_on {
                times.saturating_sub(1)
            } else {
                times.saturating_add(1)
            },
        );
        let resident = self.resident();
        if resident.is_some_and(|it| self.with(it).all(|it| it.is_held())) {
            self.take_away(get(&self.list.now), AFTER_CUT);
        }
    }

    /// A call came to a channel that is not there, after so many others.
    pub(crate) fn note_missing(&self, before: usize, is_on: bool) {
        if before > 0 && !is_on {
            set(&self.list.half_held, get(&self.list.half_held) + 1);
        }
    }

    /// Ends a group, and all that it still has to do.
    pub(crate) fn end_group(&self, index: usize) {
        if get(&self.list.resident) == index as u64 + 1 {
            self.take_away(get(&self.list.now), AFTER_CUT);
        }
        if let Some(group) = self.list.groups.get(index) {
            set(&group.slot, 0);
        }
    }

    /// Writes down that a group came or left.
    fn log(&self, group: &Group, at: u64, is_start: bool) {
        let number = get(&self.list.logged);
        let slots = &self.mapped.shared().slots;
        let slot: Option<&Slot> = slots.get(get(&self.list.named) as usize);
        if let Some(entry) = self.list.log.get(number as usize % SWITCHES) {
            set(&entry.at, at);
            set(&entry.pid, slot.map_or(0, |slot| get(&slot.pid)));
            set(
                &entry.pid_namespace,
                slot.map_or(0, |slot| get(&slot.pid_namespace)),
            );
            set(&entry.group, get(&group.number));
            set(&entry.is_start, is_start.into());
        }
        set(&self.list.logged, number + 1);
    }
}

impl Group {
    /// Whether it has work, and may run.
    pub(crate) fn is_ready(&self) -> bool {
        get(&self.slot) != 0 && !self.is_held() && self.left() > 0
    }

    /// Work that is not done.
    pub(crate) fn left(&self) -> u64 {
        get(&self.queued).saturating_sub(get(&self.done))
    }

    /// For how long it waited at most, if it comes now.
    fn longest_wait(&self, now: u64) -> u64 {
        get(&self.waited).max(now - get(&self.since).min(now))
    }

    /// Gives it work.
    pub(crate) fn queue(&self, now: u64, duration: u64) -> u64 {
        if self.left() == 0 {
            set(&self.since, now);
        }
        let queued = get(&self.queued).saturating_add(duration);
        set(&self.queued, queued);
        queued
    }

    /// Whether none of its channels runs.
    pub(crate) fn is_held(&self) -> bool {
        self.held.iter().all(|times| get(times) > 0)
    }

    /// Remembers when it ran, so that it can be told when something ended.
    fn note_run(&self, from: u64, until: u64) {
        let next = get(&self.next_run);
        let place = |number: u64| self.runs.get(number as usize % RUNS);
        if let Some(last) =
            place(next.wrapping_sub(1)).filter(|last| next > 0 && get(&last.end) == from)
        {
            set(&last.end, until);
        } else if let Some(new) = place(next) {
            set(&new.start, from);
            set(&new.end, until);
            set(&new.done, get(&self.done));
            set(&self.next_run, next + 1);
        }
    }

    /// When this amount of work was done; `None` if it is not done yet.
    pub(crate) fn when_done(&self, amount: u64) -> Option<u64> {
        if get(&self.done) < amount {
            return None;
        }
        let known = (get(&self.next_run) as usize).min(RUNS);
        let runs = self.runs.iter().take(known);
        // In each run as much is done as time passes. Of what was forgotten the earliest that is known counts.
        let ends = |run: &Run| get(&run.start) + amount.saturating_sub(get(&run.done));
        let in_time = runs.filter(|run| ends(run) <= get(&run.end));
        in_time.map(ends).min().or(Some(0))
    }
}
