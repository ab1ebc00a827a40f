//! The allocations of this process, by the driver's name for each: its address or handle.
//!
//! The table is in memory of the hook's own: the program can bring its own allocator, and that may be the caller here.
//! It is cut into shards with a lock each, held for some ten instructions and never across a call to the driver.

use crate::os::cells::{Locked, Mapped, zeroed};

/// The kind of a thing that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Memory by its address, with pieces of its own.
    Address = 1,
    /// Managed memory with a mapping of its own.
    Managed,
    /// A mapping with small managed memory in it, allocated or variables of code; `other` is when it was last seen there.
    ManagedPiece,
    /// A managed variable of code with a mapping of its own; `other` is when it was last seen there.
    Variable,
    /// A piece of the driver's, by its address, with several small allocations in it; `count` is their number.
    Piece,
    /// Physical memory by its handle; `count` is how often it must be released and unmapped, `other` says whether
    /// other processes have it.
    Handle,
    /// Physical memory mapped at an address: `other` is the handle, `count` how many units are mapped.
    Mapping,
    /// Another process's memory by its address; `count` is how often it was opened.
    Opened,
    /// An array.
    Array,
    /// A mipmapped array.
    Mipmap,
    /// Memory of another API or process.
    External,
    /// A memory pool: `units` is what it holds, `count` how many threads ask the driver about it.
    Pool,
    /// A graph that can be launched: `units` is what its memory nodes take.
    Graph,
    /// A context: `count` is what it takes.
    Context,
    /// The stacks of a context, by the context: `count` is the largest frame that it has room for, `other` the units of its
    /// kernels' heap, `units` what both take beyond what every context takes.
    Stacks,
    /// A kernel that was launched, by its address and its context's.
    Kernel,
}

/// One thing that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The units that are charged for it.
    pub(crate) units: u32,
    /// The GPU that the memory is on, by its number in CUDA's order.
    pub(crate) device: u8,
    /// Its meaning depends on the kind.
    pub(crate) count: u32,
    /// Its meaning depends on the kind.
    pub(crate) other: u64,
}

/// A thing that was found, to be changed later if it is still there by then.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) held: Holding,
    serial: u32,
}

impl Known {
    /// Whether both are the same thing.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    name: u64,
    other: u64,
    units: u32,
    count: u32,
    /// Tells the thing from others that had its name before.
    serial: u32,
    /// Zero for an entry that is free.
    kind: u8,
    device: u8,
}

impl Entry {
    const FREE: Self = Self {
        name: 0,
        other: 0,
        units: 0,
        count: 0,
        serial: 0,
        kind: 0,
        device: 0,
    };

    fn new(kind: Kind, name: u64, serial: u32, holding: Holding) -> Self {
        Self {
            name,
            other: holding.other,
            units: holding.units,
            count: holding.count,
            serial,
            kind: kind as u8,
            device: holding.device,
        }
    }

    fn holding(self) -> Holding {
        Holding {
            units: self.units,
            device: self.device,
            count: self.count,
            other: self.other,
        }
    }

    fn known(self) -> Known {
        Known {
            held: self.holding(),
            serial: self.serial,
        }
    }

    fn is_free(&self) -> bool {
        self.kind == 0
    }

    fn is(&self, kind: Kind, name: u64) -> bool {
        self.kind == kind as u8 && self.name == name
    }
}

const SHARDS: usize = 16;
/// A page of entries.
const FIRST: usize = 128;

/// The table; empty when all zero.
pub(crate) struct Holdings {
    shards: [Shard; SHARDS],
}

#[repr(align(64))]
struct Shard(Locked<Table>);

/// Open addressing with linear probing; there are as many entries as a power of two, or none.
struct Table {
    entries: Mapped<Entry>,
    used: usize,
    last_serial: u32,
}

