//! The most that one user can make the arbiter hold.

use super::client::{Sat, ask, connected};
use super::{GPU, Node, refusal, request};
use rustix::cmsg_space;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, recv, send, sendmsg,
    shutdown,
};
use softmig_monitor::arbiter::Settings;
use softmig_policy::node::limits::Mode;
use softmig_region::seat::ANSWER;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

#[test]
fn silent_connections_keep_no_process_out() {
    let node = Node::new();
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
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
    node.introduce(std::process::id(), 3, (1, 4), Mode::HARD);
    assert_eq!(refusal(&node.socket, &request(GPU)), Errno::AGAIN);
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
    node.introduce(std::process::id(), 3, (1, 4), Mode::HARD);
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
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
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
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
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

/// Twice as long as a test may take.
const LINGER: Duration = Duration::from_secs(40);

/// A node whose arbiter takes descriptors, as all do before Linux 6.16.
pub fn node_that_takes_descriptors() -> Node {
    let mut node = Node::new();
    node.start_with(Settings {
        takes_descriptors: true,
        ..node.settings()
    });
    node
}

/// Sends words, and a descriptor beside them.
fn send_beside(socket: &OwnedFd, words: &[u8], file: impl AsFd) -> Result<usize, Errno> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(
        socket,
        &[IoSlice::new(words)],
        &mut beside,
        SendFlags::NOSIGNAL,
    )
}

#[test]
fn a_client_can_send_no_descriptor() {
    const PASSRIGHTS: [u32; 2] = [6, 16];
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release
        .split(['.', '-'])
        .map_while(|it| it.parse().ok())
        .collect();
    let node = Node::new();
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
    let sent = send_beside(
        &connected(&node.socket).unwrap(),
        b"hello",
        std::io::stdin(),
    );
    if numbers[..2] >= PASSRIGHTS[..] {
        assert_eq!(sent, Err(Errno::PERM));
    } else {
        println!("Linux {release} cannot refuse descriptors");
    }
    wait_for_a_seat(&node);
}

/// Sends words, and beside them the only reference to a TCP socket that lingers. Its reader reads nothing.
fn send_one_that_lingers(node: &Node, words: &[u8]) -> (OwnedFd, TcpStream) {
    try_to_send_one_that_lingers(node, words).unwrap()
}

/// The same, where the arbiter may have closed the connection.
pub fn try_to_send_one_that_lingers(
    node: &Node,
    words: &[u8],
) -> Result<(OwnedFd, TcpStream), Errno> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (reader, _) = listener.accept().unwrap();
    lingers.set_nonblocking(true).unwrap();
    while lingers.write(&[0; 1 << 16]).is_ok() {}
    lingers.set_nonblocking(false).unwrap();
    set_socket_linger(&lingers, Some(LINGER)).unwrap();
    let socket = connected(&node.socket).unwrap();
    send_beside(&socket, words, &lingers)?;
    drop(lingers);
    Ok((socket, reader))
}

#[test]
fn a_socket_that_lingers_keeps_no_process_from_its_seat() {
    let node = node_that_takes_descriptors();
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
    let mut readers = Vec::new();
    for words in [&b"hello"[..], &request(GPU)] {
        for is_to_leave in [false, true] {
            let begun = Instant::now();
            let (socket, reader) = send_one_that_lingers(&node, words);
            let stays = (!is_to_leave).then_some(socket);
            let (error, page) = ask(&node.socket, &request(GPU)).unwrap();
            assert!(error == 0 && page.is_some());
            // Longer than a silent client may stay, and than it takes to close its socket.
            std::thread::sleep(Duration::from_millis(1_200));
            wait_for_a_seat(&node);
            assert!(begun.elapsed() < LINGER / 2);
            readers.push((stays, reader));
        }
    }
}

#[test]
fn the_arbiter_ends_though_a_socket_lingers() {
    let mut node = node_that_takes_descriptors();
    let begun = Instant::now();
    let held: Vec<_> = (0..3)
        .map(|_| send_one_that_lingers(&node, b"hello"))
        .collect();
    node.arbiter = None;
    assert!(begun.elapsed() < LINGER / 2);
    drop(held);
}
