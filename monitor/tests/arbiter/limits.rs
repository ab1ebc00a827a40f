//! What one user can make the arbiter hold.

use super::client::{Sat, ask, connected};
use super::{GPU, Node, refusal, request};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use softmig_monitor::arbiter::Settings;
use softmig_policy::node::limits::Mode;
use softmig_region::seat::ANSWER;
use std::time::{Duration, Instant};

#[test]
fn who_connects_and_says_nothing_keeps_nobody_out() {
    let node = Node::new();
    node.introduce(std::process::id(), 1, (1, 4), Mode::Hard);
    let silent: Vec<_> = (0..10).map(|_| connected(&node.socket).unwrap()).collect();
    let (error, page) = ask(&node.socket, &request(GPU)).unwrap();
    assert!(error == 0 && page.is_some());
    drop(silent);
}

#[test]
fn one_user_cannot_have_all_seats() {
    let mut node = Node::new();
    node.start_with(Settings {
        seats_of_a_user: 2,
        ..node.settings()
    });
    let clients = [1, 2].map(|job| node.client("honest", job, (1, 4)));
    node.introduce(std::process::id(), 3, (1, 4), Mode::Hard);
    assert_eq!(refusal(&node.socket, &request(GPU)), Errno::USERS);
    drop(clients);
    wait_for_a_seat(&node);
}

#[test]
fn who_has_many_seats_leaves_as_many_to_others() {
    let mut node = Node::new();
    node.start_with(Settings {
        seats: 4,
        ..node.settings()
    });
    let _clients = [1, 2].map(|job| node.client("honest", job, (1, 4)));
    node.introduce(std::process::id(), 3, (1, 4), Mode::Hard);
    assert_eq!(refusal(&node.socket, &request(GPU)), Errno::USERS);
}

/// Asks, and looks at the answer without taking it.
fn asked(node: &Node) -> (OwnedFd, i32) {
    let socket = connected(&node.socket).unwrap();
    send(&socket, &request(GPU), SendFlags::NOSIGNAL).unwrap();
    let mut answer = [0; ANSWER];
    recv(&socket, &mut answer[..], RecvFlags::PEEK).unwrap();
    (socket, i32::from_le_bytes(answer))
}

/// Asks until there is a seat, and takes it.
fn wait_for_a_seat(node: &Node) {
    let until = Instant::now() + Duration::from_secs(60);
    while ask(&node.socket, &request(GPU)).unwrap().1.is_none() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_page_that_was_given_up_takes_no_memory() {
    let node = Node::new();
    node.introduce(std::process::id(), 1, (1, 4), Mode::Hard);
    let [given_up, page] = [(); 2].map(|()| {
        let (_, page) = ask(&node.socket, &request(GPU)).unwrap();
        page.unwrap()
    });
    let blocks = |page| rustix::fs::fstat(page).unwrap().st_blocks;
    let until = Instant::now() + Duration::from_secs(60);
    while blocks(&given_up) != 0 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_ne!(blocks(&page), 0);
}

#[test]
fn who_takes_no_answers_gets_no_more_of_them() {
    const MOST: usize = 64;
    let node = Node::new();
    node.introduce(std::process::id(), 1, (1, 4), Mode::Hard);
    let mut unread = Vec::new();
    let refused = loop {
        let (socket, errno) = asked(&node);
        if errno != 0 {
            break Errno::from_raw_os_error(errno);
        }
        assert!(unread.len() < MOST);
        unread.push(socket);
    };
    assert_eq!((refused, unread.len()), (Errno::AGAIN, MOST));
    // To say that one does not read is not to read.
    for socket in &unread {
        shutdown(socket, Shutdown::Both).unwrap();
    }
    assert_eq!(refusal(&node.socket, &request(GPU)), Errno::AGAIN);
    let page = super::client::take(&unread[0]).unwrap().1;
    Sat::at(&page.unwrap());
    wait_for_a_seat(&node);
    let (_again, errno) = asked(&node);
    assert_eq!(errno, 0);
    assert_eq!(refusal(&node.socket, &request(GPU)), Errno::AGAIN);
    drop(unread);
    wait_for_a_seat(&node);
}