zeroed! { Entry { name, other, units, count, serial, kind, device } }
zeroed! { Table { entries, used, last_serial } }
zeroed! { Shard { 0 } }
zeroed! { Holdings { shards } }

impl Table {
    const EMPTY: Self = Self {
        entries: Mapped::empty(),
        used: 0,
        last_serial: 0,
    };
}

impl Holdings {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            shards: [const { Shard(Locked::new(Table::EMPTY)) }; SHARDS],
        }
    }

    /// Changes the entry of one thing: `to` gets it, and answers with the new entry and the value to return.
    ///
    /// Without memory for the table no new entry is kept: its charge then stays.
    pub(crate) fn change<R>(
        &self,
        kind: Kind,
        name: u64,
        to: impl FnOnce(Option<Holding>) -> (Option<Holding>, R),
    ) -> R {
        self.edit(kind, name, |known| {
            let (after, result) = to(known.map(|known| known.held));
            (after, known.map(|known| known.serial), result)
        })
    }

    /// The same for a thing that was found; `None` if it has gone, also if another has its name by now.
    pub(crate) fn change_known<R>(
        &self,
        kind: Kind,
        name: u64,
        found: &Known,
        to: impl FnOnce(Holding) -> (Option<Holding>, R),
    ) -> Option<R> {
        self.edit(kind, name, |now| match now {
            Some(now) if now.serial == found.serial => {
                let (after, result) = to(now.held);
                (after, Some(now.serial), Some(result))
            }
            now => (now.map(|now| now.held), now.map(|now| now.serial), None),
        })
    }

    /// Remembers something new. Returns what had its name before.
    pub(crate) fn put(&self, kind: Kind, name: u64, new: Holding) -> Option<Holding> {
        self.edit(kind, name, |before| {
            (Some(new), None, before.map(|before| before.held))
        })
    }

    /// Calls `to` with the entry of one name. It answers with the new entry, that entry's serial number if it is not a new
    /// thing's, and the value to return.
    fn edit<R>(
        &self,
        kind: Kind,
        name: u64,
        to: impl FnOnce(Option<Known>) -> (Option<Holding>, Option<u32>, R),
    ) -> R {
        let hash = hash(kind, name);
        self.with_shard((hash >> 60) as usize, |table| {
            let place = table.find(kind, name, hash);
            let before = place.and_then(|place| table.get(place)).map(Entry::known);
            let (after, serial, result) = to(before);
            let entry = after.map(|holding| {
                let serial = serial.unwrap_or_else(|| table.new_serial());
                Entry::new(kind, name, serial, holding)
            });
            match (place, entry) {
                (Some(place), Some(entry)) => table.set(place, entry),
                (Some(place), None) => table.remove(place),
                (None, Some(entry)) => table.insert(entry, hash),
                (None, None) => {}
            }
            result
        })
    }

    /// Forgets something.
    pub(crate) fn take(&self, kind: Kind, name: u64) -> Option<Holding> {
        self.take_out(kind, name).map(|known| known.held)
    }

    /// The same, with all that was known.
    pub(crate) fn take_out(&self, kind: Kind, name: u64) -> Option<Known> {
        self.edit(kind, name, |known| (None, None, known))
    }

    /// A thing that is held.
    pub(crate) fn get(&self, kind: Kind, name: u64) -> Option<Holding> {
        self.find(kind, name).map(|known| known.held)
    }

    /// The same, to be changed later.
    pub(crate) fn find(&self, kind: Kind, name: u64) -> Option<Known> {
        let hash = hash(kind, name);
        self.with_shard((hash >> 60) as usize, |table| {
            let place = table.find(kind, name, hash)?;
            table.get(place).map(Entry::known)
        })
    }

    /// Calls `visit` with the name of each thing of a kind, while no lock is held; what other threads bring or take meanwhile
    /// may be left out. `visit` may take what it is called with.
    pub(crate) fn each(&self, kind: Kind, mut visit: impl FnMut(u64, Holding)) {
        for shard in 0..SHARDS {
            let mut place = 0;
            loop {
                let entry = self.with_shard(shard, |table| table.get(place));
                let Some(entry) = entry else { break };
                if entry.kind == kind as u8 {
                    visit(entry.name, entry.holding());
                    // If the entry is taken out, another moves to its place, and is next.
                    let now = self.with_shard(shard, |table| table.get(place));
                    let has_moved = |now: Entry| !now.is_free() && !now.is(kind, entry.name);
                    if now.is_some_and(has_moved) {
                        continue;
                    }
                }
                place = place.saturating_add(1);
            }
        }
    }

    fn with_shard<R>(&self, shard: usize, use_it: impl FnOnce(&mut Table) -> R) -> R {
        #[expect(
            clippy::indexing_slicing,
            reason = "there are as many shards as the remainder can say"
        )]
        let shard = &self.shards[shard % SHARDS];
        use_it(&mut shard.0.hold())
    }
}

