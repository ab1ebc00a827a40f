//! The arbiter and processes with seats, without a GPU.

#![expect(clippy::unwrap_used, reason = "a test that fails says so")]

#[path = "arbiter/client.rs"]
mod client;
#[path = "arbiter/hostile.rs"]
mod hostile;
#[path = "arbiter/limits.rs"]
mod limits;

use client::{Client, Sat, ask, now};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::Signal;
use softmig_monitor::arbiter::{
    Admission, Arbiter, Authorizer, Client as Asking, GatedJob, Settings, Tenant, check,
};
use softmig_monitor::schedule::Job;
use softmig_policy::node::limits::{Mode, Share};
use softmig_region::seat::{ADMISSION, Request, Seat, Version};
use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const GPU: [u8; 16] = [7; 16];
const OTHER_GPU: [u8; 16] = [8; 16];

#[test]
#[ignore = "what other tests start"]
fn client() {
    client::run();
}

/// Knows processes by their numbers.
#[derive(Clone, Debug, Default)]
struct Door(Arc<Mutex<HashMap<u32, Admission>>>);

impl Authorizer for Door {
    fn admit(&self, client: Asking, gpu: [u8; 16]) -> Result<Admission, Errno> {
        if gpu != GPU && gpu != OTHER_GPU {
            return Err(Errno::INVAL);
        }
        let guests = self.0.lock().unwrap();
        guests.get(&client.pid).copied().ok_or(Errno::NOENT)
    }

    fn gated_job(&self, client: Asking) -> Option<GatedJob> {
        let guests = self.0.lock().unwrap();
        guests.get(&client.pid).map(|it| GatedJob {
            job: it.job,
            uid: client.uid,
            gpus: vec![GPU],
        })
    }

    fn users(&self) -> BTreeSet<u32> {
        BTreeSet::new()
    }
}

