//! The clients that have connected and are not done: they have not asked yet, or have not taken the answer.
//!
//! Each of these keeps files open here, or on their way, and any user can connect. So there is a limit to what a user
//! has of either, and one to all silent clients. When that is reached, users without a job lose their connections
//! first, and then the user with the most. No user loses an answer; a user that leaves too many gets no more.

use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::authorizer::Client;
use super::closer::ClientSocket;
use crate::jobs::pidfd::Pidfd;
use crate::schedule::Nanos;

/// The most clients that may have connected without having asked yet, in all and of one user.
const MOST_SILENT: usize = 256;
const MOST_SILENT_OF_A_USER: usize = 16;
/// The most pages of a user that were given and not taken yet.
const MOST_UNREAD_OF_A_USER: usize = 64;
/// The interval at which a user is given a page, which the user can keep. Pages that a user did not ask for in the time
/// of `SAVINGS` are given at once.
const PAGE: Nanos = 50_000_000;
const SAVINGS: Nanos = 1024 * PAGE;

/// All of them, by numbers that are counted up.
#[derive(Debug, Default)]
pub(super) struct Connections {
    silent: BTreeMap<u64, Silent>,
    served: BTreeMap<u64, Connection>,
    /// Until when what a user was given is made up for.
    given: BTreeMap<u32, Nanos>,
}

/// A client at the other end of a socket.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: ClientSocket,
    pub(super) client: Client,
    /// Its process; why it cannot be known when it ends.
    pub(super) process: Result<Pidfd, Errno>,
}

#[derive(Debug)]
struct Silent {
    connection: Connection,
    deadline: Nanos,
}

impl Connections {
    /// Whether a user may connect once more.
    pub(super) fn may_connect(&self, uid: u32) -> bool {
        let clients = self.silent.values().map(|it| it.connection.client);
        clients.filter(|it| it.uid == uid).count() < MOST_SILENT_OF_A_USER
    }

    /// Whether a user may be given a page, and then is.
    pub(super) fn may_have(&mut self, uid: u32, now: Nanos) -> bool {
        let clients = self.served.values().map(|it| it.client);
        let unread = clients.filter(|it| it.uid == uid).count();
        self.given.retain(|_, given| now - *given < SAVINGS);
        let given = self.given.entry(uid).or_insert(now - SAVINGS);
        let may = unread < MOST_UNREAD_OF_A_USER && *given <= now;
        if may {
            *given += PAGE;
        }
        may
    }

    /// Adds a client that has connected. If there are too many, one that has not asked yet goes; `users` has those with
    /// jobs.
    pub(super) fn add(
        &mut self,
        number: u64,
        connection: Connection,
        deadline: Nanos,
        users: impl FnOnce() -> BTreeSet<u32>,
    ) {
        let silent = Silent {
            connection,
            deadline,
        };
        self.silent.insert(number, silent);
        if self.silent.len() > MOST_SILENT {
            self.make_room(&users());
        }
    }

    fn make_room(&mut self, with_job: &BTreeSet<u32>) {
        let mut users = BTreeMap::new();
        for (&number, silent) in &self.silent {
            let (many, _) = users
                .entry(silent.connection.client.uid)
                .or_insert((0usize, Reverse(number)));
            *many += 1;
        }
        let last = users
            .into_iter()
            .max_by_key(|&(uid, its)| (!with_job.contains(&uid), its));
        if let Some((_, (_, Reverse(oldest)))) = last {
            self.silent.remove(&oldest);
        }
    }

    /// The client that says something for the first time.
    pub(super) fn ask(&mut self, number: u64) -> Option<Connection> {
        Some(self.silent.remove(&number)?.connection)
    }

    /// Adds a client that was given a page, and may not have taken it yet.
    pub(super) fn serve(&mut self, number: u64, connection: Connection) {
        self.served.insert(number, connection);
    }

    /// The client that was given a page.
    pub(super) fn served(&self, number: u64) -> Option<&Connection> {
        self.served.get(&number)
    }

    /// The client has taken its page.
    pub(super) fn remove(&mut self, number: u64) {
        self.served.remove(&number);
    }

    /// Lets those go who should have asked by now.
    pub(super) fn expire(&mut self, now: Nanos) {
        self.silent.retain(|_, silent| now < silent.deadline);
    }

