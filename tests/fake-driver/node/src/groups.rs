//! Channel groups, as the process that has one and the kernel driver's other clients know them.

use std::sync::atomic::Ordering;

use crate::layout::{CHANNELS, SWITCHES, get, set};
use crate::mapped::Mapped;
use crate::node::Node;
use crate::pids::Translator;
use crate::process::Process;
use crate::runlist::{DRIVERS_SLICE, Player, catch_up};
use crate::{clock, usage};

/// The beginning of clients' handles; the rest is a group's number.
const CLIENTS: u32 = 0xc1d0_0000;
/// The handles of each client's group and of its channels.
const GROUP: u32 = 0x5c00_0010;
const FIRST_CHANNEL: u32 = 0x5c00_0020;

/// How soon it is worth to ask again, at least.
const A_MOMENT: u64 = 50_000;

/// A channel group of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    device: usize,
    index: usize,
    /// Given to no other group.
    number: u64,
}

/// How far a group is with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It ended then, on the node's clock.
    Ended(u64),
    /// It does not end before that.
    NotBefore(u64),
}

/// A group as the kernel driver finds it by its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The group.
    pub group: Group,
    /// The process, by its number here; `None` if it cannot be seen from here.
    pub pid: Option<u32>,
    /// The number by which the process knows itself.
    pub own_pid: u32,
    /// The open file by which it made the group's client.
    pub file: i32,
}

/// A group came to the GPU, or left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Its process, by its number here.
    pub pid: Option<u32>,
    /// The group's number.
    pub group: u32,
    /// Whether it came.
    pub is_start: bool,
    /// When, on the node's clock.
    pub at: u64,
}

impl Group {
    /// The handle of its client, which has nothing else.
    #[must_use]
    pub fn client(&self) -> u32 {
        CLIENTS | self.number as u32 & 0xffff
    }

    /// Its own handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        GROUP
    }

    /// Those of its channels.
    pub fn channels(&self) -> impl Iterator<Item = u32> {
        FIRST_CHANNEL..FIRST_CHANNEL + CHANNELS
    }

    /// Its number in the log of switches.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number as u32
    }

    fn place<'a>(&self, mapped: &'a Mapped) -> Option<&'a crate::layout::Group> {
        let list = mapped.shared().runlists.get(self.device)?;
        let place = list.groups.get(self.index)?;
        let is_it = get(&place.slot) != 0 && get(&place.number) == self.number;
        is_it.then_some(place)
    }
}

impl Process {
    /// Makes a channel group by this open file; `None` where the node has no scheduler, or no room.
    #[must_use]
    pub fn begin_group(&self, device: usize, file: i32) -> Option<Group> {
        let shared = self.mapped.shared();
        let _held = shared.lock.lock();
        Player::of(&self.mapped, device)?;
        catch_up(&self.mapped, device);
        let groups = &shared.runlists.get(device)?.groups;
        let index = groups.iter().position(|place| get(&place.slot) == 0)?;
        let place = groups.get(index)?;
        // Relaxed: the lock orders it.
        let number = shared.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        set(&place.number, number);
        set(&place.file, u64::from(file.cast_unsigned()));
        set(&place.slice, DRIVERS_SLICE);
        let counts = [
            &place.queued,
            &place.done,
            &place.waited,
            &place.next_run,
            &place.is_off,
        ];
        for word in counts.into_iter().chain(&place.held) {
            set(word, 0);
        }
        set(&place.slot, self.slot as u64 + 1);
        Some(Group {
            device,
            index,
            number,
        })
    }

    /// Ends a group, and all that it still has to do.
    pub fn end_group(&self, group: Group) {
        let _held = self.mapped.shared().lock.lock();
        catch_up(&self.mapped, group.device);
        let player = Player::of(&self.mapped, group.device);
        if let (Some(player), Some(_)) = (player, group.place(&self.mapped)) {
            player.end_group(group.index);
        }
    }

    /// Gives a group work of this duration in nanoseconds, behind all that it has. Returns the progress at which the
    /// work ends ([`Process::progress`]).
    #[must_use]
    pub fn queue(&self, group: Group, duration: u64) -> u64 {
        let _held = self.mapped.shared().lock.lock();
        catch_up(&self.mapped, group.device);
        let Some(place) = group.place(&self.mapped) else {
            return 0;
        };
        place.queue(clock::now(&self.mapped), duration)
    }

    /// How far a group is with what it was given.
    #[must_use]
    pub fn progress(&self, group: Group, work: u64) -> Progress {
        let _held = self.mapped.shared().lock.lock();
        catch_up(&self.mapped, group.device);
        let now = clock::now(&self.mapped);
        let Some(place) = group.place(&self.mapped) else {
            return Progress::Ended(now);
        };
        let left = work.saturating_sub(get(&place.done));
        let not_before = Progress::NotBefore(now.saturating_add(left.max(A_MOMENT)));
        place.when_done(work).map_or(not_before, Progress::Ended)
    }
}

/// The calls of other clients of the kernel driver.
impl Node {
    /// The group of a client that has this handle there.
    #[must_use]
    pub fn find_group(&self, client: u32, handle: u32) -> Option<Found> {
        let _held = self.mapped().shared().lock.lock();
        self.find(client).filter(|_| handle == GROUP)
    }

