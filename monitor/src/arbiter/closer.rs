//! Closes clients' sockets without waiting for what the clients sent along.
//!
//! A client can send descriptors with its request. The kernel closes them when the request is read or its socket is closed, and if
//! one is a TCP socket that lingers, that call returns when its reader has read, which the client decides. An exiting process does
//! not linger (`inet_release` in the kernel's net/ipv4/af_inet.c). So requests are read without taking them off the socket, and the
//! last reference to a socket is that of a child which exits.

use rustix::event::epoll;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::warn;

use super::clock::now;
use crate::schedule::Nanos;

/// Sockets wait this long for others to be closed with, so that clients can read their answers. With `MANY` sockets they
/// do not wait.
const DELAY: Nanos = 500_000_000;
const MANY: usize = 1024;
/// Both double with each child that does not exit, since its client may send another one, up to this often.
const MOST_DOUBLINGS: usize = 5;
/// A child exits by itself if this process does not end it.
const CHILD_SECONDS: u32 = 2;

/// Sockets that are to be closed.
#[derive(Debug)]
pub(super) struct Closer {
    /// Waits for all of them until then.
    epoll: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sockets: Vec<Arc<OwnedFd>>,
    children: Vec<Pid>,
    /// When to look next.
    due: Option<Nanos>,
}

/// A socket with a client at its other end.
#[derive(Debug)]
pub(super) struct ClientSocket {
    /// The closer has another reference when this is dropped.
    socket: Arc<OwnedFd>,
    closer: Arc<Closer>,
}

impl ClientSocket {
    pub(super) fn new(socket: OwnedFd, closer: &Arc<Closer>) -> Self {
        Self {
            socket: Arc::new(socket),
            closer: Arc::clone(closer),
        }
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        // It would still be told of.
        let _ = epoll::delete(&self.closer.epoll, &self.socket);
        let mut state = self.closer.state();
        state.sockets.push(Arc::clone(&self.socket));
        let due = if state.sockets.len() == state.many() {
            now()
        } else {
            now() + state.delay()
        };
        state.due = Some(state.due.map_or(due, |before| before.min(due)));
    }
}

impl Closer {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            state: Mutex::default(),
        })
    }

    /// Waits for the sockets that are not to be closed yet.
    pub(super) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When [`Closer::close`] has something to do.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.state().due
    }

    /// Closes what is to be closed by now.
    pub(super) fn close(&self) {
        let mut state = self.state();
        if state.due.is_none_or(|due| due > now()) {
            return;
        }
        state.reap();
        if !state.sockets.is_empty() {
            state.close_by_a_child();
        }
        let is_done = state.sockets.is_empty() && state.children.is_empty();
        state.due = (!is_done).then(|| now() + state.delay());
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.sockets.is_empty() {
            state.close_by_a_child();
        }
        // The end of this process closes them as well.
        mem::take(&mut state.sockets)
            .into_iter()
            .for_each(mem::forget);
    }
}

impl State {
    fn doublings(&self) -> usize {
        self.children.len().min(MOST_DOUBLINGS)
    }

    fn many(&self) -> usize {
        MANY << self.doublings()
    }

    fn delay(&self) -> Nanos {
        DELAY << self.doublings()
    }

    fn close_by_a_child(&mut self) {
        let Some(child) = fork() else {
            return warn!("clients' sockets stay open: there are no more processes to be had");
        };
        // The child has them too, so nothing ends here.
        drop(mem::take(&mut self.sockets));
        let _ = kill_process(child, Signal::KILL);
        self.children.push(child);
    }

    fn reap(&mut self) {
        let is_there = |&child: &Pid| matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(None));
        self.children.retain(is_there);
    }
}

/// A child that has this process's files and waits for its end; `None` if there cannot be one.
fn fork() -> Option<Pid> {
    // SAFETY: the child calls nothing but the kernel.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: sets a timer, whose signal ends this process.
            unsafe { libc::alarm(CHILD_SECONDS) };
            loop {
                // SAFETY: waits.
                unsafe { libc::pause() };
            }
        }
        child => Pid::from_raw(child.max(0)),
    }
}
