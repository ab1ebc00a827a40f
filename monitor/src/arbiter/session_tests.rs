//! A process that has a seat, without a driver.

use super::*;
use crate::packs::Packs;
use memmap2::MmapRaw;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::net::SendFlags;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv, send, socket,
};
use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_open, setrlimit};
use softmig_node::node::Node;
use softmig_region::seat::Seat;
use std::os::fd::AsRawFd;

/// The session of this process, and its seat as it has that itself.
fn session() -> (Session, MmapRaw) {
    session_in(None)
}

/// The same with a place in a pack.
fn session_in(pack: Option<PackMember>) -> (Session, MmapRaw) {
    let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let (page, shared) = Page::new().unwrap();
    let newcomer = Newcomer {
        pid: std::process::id(),
        process: Some(process),
        version: Version::Cap,
        user: Arc::default(),
        pack,
    };
    let session = Session::new(page, newcomer, Arc::default());
    (session, MmapRaw::map_raw(&shared).unwrap())
}

/// Tells of as many channels, made through this file.
fn tell(map: &MmapRaw, file: i32, count: u32) {
    // SAFETY: mapped as long as `map` lives, and sealed.
    let seat = unsafe { Seat::at(map.as_ptr()) }.unwrap();
    seat.tell_channels((0..count).map(|handle| softmig_region::seat::Channel {
        file,
        client: 0xc1d0_0001,
        group: 5,
        handle,
    }));
}

#[test]
fn a_process_has_241_channels_and_not_1025() {
    let (session, map) = session();
    assert_eq!(session.page.channels().map(|it| it.len()), Some(0));
    for count in [241, 1024] {
        tell(&map, -1, count);
        let told = session.page.channels().unwrap();
        assert!(told.iter().map(|it| it.handle).eq(0..count));
        session.update_channels();
        let not_own = Channels::Not(NotSteered::NotOwn);
        assert_eq!(*session.channels(), not_own);
    }
    tell(&map, -1, 1025);
    session.update_channels();
    let too_many = Channels::Not(NotSteered::TooMany);
    assert_eq!(*session.channels(), too_many);
}

#[test]
fn who_tells_of_no_channels_again_and_again_is_silent() {
    let (session, map) = session();
    session.note_work();
    let start = now();
    assert_eq!(session.not_steered(start), None);
    for round in 1..=10 {
        tell(&map, -1, 0);
        session.update_channels();
        let told = session.not_steered(start + round * 30_000_000);
        let is_late = round * 30 >= 200;
        assert_eq!(told, is_late.then_some(NotSteered::Silent), "{round}");
    }
}

/// Looks at a process on a GPU that takes it off when its channels are held, and only then: the time between looks, how long the
/// driver takes for the call, and whether the job is held and the channels are known. Whether the process counts as one that cannot be
/// held.
fn runs_though_held(looks: &[(Nanos, Nanos, bool)], leaves: bool) -> bool {
    const MS: Nanos = 1_000_000;
    let (session, _map) = session();
    session.set_channels(Channels::Known(Vec::new()));
    let (mut read, mut held_from) = (MS, Nanos::MAX);
    for &(gap, call, is_held) in looks {
        let now = read + gap.max(0);
        let resident = if leaves {
            held_from.clamp(read, now) - read
        } else {
            now - read
        };
        if session.is_surely_held(read) {
            session.note_stay_while_held(resident);
        }
        read = now;
        if !is_held {
            held_from = Nanos::MAX;
            session.note_hold(None);
        } else if held_from == Nanos::MAX {
            held_from = now + call;
            session.note_hold(Some(held_from));
        }
    }
    *session.channels() == Channels::Not(NotSteered::Runs)
}

proptest! {
    #[test]
    fn who_leaves_the_gpu_when_held_is_never_taken_for_one_that_stays(
        looks in vec((1..60_000_000i64, 0..60_000_000i64, any::<bool>()), 1..60),
    ) {
        prop_assert!(!runs_though_held(&looks, true));
    }

    #[test]
    fn who_stays_although_held_is_found(looks in vec((4_000_000..60_000_000i64, 0..1_000i64), 6..9)) {
        let looks: Vec<_> = looks.into_iter().map(|(gap, call)| (gap, call, true)).collect();
        prop_assert!(runs_though_held(&looks, false));
    }
}

#[test]
fn who_tells_of_none_that_are_there_or_more_than_is_paid_for_hides() {
    let (session, map) = session();
    session.note_work();
    tell(&map, -1, 1);
    assert!(!session.hides(now()), "it has just told of one");
    // It is another GPU's, or made up.
    let told = [Channel {
        client: 1,
        handle: 7,
    }];
    session.set_channels(Channels::Known(told.to_vec()));
    session.was_held(&told.into(), &told.into(), now());
    assert_eq!(*session.channels(), Channels::Unknown);
    assert!(session.hides(now()));
    // One that is there is held, and known.
    session.set_channels(Channels::Known(told.to_vec()));
    session.was_held(&told.into(), &BTreeSet::new(), now());
    assert!(!session.hides(now()));
    session.set_channels(Channels::Unknown);
    assert!(!session.hides(now()), "its proof may be late");
    session.rate_limit.pay_for_proof(now(), 1_000_000);
    assert!(session.hides(now()));
    let honest = super::tests::session();
    honest.0.note_work();
    assert!(honest.0.hides(now()), "it tells of none");
}

