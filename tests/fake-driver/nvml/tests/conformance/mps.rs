//! Clients of an MPS server (research/packs.md). That NVML lists them apart is from NVIDIA's documentation. These tests always ask the fake
//! driver.

use std::fs::File;
use std::os::fd::AsRawFd;

use softmig_fake_node::ServerNotReady;

use crate::scheduler::{MS, Member, Stand};

/// A server, whose folder also has the device of unified memory.
struct Server {
    stand: Stand,
    _control: File,
}

impl Server {
    fn new() -> Server {
        let stand = Stand::new();
        let folder = stand.dir.path();
        File::create(folder.join("nvidia-uvm")).unwrap();
        let control = File::create(folder.join("control")).unwrap();
        let outside = stand.member();
        assert!(outside.process.enter_server(folder).unwrap().is_none());
        // SAFETY: takes numbers.
        let locked = unsafe { libc::flock(control.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(locked, 0);
        Server {
            stand,
            _control: control,
        }
    }

    /// A client that always has work, and its file.
    fn client(&self) -> (Member, File) {
        let member = self.stand.busy(2048);
        let entered = member.process.enter_server(self.stand.dir.path());
        (member, entered.unwrap().unwrap())
    }

    /// What some have done in the next second.
    fn work_of<const COUNT: usize>(&self, members: [&Member; COUNT]) -> [u64; COUNT] {
        let before = members.map(Member::ran);
        self.stand.pass(1000 * MS);
        let mut before = before.into_iter();
        members.map(|it| it.ran() - before.next().unwrap())
    }
}

#[test]
fn clients_have_the_gpu_together() {
    let server = Server::new();
    let ((one, _one), (other, _other)) = (server.client(), server.client());
    assert_eq!(server.work_of([&one, &other]), [1000 * MS; 2]);
    let outside = server.stand.busy(2048);
    let [first, second, outsides] = server.work_of([&one, &other, &outside]);
    assert_eq!(first, second);
    assert!(
        outsides.abs_diff(first) < 10 * MS && first > 450 * MS,
        "{first} {outsides}"
    );
    // Each can be held alone, and all of them.
    assert!(server.stand.enable(&one, false));
    let [first, second, outsides] = server.work_of([&one, &other, &outside]);
    assert_eq!(first, 0);
    assert!(outsides.abs_diff(second) < 10 * MS && second > 450 * MS);
    assert!(server.stand.enable(&other, false));
    let [first, second, outsides] = server.work_of([&one, &other, &outside]);
    assert_eq!((first, second), (0, 0));
    assert!(outsides > 990 * MS);
}

#[test]
fn the_end_of_one_is_its_own_if_it_was_held_until_its_file_was_closed() {
    let server = Server::new();
    let ((one, its), (other, _other)) = (server.client(), server.client());
    let group = server.stand.find(&one);
    let channels = one.channels();
    drop(one);
    // What it queued goes on, as its file is open.
    let [worked] = server.work_of([&other]);
    assert_eq!(worked, 1000 * MS);
    assert!(server.stand.node.enable_channels(0, &channels, false));
    assert!(server.stand.node.is_held(group));
    drop(its);
    let [worked] = server.work_of([&other]);
    assert!(worked > 999 * MS && !other.process.has_failed());
    assert!(server.stand.node.groups(0).iter().all(|it| *it != group));
}

#[test]
fn the_end_of_one_with_work_is_that_of_all() {
    let server = Server::new();
    let ((one, its), (other, others)) = (server.client(), server.client());
    let outside = server.stand.busy(2048);
    drop(one);
    drop(its);
    let [worked, outsides] = server.work_of([&other, &outside]);
    assert!(other.process.has_failed() && worked < 30 * MS);
    assert!(outsides > 900 * MS && !outside.process.has_failed());
    // There is no other one before they have ended.
    let late = server.stand.member();
    let folder = server.stand.dir.path();
    assert!(matches!(
        late.process.enter_server(folder),
        Err(ServerNotReady)
    ));
    drop((other, others));
    server.stand.pass(100 * MS);
    assert!(late.process.enter_server(folder).unwrap().is_some());
}
