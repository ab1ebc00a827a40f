//! Processes that ask to be let through the device gate, or into their pack.
//!
//! To look at a process's memory or its files may take as long as the process likes, so threads do that: as many for each job as it
//! takes to keep its processes from waiting for each other. A job whose processes hold them up holds up its own alone.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::warn;

use super::connections::Connection;
use super::gpu::spawn;
use super::socket::answer;
use crate::schedule::Job;

/// How many threads a job has at most.
const THREADS: usize = 4;
/// How many of a job's processes wait for them.
const MOST_WAITING: usize = 256;

/// Answers a process.
pub(super) type Answer = Box<dyn FnOnce(&Connection) + Send>;

/// The questions that are not answered yet.
#[derive(Default)]
pub(super) struct Admissions {
    jobs: Arc<Mutex<HashMap<Job, Queue>>>,
}

#[derive(Default)]
struct Queue {
    threads: usize,
    waiting: VecDeque<(Connection, Answer)>,
}

impl Admissions {
    /// A process of this job asks, and is answered by that.
    pub(super) fn ask(&self, job: Job, connection: Connection, by: Answer) {
        let mut jobs = lock(&self.jobs);
        let queue = jobs.entry(job).or_default();
        if queue.waiting.len() >= MOST_WAITING {
            let _ = answer(&connection.socket, Err(Errno::AGAIN));
            return;
        }
        queue.waiting.push_back((connection, by));
        if queue.threads == THREADS {
            return;
        }
        queue.threads += 1;
        drop(jobs);
        let jobs = Arc::clone(&self.jobs);
        if let Err(error) = spawn("admission", move || serve(&jobs, job)) {
            warn!(
                "processes of job {} are not admitted to its GPUs: {error}",
                job.0
            );
            end_thread(&mut lock(&self.jobs), job);
        }
    }
}

fn lock(jobs: &Mutex<HashMap<Job, Queue>>) -> MutexGuard<'_, HashMap<Job, Queue>> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a job's processes until none waits.
fn serve(jobs: &Mutex<HashMap<Job, Queue>>, job: Job) {
    while let Some((connection, by)) = next(jobs, job) {
        // One that has gone may have asked again since, or given up.
        if !has_gone(&connection) {
            by(&connection);
        }
    }
}

fn has_gone(connection: &Connection) -> bool {
    let mut all = [PollFd::new(&connection.socket, PollFlags::empty())];
    let told = poll(&mut all, Some(&Timespec::default()));
    told.is_ok_and(|count| count > 0) && all.iter().any(|it| it.revents().contains(PollFlags::HUP))
}

fn next(jobs: &Mutex<HashMap<Job, Queue>>, job: Job) -> Option<(Connection, Answer)> {
    let mut jobs = lock(jobs);
    let next = jobs.get_mut(&job)?.waiting.pop_front();
    if next.is_none() {
        end_thread(&mut jobs, job);
    }
    next
}

/// One of a job's threads ends.
fn end_thread(jobs: &mut HashMap<Job, Queue>, job: Job) {
    if let Some(queue) = jobs.get_mut(&job) {
        queue.threads -= 1;
        if queue.threads == 0 {
            // With those whom no thread could be had for: they ask again.
            jobs.remove(&job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::authorizer::Client;
    use super::super::closer::{ClientSocket, Closer};
    use super::*;
    use rustix::net::{
        AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair, sockopt,
    };
    use softmig_region::seat::ANSWER;
    use std::os::fd::OwnedFd;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::Duration;

    /// A client of that number, and its own end.
    fn client(pid: u32, closer: &Arc<Closer>) -> (Connection, OwnedFd) {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (own, other) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        let socket = ClientSocket::new(own, closer);
        let client = Client { pid, uid: 2001 };
        let process = Err(Errno::SRCH);
        let connection = Connection {
            socket,
            client,
            process,
        };
        (connection, other)
    }

    /// The answer, if there is one in this time.
    fn answered(socket: &OwnedFd, milliseconds: u64) -> Option<i32> {
        let patience = Some(Duration::from_millis(milliseconds));
        sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, patience).unwrap();
        let mut bytes = [0; ANSWER];
        recv(socket, &mut bytes[..], RecvFlags::empty()).ok()?;
        Some(i32::from_le_bytes(bytes))
    }

    #[test]
    fn processes_that_take_their_time_delay_their_own_job_alone() {
        let closer = Arc::new(Closer::new().unwrap());
        let free = Arc::new(Barrier::new(THREADS + 1));
        let by = || -> Answer {
            let held = Arc::clone(&free);
            Box::new(move |connection| {
                let pid = connection.client.pid;
                if pid == 1 {
                    held.wait();
                }
                let admitted = if pid > 2 {
                    Err(Errno::ACCESS)
                } else {
                    Ok(None)
                };
                answer(&connection.socket, admitted).unwrap();
            })
        };
        let admissions = Admissions::default();
        let mut sockets = Vec::new();
        for pid in [1; THREADS].into_iter().chain([2]) {
            let (connection, socket) = client(pid, &closer);
            admissions.ask(Job(7), connection, by());
            sockets.push(socket);
        }
        let (connection, other) = client(3, &closer);
        admissions.ask(Job(8), connection, by());
        assert_eq!(answered(&other, 60_000), Some(Errno::ACCESS.raw_os_error()));
        assert!(sockets.iter().all(|socket| answered(socket, 1).is_none()));
        // One more than may wait.
        for _ in 1..MOST_WAITING {
            let (connection, socket) = client(2, &closer);
            admissions.ask(Job(7), connection, by());
            sockets.push(socket);
        }
        let (connection, late) = client(2, &closer);
        admissions.ask(Job(7), connection, by());
        assert_eq!(answered(&late, 60_000), Some(Errno::AGAIN.raw_os_error()));
        free.wait();
        assert!(
            sockets
                .iter()
                .all(|socket| answered(socket, 60_000) == Some(0))
        );
        // Its threads end, and there can be new ones.
        let (connection, again) = client(2, &closer);
        admissions.ask(Job(7), connection, by());
        assert_eq!(answered(&again, 60_000), Some(0));
    }

    #[test]
    fn who_has_gone_is_not_seen_to() {
        let closer = Arc::new(Closer::new().unwrap());
        let admissions = Admissions::default();
        let served = Arc::new(AtomicU32::new(0));
        let by = || -> Answer {
            let served = Arc::clone(&served);
            Box::new(move |connection| {
                served.fetch_add(connection.client.pid, SeqCst);
                answer(&connection.socket, Ok(None)).unwrap();
            })
        };
        let ((gone, other), (half, its)) = (client(1, &closer), client(10, &closer));
        drop(other);
        admissions.ask(Job(7), gone, by());
        // This one says no more, and waits.
        rustix::net::shutdown(&its, rustix::net::Shutdown::Write).unwrap();
        admissions.ask(Job(7), half, by());
        assert_eq!(answered(&its, 60_000), Some(0));
        let (last, its) = client(100, &closer);
        admissions.ask(Job(7), last, by());
        assert_eq!(answered(&its, 60_000), Some(0));
        assert_eq!(served.load(SeqCst), 110);
    }
}