#[test]
fn an_arbiter_that_does_not_answer_is_found() {
    let node = Node::new();
    check(&node.socket, Duration::from_secs(60)).unwrap();
    // A process that asks now is not answered while this is locked.
    let door = node.door.0.lock().unwrap();
    let asking = client::connected(&node.socket).unwrap();
    send(&asking, &request(GPU), SendFlags::NOSIGNAL).unwrap();
    let found = check(&node.socket, Duration::from_millis(100));
    assert_eq!(found.unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(door);
    check(&node.socket, Duration::from_secs(60)).unwrap();
}

#[test]
fn an_admission_is_answered_and_no_other_process_waits() {
    let node = Node::new();
    // In no job, and in one, of a node without a gate.
    assert_eq!(ask(&node.socket, &ADMISSION).unwrap().0, 0);
    node.introduce(std::process::id(), 7, (1, 4), Mode::HARD);
    let (errno, page) = ask(&node.socket, &ADMISSION).unwrap();
    assert_eq!((errno, page.is_some()), (0, false));
    let (errno, page) = ask(&node.socket, &request(GPU)).unwrap();
    assert_eq!((errno, page.is_some()), (0, true));
}

struct Node {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    door: Door,
    arbiter: Option<Arbiter>,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut node = Self {
            socket: folder.path().join("arbiter.sock"),
            _folder: folder,
            door: Door::default(),
            arbiter: None,
        };
        node.start();
        node
    }

    fn settings(&self) -> Settings {
        Settings {
            socket: self.socket.clone(),
            ..Settings::default()
        }
    }

    fn start(&mut self) {
        self.start_with(self.settings());
    }

    fn start_with(&mut self, settings: Settings) {
        self.arbiter = None;
        // A child that another test has just forked has the lock until it executes its program.
        let until = Instant::now() + Duration::from_secs(10);
        self.arbiter = loop {
            match Arbiter::start(settings.clone(), self.door.clone()) {
                Ok(arbiter) => break Some(arbiter),
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
    }

    fn introduce(&self, pid: u32, job: u32, share: (u32, u32), mode: Mode) {
        let share = Share::new(share.0, share.1).unwrap();
        let job = Job(job);
        let uid = rustix::process::getuid().as_raw();
        let admission = Admission {
            job,
            uid,
            share,
            mode,
            pack: None,
        };
        self.door.0.lock().unwrap().insert(pid, admission);
    }

    /// A client that has its seat.
    fn client(&self, kind: &str, job: u32, share: (u32, u32)) -> Client {
        let mut client = Client::start(&self.socket, kind);
        self.introduce(client.pid(), job, share, Mode::HARD);
        client.go();
        client
    }

    fn tenants(&self) -> Vec<Tenant> {
        let mut accounts = self.arbiter.as_ref().unwrap().accounts(|_| false);
        accounts
            .remove(&GPU)
            .map(|it| it.tenants)
            .unwrap_or_default()
    }

    fn wait_until(&self, is_so: impl Fn(&[Tenant]) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so(&self.tenants()) {
            assert!(Instant::now() < until, "{:#?}", self.tenants());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn request(gpu: [u8; 16]) -> [u8; Request::SIZE] {
    let version = Version::Cap;
    Request { version, gpu }.to_bytes()
}

fn refusal(socket: &Path, request: &[u8]) -> Errno {
    let (error, page) = ask(socket, request).unwrap();
    assert!(page.is_none());
    Errno::from_raw_os_error(error)
}

#[test]
fn a_killed_process_is_no_longer_counted() {
    let node = Node::new();
    let killed = node.client("honest", 1, (1, 2));
    let other = node.client("honest", 2, (1, 2));
    node.wait_until(|it| it.len() == 2 && it.iter().all(|it| it.wants_gpu));
    killed.signal(Signal::KILL);
    node.wait_until(|it| it.len() == 1);
    other.wait_until_polled_after(now());
}

#[test]
fn the_server_refuses_an_old_library_that_is_not_steered() {
    let node = Node::new();
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
    let version = Version::Turns;
    let request = Request { version, gpu: GPU }.to_bytes();
    assert_eq!(refusal(&node.socket, &request), Errno::NOSYS);
    assert!(node.tenants().is_empty());
}

#[test]
fn garbage_on_a_page_harms_no_other_process() {
    let node = Node::new();
    let _garbage = node.client("garbage", 1, (1, 2));
    let other = node.client("honest", 2, (1, 2));
    let start = now();
    other.wait_until_polled_after(start + 1_000_000_000);
    assert!(node.tenants().iter().any(|it| it.job == Job(1)));
}

#[test]
fn a_new_arbiter_finds_those_who_want_the_gpu() {
    let mut node = Node::new();
    let clients = [1, 2].map(|job| node.client("honest", job, (1, 2)));
    for _ in 0..3 {
        clients[0].wait_until_polled_after(now());
        node.arbiter = None;
        node.start();
        for client in &clients {
            client.wait_for("sat");
            client.wait_until_polled_after(now());
        }
    }
}

/// An arbiter that is a process, where each process is a job of its own.
pub fn be_an_arbiter(socket: PathBuf) {
    #[derive(Debug)]
    struct All;
    impl Authorizer for All {
        fn admit(&self, client: Asking, _: [u8; 16]) -> Result<Admission, Errno> {
            Ok(Admission {
                job: Job(client.pid),
                uid: client.uid,
                share: Share::new(1, 2).unwrap(),
                mode: Mode::SOFT,
                pack: None,
            })
        }

        fn gated_job(&self, _: Asking) -> Option<GatedJob> {
            None
        }

        fn users(&self) -> BTreeSet<u32> {
            BTreeSet::new()
        }
    }
    let settings = Settings {
        socket,
        ..Settings::default()
    };
    let _arbiter = Arbiter::start(settings, All).unwrap();
    println!("sat");
    // Until it is killed, or its test has ended.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

#[test]
fn killing_the_arbiter_again_and_again_hangs_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("arbiter.sock");
    let mut clients = [(); 3].map(|()| Client::start(&socket, "honest"));
    for round in 0..5 {
        let arbiter = Client::start(&socket, "arbiter");
        arbiter.wait_for("sat");
        if round == 0 {
            clients.iter_mut().for_each(Client::go);
        }
        for client in &clients {
            client.wait_until_polled_after(now());
        }
        arbiter.signal(Signal::KILL);
    }
    for client in &clients {
        client.wait_for("gone");
    }
}

#[test]
fn there_is_one_arbiter_and_a_stale_socket_is_replaced() {
    let mut node = Node::new();
    let second = Arbiter::start(node.settings(), node.door.clone());
    assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!(refusal(&node.socket, &request(GPU)), Errno::NOENT);
    node.arbiter = None;
    assert!(!node.socket.exists());
    std::os::unix::net::UnixListener::bind(&node.socket).unwrap();
    node.start();
    assert_eq!(refusal(&node.socket, &request(GPU)), Errno::NOENT);
}

#[test]
fn all_but_requests_of_known_processes_get_an_errno() {
    let node = Node::new();
    assert_eq!(refusal(&node.socket, &request(GPU)), Errno::NOENT);
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
    assert_eq!(refusal(&node.socket, &request([9; 16])), Errno::INVAL);
    let long = [&request(GPU)[..], b"x"].concat();
    for garbage in [&b"x"[..], &[0; 24], &[255; 4096], &long] {
        assert_eq!(refusal(&node.socket, garbage), Errno::INVAL);
    }
    assert!(node.tenants().is_empty());
}

#[test]
fn a_page_cannot_be_made_shorter_or_longer() {
    let node = Node::new();
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
    let (_, page) = ask(&node.socket, &request(GPU)).unwrap();
    let page = page.unwrap();
    for size in [0, Seat::SIZE - 1, Seat::SIZE + 1] {
        let resized = rustix::fs::ftruncate(&page, size as u64);
        assert_eq!(resized, Err(Errno::PERM));
    }
    let seals = rustix::fs::SealFlags::WRITE;
    assert_eq!(rustix::fs::fcntl_add_seals(&page, seals), Err(Errno::PERM));
}

#[test]
fn a_process_has_one_seat_at_each_gpu() {
    let node = Node::new();
    node.introduce(std::process::id(), 1, (1, 4), Mode::HARD);
    let mut seats = Vec::new();
    for gpu in [GPU, GPU, OTHER_GPU] {
        let (error, page) = ask(&node.socket, &request(gpu)).unwrap();
        assert_eq!(error, 0);
        seats.push(Sat::at(&page.unwrap()));
    }
    let tenants = node.tenants();
    assert_eq!((tenants.len(), tenants[0].members.len()), (1, 1));
    // The last one is the one that is heard.
    seats[0].seat().wants_gpu().store(1, SeqCst);
    seats[0].wake();
    assert!(seats[1].be_polled().is_some());
    assert!(!node.tenants()[0].wants_gpu);
    seats[1].seat().wants_gpu().store(1, SeqCst);
    node.wait_until(|it| it[0].wants_gpu);
}