    /// When the next one should have asked.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.silent.values().map(|silent| silent.deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::closer::Closer;
    use super::*;

    /// Those connect one after the other, as far as they may.
    fn connect(
        connections: &mut Connections,
        uids: impl IntoIterator<Item = u32>,
        with_job: &[u32],
    ) {
        for uid in uids {
            let number = connections.silent.keys().last().map_or(1, |last| last + 1);
            if !connections.may_connect(uid) {
                continue;
            }
            let socket = std::fs::File::open("/dev/null").unwrap().into();
            let socket = ClientSocket::new(socket, &Closer::new().unwrap().into());
            let client = Client { pid: 1, uid };
            let users = || with_job.iter().copied().collect();
            let connection = Connection {
                socket,
                client,
                process: Err(Errno::SRCH),
            };
            connections.add(number, connection, 1000, users);
        }
    }

    fn numbers_of(connections: &Connections, uid: u32) -> Vec<u64> {
        let all = connections.silent.iter();
        let of = all.filter(|(_, it)| it.connection.client.uid == uid);
        of.map(|(&number, _)| number).collect()
    }

    fn each(uids: std::ops::Range<u32>, times: usize) -> impl Iterator<Item = u32> {
        uids.flat_map(move |uid| std::iter::repeat_n(uid, times))
    }

    #[test]
    fn a_user_has_so_many_silent_connections_and_no_more() {
        let mut connections = Connections::default();
        connect(&mut connections, each(1..3, 100), &[]);
        assert_eq!(numbers_of(&connections, 1).len(), MOST_SILENT_OF_A_USER);
        assert_eq!(numbers_of(&connections, 2).len(), MOST_SILENT_OF_A_USER);
        connections.expire(999);
        assert_eq!(connections.deadline(), Some(1000));
        connections.expire(1000);
        assert_eq!(connections.deadline(), None);
    }

    #[test]
    fn where_all_places_are_taken_who_has_most_loses_the_oldest() {
        let mut connections = Connections::default();
        connect(&mut connections, each(1..17, 16), &[]);
        assert_eq!(connections.silent.len(), MOST_SILENT);
        let oldest = numbers_of(&connections, 1)[0];
        connect(&mut connections, [17], &[]);
        assert_eq!(connections.silent.len(), MOST_SILENT);
        assert!(!numbers_of(&connections, 1).contains(&oldest));
        // However many come after, the one who has least stays.
        connect(&mut connections, each(1..17, 100), &[]);
        assert_eq!(numbers_of(&connections, 17).len(), 1);
    }

    #[test]
    fn a_user_who_takes_no_answers_gets_no_more_and_others_do() {
        let mut connections = Connections::default();
        for number in 0..MOST_UNREAD_OF_A_USER as u64 {
            assert!(connections.may_have(1, SAVINGS));
            connect(&mut connections, [1], &[]);
            let connection = connections.ask(1).unwrap();
            connections.serve(number, connection);
        }
        assert!(!connections.may_have(1, SAVINGS) && connections.may_have(2, SAVINGS));
        connections.remove(7);
        assert!(connections.may_have(1, SAVINGS));
    }

    #[test]
    fn a_user_is_given_a_thousand_pages_and_then_twenty_a_second() {
        let mut connections = Connections::default();
        let start = SAVINGS;
        let mut given = |uid, now| (0..2000).filter(|_| connections.may_have(uid, now)).count();
        assert_eq!(given(1, start), 1025);
        assert_eq!(given(1, start + 999_000_000), 19);
        assert_eq!(given(2, start + 999_000_000), 1025);
        assert_eq!(given(1, 5 * start), 1025);
        assert_eq!(connections.given.len(), 1);
    }

    #[test]
    fn users_without_a_job_lose_theirs_first() {
        let mut connections = Connections::default();
        connect(&mut connections, each(1..2, 16), &[1]);
        // Numbers that a user can have by the thousand, one connection each.
        connect(&mut connections, 100_000..101_000, &[1]);
        assert_eq!(connections.silent.len(), MOST_SILENT);
        assert_eq!(numbers_of(&connections, 1).len(), 16);
        connect(&mut connections, [2], &[1, 2]);
        connect(&mut connections, 200_000..201_000, &[1, 2]);
        assert_eq!(numbers_of(&connections, 2).len(), 1);
        assert_eq!(numbers_of(&connections, 1).len(), 16);
    }
}
