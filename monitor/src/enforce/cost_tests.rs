//! The cost of an observation, without NVML's own time.

use crate::arbiter::Seats;
use crate::crowd_tests::{Crowd, JOBS, LOOKS, PROCESSES, each, used};
use crate::enforce::observation::Claim;
use crate::enforce::rules::Evaluator;
use crate::enforce::snapshot::{Evidence, Snapshot};
use crate::jobs::owner::{Membership, Owner};
use crate::jobs::owners::Owners;
use softmig_policy::config::monitor::Monitor;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `cargo test --release -p softmig-monitor --lib -- --ignored --nocapture looks_cost` prints it.
#[test]
#[ignore = "a measurement, which says nothing on a busy machine"]
fn looks_cost() {
    let crowd = Crowd::new();
    let start = |_| Command::new("sleep").arg("1000").spawn().unwrap();
    let children = Children((0..PROCESSES).map(start).collect());
    let pids: Vec<u32> = children.0.iter().map(Child::id).collect();
    let first = crowd.pids().start;
    let real = |pid: u32| pids[(pid - first) as usize];
    let mut owners = Owners::new(Path::new("/proc"));
    let mut evaluator = Evaluator::default();
    let evidence = Evidence {
        enforced_since: Some(0),
        arbiter_since: 0,
        arbiter_answers: true,
    };
    let mut slices = 0;
    let begin = used();
    for second in 0..LOOKS {
        let mut whose = owners.resolve(pids.iter().copied());
        // They are no job's here.
        for pid in crowd.pids() {
            if let Some(Owner::Process { place, .. }) = whose.get_mut(&real(pid)) {
                *place = Membership::Job(Crowd::job(pid));
            }
        }
        let sample = crowd.sample_of(&crowd.reading(real), whose);
        let snapshot = Snapshot {
            sample: &sample,
            seats: &Seats::default(),
            evidence: &evidence,
            proc: Path::new("/proc"),
            library: &Arc::default(),
            until: Instant::now() + Duration::from_secs(60),
        };
        let observation = snapshot.observe(Duration::from_secs(second.into()), Vec::new());
        let is_slice = |claim| matches!(claim, Claim::Slice { .. });
        slices = observation
            .tenants
            .iter()
            .filter(|it| is_slice(it.claim))
            .count();
        let evaluation = evaluator.evaluate(&observation, &Monitor::default(), &BTreeSet::new());
        assert_eq!(evaluation.violations, []);
    }
    println!("a look at {}", each(begin));
    assert_eq!(slices, JOBS as usize);
}
