//! What the GPU's own scheduler does, as it was measured on real ones. These tests always ask the fake driver: they drive
//! its clock, so that each figure is exact.

use std::time::Duration;

use softmig_fake_node::{Description, Found, Gpu, Group, Kind, MIB, Node, Process, Progress};

const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
/// More than any test plays.
const FOR_EVER: u64 = 3_600_000 * MS;
/// The time of a change after a group that was interrupted, and after one that left.
const CUT: u64 = 137 * US;
const LEFT: u64 = 60 * US;

pub struct Stand {
    pub dir: tempfile::TempDir,
    pub node: Node,
}

/// A process with a group.
pub struct Member {
    pub process: Process,
    group: Group,
}

impl Stand {
    pub fn new() -> Stand {
        let dir = tempfile::tempdir().unwrap();
        let description = Description::new(&[Gpu::h200(0)]).driven().scheduler();
        let description = description.devices(dir.path());
        let node = Node::describe(dir.path().join("node"), description).unwrap();
        let stand = Stand { dir, node };
        stand.pass(MS);
        stand
    }

    pub fn member(&self) -> Member {
        let process = Process::attach(&self.dir.path().join("node")).unwrap();
        process.charge(0, Kind::Context, MIB).unwrap();
        let group = process.begin_group(0, 7).unwrap();
        Member { process, group }
    }

    /// One that always has work, with a time slice in microseconds.
    pub fn busy(&self, slice: u64) -> Member {
        let member = self.member();
        self.node.set_time_slice(self.find(&member), slice);
        let _ = member.queue(FOR_EVER);
        member
    }

    pub fn find(&self, member: &Member) -> Found {
        let (client, handle) = (member.group.client(), member.group.handle());
        self.node.find_group(client, handle).unwrap()
    }

    pub fn pass(&self, time: u64) {
        self.node.advance(Duration::from_nanos(time)).unwrap();
    }

    /// Lets all of some members' channels run, or not.
    fn enable_all(&self, members: &[&Member], is_on: bool) -> bool {
        let channels: Vec<_> = members.iter().flat_map(|it| it.channels()).collect();
        self.node.enable_channels(0, &channels, is_on)
    }

    pub fn enable(&self, member: &Member, is_on: bool) -> bool {
        self.enable_all(&[member], is_on)
    }
}

impl Member {
    /// All of them, each with its client's handle.
    pub fn channels(&self) -> Vec<(u32, u32)> {
        let client = self.group.client();
        let all = self.group.channels();
        all.map(|channel| (client, channel)).collect()
    }

    fn queue(&self, time: u64) -> u64 {
        self.process.queue(self.group, time)
    }

    /// When it was done with that.
    fn ended(&self, work: u64) -> Option<u64> {
        match self.process.progress(self.group, work) {
            Progress::Ended(time) => Some(time),
            Progress::NotBefore(time) => {
                assert!(time > self.process.now());
                None
            }
        }
    }

    /// For how long its work has run.
    pub fn ran(&self) -> u64 {
        let all = self.process.history(0);
        let own = all.iter().find(|it| it.slot == self.process.slot());
        own.map_or(0, |it| it.busy)
    }
}

#[test]
fn busy_groups_get_shares_by_their_time_slices() {
    let stand = Stand::new();
    let (short, long) = (stand.busy(2_000), stand.busy(18_000));
    // 100 rounds of both; the first one of all comes without a change.
    stand.pass(100 * (20 * MS + 2 * CUT) - CUT);
    assert_eq!((short.ran(), long.ran()), (200 * MS, 1800 * MS));
    // It holds from then on.
    stand.node.set_time_slice(stand.find(&short), 18_000);
    stand.pass(100 * (36 * MS + 2 * CUT));
    assert_eq!((short.ran(), long.ran()), (2000 * MS, 3600 * MS));
}

#[test]
fn a_group_that_yields_waits_for_one_slice_of_each_other() {
    let stand = Stand::new();
    let others = [stand.busy(5_000), stand.busy(3_000)];
    let brief = stand.member();
    for wait in [0, 700 * US, 1900 * US, 4 * MS, 8 * MS] {
        stand.pass(50 * MS + wait);
        let start = brief.process.now();
        let work = brief.queue(MS);
        assert_eq!(brief.ended(work), None);
        stand.pass(20 * MS);
        let took = brief.ended(work).unwrap() - start;
        assert!(took >= MS, "{took}");
        assert!(took <= 8 * MS + 3 * CUT + MS, "{took}");
    }
    let waited = stand.node.take_longest_wait(stand.find(&brief));
    assert!(waited > 3 * MS && waited <= 8 * MS + 3 * CUT, "{waited}");
    assert_eq!(stand.node.take_longest_wait(stand.find(&brief)), 0);
    // The time that it did not use is the others'.
    let before: u64 = others.iter().map(Member::ran).sum();
    stand.pass(1000 * MS);
    let after: u64 = others.iter().map(Member::ran).sum();
    let changes = 1000 / 4 * CUT;
    assert!(after - before >= 1000 * MS - changes - 2 * MS);
}