/// Fibonacci hashing: the upper bits are the good ones.
fn hash(kind: Kind, name: u64) -> u64 {
    (name ^ (kind as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Table {
    fn new_serial(&mut self) -> u32 {
        self.last_serial = self.last_serial.wrapping_add(1);
        self.last_serial
    }

    fn capacity(&self) -> usize {
        self.entries.len()
    }

    fn get(&self, place: usize) -> Option<Entry> {
        self.entries.get(place).copied()
    }

    fn set(&mut self, place: usize, entry: Entry) {
        if let Some(at) = self.entries.get_mut(place) {
            *at = entry;
        }
    }

    fn next(&self, place: usize) -> usize {
        place.wrapping_add(1) & self.capacity().wrapping_sub(1)
    }

    /// The place where a search for something with this hash begins.
    fn home(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.capacity().wrapping_sub(1)
    }

    fn find(&self, kind: Kind, name: u64, hash: u64) -> Option<usize> {
        let mut place = self.home(hash);
        loop {
            let entry = self.get(place)?;
            if entry.is_free() {
                return None;
            }
            if entry.is(kind, name) {
                return Some(place);
            }
            place = self.next(place);
        }
    }

    fn insert(&mut self, entry: Entry, hash: u64) {
        // Always one entry in four is free, so a search ends.
        let is_full = self.used >= self.capacity().saturating_sub(self.capacity() / 4);
        if is_full && !self.grow() {
            return;
        }
        let mut place = self.home(hash);
        while self.get(place).is_some_and(|entry| !entry.is_free()) {
            place = self.next(place);
        }
        self.set(place, entry);
        self.used = self.used.saturating_add(1);
    }

    /// Takes an entry out, and closes the gap: searches end at the first free place.
    fn remove(&mut self, mut gap: usize) {
        let mut place = gap;
        loop {
            place = self.next(place);
            let Some(entry) = self.get(place).filter(|entry| !entry.is_free()) else {
                break;
            };
            let home = self.home(hash_of(&entry));
            let mask = self.capacity().wrapping_sub(1);
            let from_home = place.wrapping_sub(home) & mask;
            let from_gap = place.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.set(gap, entry);
                gap = place;
            }
        }
        self.set(gap, Entry::FREE);
        self.used = self.used.saturating_sub(1);
    }

    fn grow(&mut self) -> bool {
        let capacity = self.capacity().saturating_mul(2).max(FIRST);
        let Ok(entries) = Mapped::new(capacity) else {
            return false;
        };
        let mut larger = Self {
            entries,
            used: 0,
            last_serial: self.last_serial,
        };
        for entry in self.entries.iter().filter(|entry| !entry.is_free()) {
            larger.insert(*entry, hash_of(entry));
        }
        *self = larger;
        true
    }
}

fn hash_of(entry: &Entry) -> u64 {
    (entry.name ^ u64::from(entry.kind) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
#[path = "allocations_tests.rs"]
mod tests;
