//! A GPU whose groups always have work, each of one process's channels or of those of a server's clients.

use super::steered::{Steered, channel};
use super::*;
use crate::arbiter::scheduler::Device;
use crate::schedule::Nanos;
use softmig_rm::{Channel, Ended, Reading, Switch, Untaken};

/// How long a group is there while others have work: as long as one is to be that has half of the GPU. The first one stays for far
/// longer, so that it has to be held.
const SLICE: Nanos = 16_000_000;
const FIRST_SLICE: Nanos = 64_000_000;

/// A GPU whose groups always have work. What they did is found out when the log is read or channels change, so that a slow machine
/// changes nothing.
#[derive(Clone, Default)]
pub(super) struct Worked {
    device: Steered,
    pub(super) groups: Arc<Mutex<Groups>>,
    /// What channels were told, in order.
    told: Arc<Mutex<Vec<Told>>>,
}

#[derive(Default)]
pub(super) struct Groups {
    pub(super) all: Vec<Group>,
    /// Which one is there, and since when.
    pub(super) there: Option<(usize, Nanos)>,
    /// Whose turn was last.
    last: usize,
    /// Until when it is known what they did.
    at: Nanos,
    /// How many entries the log ever had.
    pub(super) entries: usize,
}

/// What is on the GPU together.
pub(super) struct Group {
    /// The process that the log names.
    process: u32,
    /// It may be there while any of these may run.
    pub(super) channels: Vec<Channel>,
}

#[derive(Clone, Copy)]
pub(super) struct Told {
    pub(super) channel: Channel,
    pub(super) is_on: bool,
    /// Whether it ran before.
    pub(super) ran: bool,
}

impl Groups {
    /// What the log says until then, while these channels wait.
    fn go_on(&mut self, now: Nanos, waits: impl Fn(Channel) -> bool) -> Vec<Switch> {
        let mut log = Vec::new();
        let mut note = |process, is_start, at: Nanos| {
            log.push(Switch {
                process,
                channel: 6,
                is_start,
                at: at.unsigned_abs(),
            });
        };
        let may_run: Vec<bool> = self
            .all
            .iter()
            .map(|it| !it.channels.iter().all(|&it| waits(it)))
            .collect();
        let count = self.all.len();
        loop {
            if let Some((one, since)) = self.there {
                let is_alone = (0..count).all(|it| it == one || !may_run[it]);
                let end = since + if one == 0 { FIRST_SLICE } else { SLICE };
                if may_run[one] && (is_alone || end > now) {
                    break;
                }
                if may_run[one] {
                    self.at = self.at.max(end);
                }
                note(self.all[one].process, false, self.at);
                self.there = None;
            }
            let Some(next) = (1..=count)
                .map(|it| (self.last + it) % count)
                .find(|&it| may_run[it])
            else {
                break;
            };
            note(self.all[next].process, true, self.at);
            (self.there, self.last) = (Some((next, self.at)), next);
        }
        self.at = now;
        self.entries += log.len();
        log
    }
}

impl Worked {
    /// One with the groups of these channels, by the processes that the log names.
    pub(super) fn with(groups: &[(u32, &[u32])]) -> Self {
        let group = |&(process, channels): &(u32, &[u32])| Group {
            process,
            channels: channels.iter().copied().map(channel).collect(),
        };
        let groups = Groups {
            all: groups.iter().map(group).collect(),
            at: now(),
            ..Groups::default()
        };
        Self {
            groups: Arc::new(Mutex::new(groups)),
            ..Self::default()
        }
    }

    fn go_on(&self) {
        let log = self
            .groups
            .lock()
            .unwrap()
            .go_on(now(), |it| self.device.waits(it));
        self.device.log.lock().unwrap().extend(log);
    }

    pub(super) fn waits(&self, channel: Channel) -> bool {
        self.device.waits(channel)
    }

    /// What channels were told from the one of this number on.
    pub(super) fn told_since(&self, from: usize) -> Vec<Told> {
        self.told.lock().unwrap()[from..].to_vec()
    }

    pub(super) fn count_told(&self) -> usize {
        self.told.lock().unwrap().len()
    }
}

impl Device for Worked {
    fn switches(&mut self, to: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error> {
        self.go_on();
        self.device.switches(to)
    }

    fn enable(&self, channels: &[Channel], is_on: bool, ended: Ended<'_>) -> Untaken {
        self.go_on();
        let told = channels.iter().map(|&channel| Told {
            channel,
            is_on,
            ran: !self.waits(channel),
        });
        self.told.lock().unwrap().extend(told);
        self.device.enable(channels, is_on, ended)
    }
}