#[test]
fn held_channels_do_not_run_and_go_on_where_they_were() {
    let stand = Stand::new();
    let (held, other) = (stand.busy(2_000), stand.busy(2_000));
    let work = held.queue(0);
    stand.pass(3 * MS);
    // Some of its channels are not all.
    let first = (held.group.client(), held.group.channels().next().unwrap());
    assert!(stand.node.enable_channels(0, &[first], false));
    stand.pass(100 * MS);
    assert!(held.ran() > 40 * MS);
    assert!(!stand.node.is_held(stand.find(&held)));
    assert!(stand.enable(&held, false));
    assert!(stand.node.is_held(stand.find(&held)));
    let (before, others) = (held.ran(), other.ran());
    stand.pass(1000 * MS);
    assert_eq!(held.ran(), before);
    assert!(other.ran() - others > 999 * MS);
    let waited = stand.node.take_longest_wait(stand.find(&held));
    assert!((1000 * MS..1003 * MS).contains(&waited), "{waited}");
    // It can be given work meanwhile.
    let more = held.queue(5 * MS);
    assert_eq!(more, work + 5 * MS);
    assert!(stand.enable(&held, true));
    stand.pass(2 * MS + 2 * CUT + 2 * MS);
    let went_on = held.ran() - before;
    assert!(went_on > 0 && went_on <= 2 * MS, "{went_on}");
    // It leaves the GPU even when it is alone there.
    drop(other);
    assert!(stand.enable(&held, false));
    let before = held.ran();
    stand.pass(10 * MS);
    assert_eq!(held.ran(), before);
}

#[test]
fn channels_run_after_as_many_calls_as_held_them() {
    let stand = Stand::new();
    let member = stand.busy(2_000);
    let is_held = || stand.node.is_held(stand.find(&member));
    // What is not held stays so.
    assert!(stand.enable(&member, true));
    for _ in 0..2 {
        assert!(stand.enable(&member, false) && is_held());
    }
    assert!(stand.enable(&member, true) && is_held());
    assert!(stand.enable(&member, true) && !is_held());
}

#[test]
fn a_call_with_a_missing_channel_holds_those_before_it() {
    let stand = Stand::new();
    let (before, gone, behind) = (stand.member(), stand.member(), stand.member());
    gone.process.end_group(gone.group);
    assert!(!stand.enable_all(&[&before, &gone, &behind], false));
    assert!(stand.node.is_held(stand.find(&before)));
    assert!(!stand.node.is_held(stand.find(&behind)));
    assert_eq!(stand.node.half_held(0), 1);
    // None was held by it.
    assert!(!stand.enable_all(&[&gone, &behind], false));
    assert_eq!(stand.node.half_held(0), 1);
}

#[test]
fn the_log_says_when_each_was_there() {
    let stand = Stand::new();
    let (one, other) = (stand.busy(2_000), stand.busy(6_000));
    let brief = stand.member();
    for _ in 0..20 {
        let _ = brief.queue(500 * US);
        stand.pass(23 * MS);
    }
    // So that each stay has ended.
    for member in [&one, &other, &brief] {
        assert!(stand.enable(member, false));
    }
    let (switches, next, lost) = stand.node.switches(0, 0);
    assert_eq!((next as usize, lost), (switches.len(), 0));
    assert_eq!(switches.len() % 2, 0);
    for member in [&one, &other, &brief] {
        let (mut stays, mut time) = (0, 0);
        for pair in switches.chunks(2) {
            let [start, end] = pair else { unreachable!() };
            assert!(start.is_start && !end.is_start);
            assert_eq!((start.pid, start.group), (end.pid, end.group));
            assert_eq!(start.pid, Some(std::process::id()));
            if start.group == member.group.number() {
                stays += 1;
                time += end.at - start.at;
            }
        }
        let changes = time - member.ran();
        assert!(stays > 10, "{stays}");
        assert!(changes >= (stays - 1) * LEFT, "{changes} {stays}");
        assert!(changes <= stays * CUT, "{changes} {stays}");
    }
    // Nothing is told twice.
    assert_eq!(stand.node.switches(0, next).0, []);
}
