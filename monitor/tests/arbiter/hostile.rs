//! How long others wait until they are polled while a user does all that can be done to the arbiter.

use super::client::{Sat, ask, connected};
use super::limits::{node_that_takes_descriptors, try_to_send_one_that_lingers};
use super::{GPU, Node, request};
use rustix::net::{SendFlags, send};
use softmig_policy::node::limits::Mode;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that one user makes at once, again and again.
const CONNECTIONS: usize = 4096;
const WAITS: usize = 1000;

/// From waking the arbiter until it has polled.
fn be_polled(sat: &Sat) -> Duration {
    let asked = Instant::now();
    while sat.be_polled().is_none() {}
    asked.elapsed()
}

fn connect_without_pause(node: &Node, is_over: &AtomicBool) {
    while !is_over.load(SeqCst) {
        let open: Vec<_> = (0..CONNECTIONS)
            .map_while(|number| {
                let socket = connected(&node.socket).ok()?;
                // Every other one says something, and leaves the answer. A request would give up the seat of this process.
                if number % 2 == 0 {
                    let _ = send(&socket, b"hello", SendFlags::NOSIGNAL);
                }
                Some(socket)
            })
            .take_while(|_| !is_over.load(SeqCst))
            .collect();
        drop(open);
    }
}

/// `cargo test --release -p softmig-monitor --test arbiter -- --ignored --nocapture what_a_hostile_user_costs`
#[test]
#[ignore = "a measurement"]
fn what_a_hostile_user_costs_others() {
    let node = node_that_takes_descriptors();
    node.introduce(std::process::id(), 1, (1, 2), Mode::HARD);
    let (_, page) = ask(&node.socket, &request(GPU)).unwrap();
    let sat = Sat::at(&page.unwrap());
    for (what, hangs, connects, crowd) in [
        ("alone", false, false, 0),
        ("hanging clients", true, false, 0),
        ("connections", false, true, 0),
        ("processes that ring and write garbage", false, false, 64),
        ("all of it", true, true, 64),
    ] {
        let mut clients: Vec<_> = (0..crowd)
            .map(|_| node.client("garbage", 2, (1, 2)))
            .collect();
        let is_over = AtomicBool::new(false);
        let mut waits: Vec<Duration> = thread::scope(|scope| {
            if connects {
                scope.spawn(|| connect_without_pause(&node, &is_over));
            }
            if hangs {
                scope.spawn(|| {
                    let mut held = Vec::new();
                    while !is_over.load(SeqCst) {
                        if held.len() < 64 {
                            held.extend(try_to_send_one_that_lingers(&node, b"hello"));
                        }
                        thread::sleep(Duration::from_millis(20));
                    }
                });
            }
            let pause = || thread::sleep(Duration::from_millis(3));
            let waits = (0..WAITS).map(|_| (pause(), be_polled(&sat)).1).collect();
            is_over.store(true, SeqCst);
            waits
        });
        clients.clear();
        waits.sort_unstable();
        let [half, most, longest] =
            [WAITS / 2, WAITS * 99 / 100, WAITS - 1].map(|at| waits[at].as_micros());
        println!("{what}: another waits {half} us, 1 of 100 {most} us, at most {longest} us");
    }
}