#[test]
fn made_up_handles_cost_their_own_job_alone() {
    let ((session, _map), (other, _its)) = (session(), session());
    let channels = |from: u32| (from..from + 1024).map(|handle| Channel { client: 1, handle });
    let told = |from| Channels::Known(channels(from).collect());
    for from in (0..30_000).step_by(1024) {
        session.set_channels(told(from));
        session.was_held(&channels(from).collect(), &channels(from).collect(), now());
        other.set_channels(told(from));
        other.was_held(&channels(from).collect(), &BTreeSet::new(), now());
    }
    assert_eq!(session.known_count(), 0);
    assert!(session.rate_limit.until_proof(now()) > 0);
    // To be held costs nothing.
    let (new, gone) = (channels(0).collect(), BTreeSet::new());
    for _ in 0..20_000 {
        other.set_channels(told(0));
        other.was_held(&new, &gone, now());
    }
    assert_eq!(other.rate_limit.until_proof(now()), 0);
}

#[test]
fn channels_are_asked_for_again_after_an_error_that_passes() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("nvidiactl")).unwrap();
    let (session, map) = session();
    tell(&map, file.as_raw_fd(), 1);
    let limit = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..limit
    };
    setrlimit(Resource::Nofile, none).unwrap();
    session.update_channels();
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(*session.channels(), Channels::Unknown);
    // The file is not the driver's.
    session.update_channels();
    let not_own = Channels::Not(NotSteered::NotOwn);
    assert_eq!(*session.channels(), not_own);
}

/// A process in a pack, and where its supervisor listens.
fn packed_session(folder: &std::path::Path) -> (Session, MmapRaw, OwnedFd) {
    let node = Node::in_folder(folder, rustix::process::getuid().as_raw());
    let (packs, key) = (Packs::new(&node, "true"), ("GPU-1".into(), "uid-1".into()));
    let its = softmig_node::packs::folder(&node).join("GPU-1/uid-1-1");
    std::fs::create_dir_all(&its).unwrap();
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let address = SocketAddrUnix::new(its.join("supervisor")).unwrap();
    bind(&listener, &address).unwrap();
    listen(&listener, 1).unwrap();
    let member = PackMember::new(packs.into(), key, std::process::id());
    let (session, map) = session_in(Some(member));
    (session, map, listener)
}

fn heard(map: &MmapRaw) -> u32 {
    // SAFETY: mapped as long as `map` lives, and sealed.
    let seat = unsafe { Seat::at(map.as_ptr()) }.unwrap();
    seat.heard().load(SeqCst)
}

#[test]
fn channels_are_proved_though_the_supervisor_of_the_pack_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let (session, map, _listener) = packed_session(folder.path());
    tell(&map, -1, 2);
    session.update_channels();
    assert_eq!(heard(&map), 0);
    assert_ne!(*session.channels(), Channels::Unknown);
}

#[test]
fn the_supervisor_of_a_pack_hears_of_channels_before_the_driver_has_proved_them() {
    let folder = tempfile::tempdir().unwrap();
    let (session, map, listener) = packed_session(folder.path());
    let (asked, questions) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let client = accept(&listener).unwrap();
            let mut question = [0; 4096];
            let (length, _) = recv(&client, &mut question[..], RecvFlags::empty()).unwrap();
            // On a busy machine nobody may wait for the answer any more.
            let _ = send(&client, b"\"Yes\"", SendFlags::NOSIGNAL);
            let question = String::from_utf8_lossy(&question[..length]).into_owned();
            asked.send(question).unwrap();
        }
    });
    tell(&map, -1, 2);
    assert_eq!(heard(&map), 0);
    let begun = std::time::Instant::now();
    while heard(&map) != 1 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        session.update_channels();
    }
    let pid = std::process::id();
    let all = format!(r#"{{"Channels":[{pid},[[3251634177,5,0],[3251634177,5,1]]]}}"#);
    assert_eq!(questions.recv().unwrap(), all);
    // The driver says of none that it is its own.
    assert_eq!(session.known_count(), 0);
}

#[test]
fn who_has_told_nothing_yet_may_have_work() {
    let (session, map) = session();
    assert!(session.may_have_work());
    tell(&map, -1, 0);
    assert!(!session.may_have_work());
    // SAFETY: mapped as long as `map` lives, and sealed.
    let seat = unsafe { Seat::at(map.as_ptr()) }.unwrap();
    seat.wants_gpu().store(1, SeqCst);
    assert!(session.may_have_work());
}
