//! Lets channels run, or holds them, though some of them go meanwhile.
//!
//! The driver takes one call for many channels. If one of them is not there, the call fails after it had its effect on those before that
//! one. The driver counts how often each is held (research/gpu-time.md). While it takes processes off the GPU, each call may take some
//! 20 ms. So there are to be few.

use std::collections::BTreeSet;

use crate::call::{Error, ErrorKind, Handle};

/// How many channels one call can name.
pub(crate) const MOST_CHANNELS: usize = 64;

/// A channel of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// The driver's client that made it.
    pub client: Handle,
    /// Its own handle.
    pub handle: Handle,
}

/// Gives the channels of processes that have ended by then.
pub type Ended<'a> = &'a dyn Fn() -> BTreeSet<Channel>;

/// Channels that are not as they should be.
#[derive(Debug, Default)]
pub struct Untaken {
    /// They no longer exist, or are of another GPU.
    pub gone: Vec<Channel>,
    /// All other channels for which the driver did not take the call.
    pub rest: Vec<Channel>,
    /// Why, of one of `rest`, or else of `gone`.
    pub error: Option<Error>,
}

impl Untaken {
    fn add(&mut self, channels: &[Channel], error: Error) {
        if error.kind() == ErrorKind::Gone {
            self.gone.extend(channels);
            self.error.get_or_insert(error);
        } else {
            self.rest.extend(channels);
            self.error = Some(error);
        }
    }
}

/// Lets channels run or holds them, by the driver, which `tell` speaks to.
pub(crate) struct Enabling<'a, T> {
    pub(crate) is_on: bool,
    pub(crate) ended: Ended<'a>,
    pub(crate) tell: T,
    pub(crate) untaken: Untaken,
}

impl<T: FnMut(&[Channel], bool) -> Result<(), Error>> Enabling<'_, T> {
    /// Those of processes that have ended may be left as they are, and are not among the untaken.
    pub(crate) fn all(mut self, channels: &[Channel]) -> Untaken {
        for some in channels.chunks(MOST_CHANNELS) {
            // A GPU that does not answer takes seconds for each call.
            if self.untaken.error.as_ref().is_some_and(Error::is_timeout) {
                self.untaken.rest.extend(some);
            } else {
                self.some(some);
            }
        }
        self.untaken
    }

    fn some(&mut self, some: &[Channel]) {
        let Err(error) = (self.tell)(some, self.is_on) else {
            return;
        };
        if error.kind() != ErrorKind::Gone || some.len() == 1 {
            if !error.is_timeout() {
                self.undo(some);
            }
            return self.untaken.add(some, error);
        }
        let ended = (self.ended)();
        let left: Vec<Channel> = some
            .iter()
            .filter(|it| !ended.contains(it))
            .copied()
            .collect();
        self.undo(&left);
        let is_of_one = left.iter().all(|it| it.client == some[0].client);
        match left.len() {
            0 => {}
            // One that has gone is of a process that lives. A process's often go together.
            length if length == some.len() && is_of_one => {
                left.chunks(1).for_each(|one| self.some(one));
            }
            length if length == some.len() => {
                let clients = left.chunk_by(|one, next| one.client == next.client);
                clients.for_each(|its| self.some(its));
            }
            _ => self.some(&left),
        }
    }

    /// After a call that held some of these. Those of a client are all there, or are told one by one: one that goes before this call
    /// would keep it from those behind.
    fn undo(&mut self, channels: &[Channel]) {
        if self.is_on {
            return;
        }
        for its in channels.chunk_by(|one, next| one.client == next.client) {
            if (self.tell)(its, true).is_err() && its.len() > 1 {
                for one in its.chunks(1) {
                    // It is gone, or runs.
                    let _ = (self.tell)(one, true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A driver: how often each channel is held, and which clients go before which call.
    struct Driver {
        held: BTreeMap<Channel, u32>,
        going: Vec<(usize, Channel, bool)>,
        calls: usize,
    }

    impl Driver {
        fn tell(&mut self, channels: &[Channel], is_on: bool) -> Result<(), Error> {
            for &(_, gone, is_whole) in self.going.iter().filter(|it| it.0 == self.calls) {
                self.held
                    .retain(|it, _| *it != gone && !(is_whole && it.client == gone.client));
            }
            self.calls += 1;
            for channel in channels {
                const INVALID_CHANNEL: u32 = 0x21;
                let Some(count) = self.held.get_mut(channel) else {
                    return Err(Error::Refused {
                        command: 0,
                        status: INVALID_CHANNEL,
                    });
                };
                *count = match is_on {
                    true => count.saturating_sub(1),
                    false => *count + 1,
                };
            }
            Ok(())
        }
    }

    fn channel((client, handle): (u32, u32)) -> Channel {
        Channel { client, handle }
    }

    /// Lets all of so many clients with so many channels run, or holds them, while some go; `are_known` says whether that is known.
    fn enable(
        (clients, each): (u32, u32),
        is_on: bool,
        going: &[(usize, (u32, u32), bool)],
        are_known: bool,
    ) -> (Driver, Untaken) {
        let all = (0..clients).flat_map(|client| (0..each).map(move |it| channel((client, it))));
        let all: Vec<Channel> = all.collect();
        let going = going
            .iter()
            .map(|&(at, it, is_whole)| (at, channel(it), is_whole));
        let driver = std::cell::RefCell::new(Driver {
            held: all.iter().map(|it| (*it, u32::from(is_on))).collect(),
            going: going.collect(),
            calls: 0,
        });
        let ended = || {
            let known = all.iter().filter(|_| are_known);
            let lives = |client| driver.borrow().held.keys().any(|it| it.client == client);
            known.filter(|it| !lives(it.client)).copied().collect()
        };
        let enabling = Enabling {
            is_on,
            ended: &ended,
            tell: |channels: &[Channel], is_on: bool| driver.borrow_mut().tell(channels, is_on),
            untaken: Untaken::default(),
        };
        let untaken = enabling.all(&all);
        (driver.into_inner(), untaken)
    }

    proptest! {
        #[test]
        fn those_that_are_left_are_as_they_should_be_and_held_once(
            clients in 1..30_u32,
            each in 1..6_u32,
            is_on: bool,
            are_known: bool,
            going in vec((0..40_usize, (0..30_u32, 0..6_u32), any::<bool>()), 0..30),
        ) {
            let (driver, untaken) = enable((clients, each), is_on, &going, are_known);
            for (channel, count) in &driver.held {
                prop_assert_eq!(*count, u32::from(!is_on), "{:?}", channel);
            }
            prop_assert!(untaken.rest.is_empty());
            prop_assert!(untaken.gone.iter().all(|it| !driver.held.contains_key(it)));
        }
    }

    #[test]
    fn many_ends_take_few_calls_if_they_are_known() {
        let ends: Vec<_> = (0..36).map(|client| (0, (client, 0), true)).collect();
        let calls = |is_on, are_known| enable((38, 2), is_on, &ends, are_known).0.calls;
        // 76 channels are in two calls of which the second names no other.
        assert!(calls(false, true) <= 8, "{}", calls(false, true));
        assert!(calls(true, true) <= 4, "{}", calls(true, true));
        assert!(calls(false, false) > 100);
    }
}