    /// All groups of a device.
    #[must_use]
    pub fn groups(&self, device: usize) -> Vec<Found> {
        let _held = self.mapped().shared().lock.lock();
        let list = self.mapped().shared().runlists.get(device);
        let all = list
            .into_iter()
            .flat_map(|list| list.groups.iter().enumerate());
        let taken = all.filter(|(_, place)| get(&place.slot) != 0);
        let groups = taken.map(|(index, place)| Group {
            device,
            index,
            number: get(&place.number),
        });
        groups
            .filter_map(|group| self.find(group.client()))
            .collect()
    }

    /// Whether a group's channels are held.
    #[must_use]
    pub fn is_held(&self, found: Found) -> bool {
        let _held = self.mapped().shared().lock.lock();
        found
            .group
            .place(self.mapped())
            .is_some_and(|place| place.is_held())
    }

    /// Whether a group has work, which may be held.
    #[must_use]
    pub fn has_work(&self, found: Found) -> bool {
        let _held = self.mapped().shared().lock.lock();
        catch_up(self.mapped(), found.group.device);
        let place = found.group.place(self.mapped());
        place.is_some_and(|place| place.left() > 0)
    }

    /// For how long a group had work at most without being on the GPU, since this was last asked.
    #[must_use]
    pub fn take_longest_wait(&self, found: Found) -> u64 {
        let _held = self.mapped().shared().lock.lock();
        catch_up(self.mapped(), found.group.device);
        let player = Player::of(self.mapped(), found.group.device);
        let Some((player, place)) = player.zip(found.group.place(self.mapped())) else {
            return 0;
        };
        let waited = player.longest_wait(found.group.index);
        set(&place.waited, 0);
        waited
    }

    /// Sets for how long a group may run before the next one comes.
    pub fn set_time_slice(&self, found: Found, microseconds: u64) {
        let _held = self.mapped().shared().lock.lock();
        catch_up(self.mapped(), found.group.device);
        if let Some(place) = found.group.place(self.mapped()) {
            set(&place.slice, microseconds.saturating_mul(1000));
        }
    }

    /// A group's time slice in microseconds.
    #[must_use]
    pub fn time_slice(&self, found: Found) -> Option<u64> {
        let place = found.group.place(self.mapped());
        place.map(|place| get(&place.slice) / 1000)
    }

    /// Lets channels of a device run, or holds them once more: each is a client's handle and its own. False if one of them is not
    /// there; those before it are done then, and those behind it are not (research/gpu-time.md).
    #[must_use]
    pub fn enable_channels(&self, device: usize, channels: &[(u32, u32)], is_on: bool) -> bool {
        let _held = self.mapped().shared().lock.lock();
        catch_up(self.mapped(), device);
        let Some(player) = Player::of(self.mapped(), device) else {
            return false;
        };
        for (before, &(client, channel)) in channels.iter().enumerate() {
            let found = self.find(client).filter(|it| it.group.device == device);
            let number = channel.checked_sub(FIRST_CHANNEL);
            let Some((found, number)) = found.zip(number.filter(|it| *it < CHANNELS)) else {
                player.note_missing(before, is_on);
                return false;
            };
            player.hold(found.group.index, number as usize, is_on);
        }
        true
    }

    /// How many calls held some of their channels before they came to one that is not there.
    #[must_use]
    pub fn half_held(&self, device: usize) -> u64 {
        let list = self.mapped().shared().runlists.get(device);
        list.map_or(0, |list| get(&list.half_held))
    }

    /// The switches of a device from this number on, the number of the next one, and how many of them are lost.
    #[must_use]
    pub fn switches(&self, device: usize, from: u64) -> (Vec<Switch>, u64, u64) {
        let _held = self.mapped().shared().lock.lock();
        catch_up(self.mapped(), device);
        let Some(list) = self.mapped().shared().runlists.get(device) else {
            return (Vec::new(), from, 0);
        };
        let next = get(&list.logged);
        let first = from.max(next.saturating_sub(SWITCHES as u64));
        let mut translator = Translator::new();
        let entries = (first..next).filter_map(|number| list.log.get(number as usize % SWITCHES));
        let switches = entries.map(|entry| Switch {
            pid: translator.translate_number(get(&entry.pid), get(&entry.pid_namespace)),
            group: get(&entry.group) as u32,
            is_start: get(&entry.is_start) != 0,
            at: get(&entry.at),
        });
        (switches.collect(), next, first - from.min(first))
    }

    /// A client's group.
    fn find(&self, client: u32) -> Option<Found> {
        let shared = self.mapped().shared();
        let lists = shared.runlists.iter().enumerate();
        let groups = lists.flat_map(|(device, list)| {
            let groups = list.groups.iter().enumerate();
            groups.map(move |(index, place)| (device, index, place))
        });
        let mut taken = groups.filter(|(_, _, place)| get(&place.slot) != 0);
        let found = taken.find_map(|(device, index, place)| {
            let group = Group {
                device,
                index,
                number: get(&place.number),
            };
            (group.client() == client).then_some((group, place))
        });
        let (group, place) = found?;
        let slot = shared.slots.get(get(&place.slot) as usize - 1)?;
        Some(Found {
            group,
            pid: Translator::new().translate(slot),
            own_pid: usage::own_pid(slot),
            file: (get(&place.file) as u32).cast_signed(),
        })
    }
}
