//! An honest job whose programs run one after the other: the arbiter forgets the job in between.

use super::tests::{all, process, slice};
use super::*;
use crate::arbiter::{Account, GpuId, Seats, Sharing as Way, Tenant as Standing};
use crate::enforce::observation::Process;
use crate::schedule::shares::{Observed, Sharing};
use crate::schedule::{Book, Job, Nanos};
use softmig_policy::node::limits::{Mode, Share};

const GPU: GpuId = [7; 16];
const JOB: Job = Job(12);
/// Milliseconds.
const STEP: u64 = 20;
const LOOK: u64 = 1000;
const PROGRAM: u64 = 44_500;
const PAUSE: u64 = 500;
const HOUR: u64 = 3_600_000;

/// The job's charge, as the rules are told it.
fn charged(book: &Book) -> Option<Duration> {
    let standing = Standing {
        job: JOB,
        wants_gpu: true,
        is_held: false,
        credit: 0,
        members: Vec::new(),
    };
    let account = Account {
        known_for: Duration::ZERO,
        sharing: Way::Scheduler,
        book: book.clone(),
        tenants: vec![standing],
    };
    let mut seats = Seats::default();
    seats.add(GPU, account);
    let charged = seats.charged.get(&(GPU, JOB));
    charged.map(|&time| Duration::from_nanos(time.unsigned_abs()))
}

#[test]
fn programs_one_after_the_other_pay_for_all_they_had() {
    let nanos = |millis: u64| millis as Nanos * 1_000_000;
    let quarter = Share::new(1, 4).unwrap();
    let (mut sharing, mut book) = (Sharing::new(0), Book::default());
    let (mut evaluator, mut is_there, mut had) = (Evaluator::default(), false, 0);
    for now in (STEP..HOUR).step_by(STEP as usize) {
        let is_on = is_there && sharing.state(JOB).is_none_or(|(is_on, _)| is_on);
        had += if is_on { STEP } else { 0 };
        let observed = Observed {
            resident: if is_on { nanos(STEP) } else { 0 },
            pending: if is_there { nanos(STEP) } else { 0 },
            wants_gpu: is_there,
            ..Observed::default()
        };
        sharing.look(nanos(now), &[(JOB, observed)].into());
        book.add(&sharing.take_book());
        let was_there = std::mem::replace(&mut is_there, now % (PROGRAM + PAUSE) < PROGRAM);
        if is_there && !was_there {
            sharing.add(JOB, quarter, Mode::HARD);
        } else if was_there && !is_there {
            sharing.remove(JOB);
        }
        if now % LOOK != 0 {
            continue;
        }
        let process = Process {
            busy: (100 * std::mem::take(&mut had) / LOOK) as u32,
            ..process(1, 100)
        };
        let tenant = Tenant {
            charged: charged(&book),
            ..slice(JOB.0, vec![process])
        };
        let observation = Observation {
            at: Duration::from_millis(now),
            tenants: if is_there { vec![tenant] } else { Vec::new() },
            unattributed: Vec::new(),
        };
        let violations = evaluator
            .evaluate(&observation, &all(), &BTreeSet::new())
            .violations;
        assert_eq!(violations, [], "{now}");
    }
}
