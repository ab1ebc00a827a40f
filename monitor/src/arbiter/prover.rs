//! Finds out which GPUs can be steered, and have packs if the policy asks for them: measures each kind of GPU once, when no process is on it.
//!
//! A process of this program's own does it, and two or three more keep the GPU busy meanwhile. Whatever the driver does to them, this one
//! does not wait for it. As soon as a process of a job comes to the GPU, they are ended, and it is tried again when the GPU is idle.

use softmig_node::gpu::{Card, installed};
use softmig_node::node::Node;
use softmig_node::proofs::{Failed, Key, Proof, Proofs};
use softmig_nvml::{Devices, MigState, explained, is_idle};
use softmig_policy::config::gpu_types::PackKey;
use softmig_proof::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};
use tracing::{info, warn};

use super::gpus::Gpus;
use super::measuring::{Unknown, own, run};
use super::settings::Settings;
use crate::packs::{PROOF, Packs};

/// How often it is seen whether a GPU is to be measured. The driver is asked only then.
const EVERY: Duration = Duration::from_secs(30);
/// The time that a measurement may take. It takes some 4 s, and more where the driver wakes the GPU first.
const LIMIT: Duration = Duration::from_secs(120);
/// A measurement that came to nothing is tried again after this, and after twice as long each time.
const AGAIN: Duration = Duration::from_secs(60);
const SELDOM: Duration = Duration::from_secs(3600);
/// How long it is waited until the driver lists no process of a measurement any more.
const IDLE: Duration = Duration::from_secs(5);
/// How long the end of a pack's server is waited for, which itself waits for who asked for it.
const SERVER_ENDING: Duration = Duration::from_secs(20);

/// Measures in a thread of its own, until the sender is dropped.
pub(super) fn start(
    node: Node,
    settings: Settings,
    gpus: Arc<Gpus>,
    packs: Arc<Packs>,
) -> io::Result<Sender<()>> {
    let (sender, until) = channel();
    let mut prover = Prover {
        node,
        settings,
        gpus,
        packs,
        later: BTreeMap::new(),
        trouble: None,
        why_not: BTreeMap::new(),
    };
    // NVML wants more room than threads of the arbiter have.
    let thread = std::thread::Builder::new().name("prover".into());
    thread.spawn(move || prover.go_on(&until))?;
    Ok(sender)
}

struct Prover {
    node: Node,
    settings: Settings,
    gpus: Arc<Gpus>,
    packs: Arc<Packs>,
    /// When to try again what came to nothing, and how long that was.
    later: BTreeMap<Key, (Instant, Duration)>,
    /// The last trouble with all GPUs, so that it is said once.
    trouble: Option<String>,
    /// Why each GPU waits to be measured, by UUID, as it was said.
    why_not: BTreeMap<String, String>,
}

/// What was measured of a GPU.
#[derive(Debug, PartialEq)]
enum Found {
    /// Whether its scheduler can be steered.
    Scheduler(Box<Outcome>),
    /// Whether programs of a pack there end alone.
    Pack(Result<(), Failed>),
}

impl Found {
    fn failed(&self) -> Option<&Failed> {
        match self {
            Self::Scheduler(outcome) => outcome.failed.as_ref(),
            Self::Pack(proved) => proved.as_ref().err(),
        }
    }
}

impl Prover {
    fn go_on(&mut self, until: &Receiver<()>) {
        loop {
            self.round();
            self.gpus.set_standings(|id| self.settings.standing(id));
            if until.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Measures each kind of GPU of which nothing is known, if one is idle.
    fn round(&mut self) {
        if self.due().is_empty() {
            return;
        }
        let trouble = match Devices::of_this_node() {
            Ok(devices) => {
                // By now the driver knows their UUIDs. Whether there can be packs is measured where the scheduler is known.
                for _ in 0..2 {
                    for (key, cards) in self.due() {
                        self.measure_one(&key, &cards, &devices);
                    }
                    self.gpus.set_standings(|id| self.settings.standing(id));
                }
                None
            }
            Err(error) => Some(explained(&error)),
        };
        if trouble != self.trouble
            && let Some(why) = &trouble
        {
            info!("whether GPUs can be steered is not measured: {why}");
        }
        self.trouble = trouble;
    }

    /// The kinds of GPUs that are to be measured now, and their GPUs.
    fn due(&self) -> BTreeMap<Key, Vec<Card>> {
        // A file that cannot be read is made anew.
        let known = Proofs::read(&self.node).unwrap_or_default();
        let policy = self.node.whole_policy();
        let wants_packs =
            policy.is_ok_and(|policy| policy.gpus().any(|gpu| gpu.pack() != PackKey::No));
        let mut due: BTreeMap<Key, Vec<Card>> = BTreeMap::new();
        for card in installed(&self.node.gpus) {
            if let Some(key) = Key::of(&self.node, &card) {
                due.entry(key).or_default().push(card);
            }
        }
        let now = Instant::now();
        due.retain(|key, _| {
            let is_all =
                |proof: &Proof| is_of_scheduler(proof, key) && !(wants_packs && may_pack(proof));
            let is_known = known.find(key).is_some_and(is_all);
            let is_later = self.later.get(key).is_some_and(|(at, _)| *at > now);
            !is_known && !is_later
        });
        due
    }

    /// Measures one of these GPUs, if it is idle, and tells what came out.
    fn measure_one(&mut self, key: &Key, cards: &[Card], devices: &Devices) {
        let whole = devices
            .gpus
            .iter()
            .filter(|gpu| gpu.standing == MigState::Whole);
        let uuids: Vec<&String> = whole.filter_map(|gpu| gpu.uuid.as_ref()).collect();
        let uuids = cards.iter().filter_map(|card| {
            let uuid = card.uuid?.as_str().to_owned();
            uuids.contains(&&uuid).then_some(uuid)
        });
        for uuid in uuids {
            // From here on a process that comes is seen.
            let is_over = self.gpus.begin_measuring(&uuid);
            let outcome = match is_idle(&uuid) {
                Ok(true) => {
                    let prove = || match self.knows_scheduler(key) {
                        true => self.prove_pack(&uuid, &is_over).map(Found::Pack),
                        false => prove(&uuid, &is_over).map(|it| Found::Scheduler(Box::new(it))),
                    };
                    Some(measured(prove, || is_left_idle(&uuid)))
                }
                // It is looked at again in the next round.
                Ok(false) => {
                    self.say_why_not(&uuid, "processes are on it".into());
                    None
                }
                Err(error) => {
                    self.say_why_not(&uuid, explained(&error));
                    None
                }
            };
            self.gpus.end_measuring();
            match outcome {
                // What there is of the scheduler serves meanwhile.
                None if self.has_proof(key) && !self.knows_scheduler(key) => {
                    self.try_later(key);
                }
                None => {}
                // Another GPU of the kind may be left alone.
                Some(Err(Unknown::Stopped)) => self.tell(key, &uuid, Err(Unknown::Stopped)),
                Some(outcome) => return self.tell(key, &uuid, outcome),
            }
        }
    }

    fn knows_scheduler(&self, key: &Key) -> bool {
        let known = Proofs::read(&self.node).unwrap_or_default();
        let proof = known.find(key);
        proof.is_some_and(|proof| is_of_scheduler(proof, key))
    }

    /// Measures with a server that no user reaches. It ends as those of packs do that have no job any more.
    fn prove_pack(&self, uuid: &str, is_over: &AtomicBool) -> Result<Result<(), Failed>, Unknown> {
        info!("{uuid}: it is idle, and measured whether programs of a pack there end alone");
        let key = (uuid.to_owned(), PROOF.to_owned());
        let nobody = || Ok(BTreeSet::new());
        let folder = self.packs.enter(&key, std::process::id(), nobody);
        let folder = folder.map_err(|error| Unknown::Trouble(format!("no MPS server: {error}")))?;
        let mut command = own();
        command.arg("--prove-pack").arg(&folder);
        let proved = run(command, LIMIT, is_over)?;
        let end = Instant::now() + SERVER_ENDING;
        while folder.exists() && !is_over.load(SeqCst) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(proved)
    }

    /// Says why a GPU waits to be measured, once for each reason.
    fn say_why_not(&mut self, uuid: &str, why: String) {
        if self.why_not.get(uuid) != Some(&why) {
            info!("{uuid}: it is measured later: {why}");
            self.why_not.insert(uuid.to_owned(), why);
        }
    }

    fn tell(&mut self, key: &Key, uuid: &str, found: Result<Found, Unknown>) {
        match found {
            Ok(found) => {
                info!("{uuid}: measured: {found:?}");
                let (can, cannot) = match found {
                    Found::Scheduler(_) => (
                        "its scheduler can be steered",
                        "its scheduler cannot be steered, and each job keeps its own cap",
                    ),
                    Found::Pack(_) => (
                        "it can have packs",
                        "it cannot have packs, and slices have it in turns",
                    ),
                };
                match found.failed() {
                    None => info!("{uuid}: {can}"),
                    Some(it) => warn!("{uuid}: {cannot}: {} ({})", it.why, it.step),
                }
                let is_to_be_repeated = matches!(found, Found::Pack(Err(_)));
                let kept = self.keep(key, found);
                if let Err(why) = &kept {
                    warn!("{uuid}: what was measured is not kept: {why}");
                }
                if is_to_be_repeated || kept.is_err() {
                    self.try_later(key);
                }
            }
            Err(Unknown::Stopped) => {
                info!("{uuid}: a job has come, and it is measured when that has gone");
            }
            Err(Unknown::Trouble(why)) => {
                let time = self.try_later(key);
                info!(
                    "{uuid}: not measured, and tried again in {} s: {why}",
                    time.as_secs()
                );
            }
        }
    }

    fn has_proof(&self, key: &Key) -> bool {
        let known = Proofs::read(&self.node).unwrap_or_default();
        known.find(key).is_some()
    }

    fn keep(&self, key: &Key, found: Found) -> Result<(), String> {
        let mut all = Proofs::read(&self.node).unwrap_or_default();
        let before = all.find(key).filter(|it| it.is_of(key));
        let before = before.cloned().unwrap_or_default();
        let is_known = !before.time.is_empty() && before.failed.is_none();
        let proof = match found {
            Found::Pack(_) if !is_known => return Err("the proof of its scheduler has gone".into()),
            Found::Pack(pack) => Proof {
                pack: Some(pack),
                ..before
            },
            // A GPU that can be steered is measured anew for what its proof does not tell.
            Found::Scheduler(outcome) if is_known && outcome.failed.is_some() => Proof {
                may_release: Some(false),
                ..before
            },
            Found::Scheduler(outcome) => Proof {
                time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
                failed: outcome.failed,
                slice_us: outcome.slice_us,
                change_us: outcome.change_us,
                may_release: Some(outcome.may_release),
                ..before
            },
        };
        all.add(key, proof);
        all.keep(&self.node).map_err(|error| error.to_string())
    }

    fn try_later(&mut self, key: &Key) -> Duration {
        let before = self.later.get(key).map(|(_, time)| *time * 2);
        let time = before.unwrap_or(AGAIN).min(SELDOM);
        self.later
            .insert(key.clone(), (Instant::now() + time, time));
        time
    }
}

/// Whether a proof tells all of the scheduler that is measured now.
fn is_of_scheduler(proof: &Proof, key: &Key) -> bool {
    proof.is_of(key) && proof.is_complete()
}

/// Whether a GPU may still prove to have packs, which only one has that is steered. A user outside jobs can disturb a measurement, and be
/// gone when it is looked who is there: what failed is measured again.
fn may_pack(proof: &Proof) -> bool {
    proof.failed.is_none() && proof.pack != Some(Ok(()))
}

fn prove(uuid: &str, is_over: &AtomicBool) -> Result<Outcome, Unknown> {
    info!("{uuid}: it is idle, and measured whether its scheduler can be steered");
    let mut command = own();
    command.args(["--prove", uuid]);
    run(command, LIMIT, is_over)
}

/// What is measured. A failure is kept for all GPUs of the kind: so it has to be seen twice, each time on a GPU that nobody else uses.
fn measured(
    prove: impl Fn() -> Result<Found, Unknown>,
    is_idle: impl Fn() -> bool,
) -> Result<Found, Unknown> {
    let mut found = prove()?;
    for is_last in [false, true] {
        let Some(failed) = found.failed() else {
            break;
        };
        if !is_idle() {
            let why = format!("another process has come, and {}", failed.why);
            return Err(Unknown::Trouble(why));
        }
        if !is_last {
            found = prove()?;
        }
    }
    Ok(found)
}

/// Whether a GPU is idle after it was measured. The driver may list processes for a moment that have ended.
fn is_left_idle(uuid: &str) -> bool {
    let end = Instant::now() + IDLE;
    while !matches!(is_idle(uuid), Ok(true)) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_failure_counts_if_it_is_seen_twice_and_nobody_has_come() {
        let outcome = |failed: bool| {
            let failed = failed.then(|| Failed {
                step: "hold".into(),
                why: "it is not held".into(),
            });
            Found::Scheduler(Box::new(Outcome {
                failed,
                ..Outcome::default()
            }))
        };
        // Whether each measurement fails, whether the GPU is idle after each, and what is kept.
        for (fails, idle, kept) in [
            (&[false][..], &[][..], Some(false)),
            (&[true, false], &[true], Some(false)),
            (&[true, true], &[true, true], Some(true)),
            (&[true], &[false], None),
            (&[true, true], &[true, false], None),
        ] {
            let (fails, idle) = (Cell::new(fails), Cell::new(idle));
            let next = |from: &Cell<&[bool]>| {
                let (first, rest) = from.get().split_first().unwrap();
                from.set(rest);
                *first
            };
            let told = measured(|| Ok(outcome(next(&fails))), || next(&idle));
            assert_eq!(told.ok(), kept.map(outcome));
            assert!(fails.get().is_empty() && idle.get().is_empty());
        }
    }

    #[test]
    fn what_is_known_of_packs_is_kept_beside_the_scheduler() {
        let site = tempfile::tempdir().unwrap();
        let node = Node::in_folder(site.path(), rustix::process::getuid().as_raw());
        std::fs::create_dir_all(&node.lib).unwrap();
        let prover = Prover {
            node: node.clone(),
            settings: Settings::default(),
            gpus: Arc::default(),
            packs: Arc::new(Packs::new(&node, "/nonexistent")),
            later: BTreeMap::new(),
            trouble: None,
            why_not: BTreeMap::new(),
        };
        let key = Key {
            gpu: "NVIDIA H100".into(),
            driver: "580.159.04".into(),
            firmware: "580.159.04".into(),
            module: "open".into(),
        };
        let failed = |step: &str| Failed {
            step: step.into(),
            why: "it was so".into(),
        };
        let scheduler = |failed| {
            Found::Scheduler(Box::new(Outcome {
                failed,
                may_release: true,
                ..Outcome::default()
            }))
        };
        assert!(
            prover.keep(&key, Found::Pack(Ok(()))).is_err(),
            "no GPU is steered by it"
        );
        assert!(!prover.has_proof(&key));
        prover.keep(&key, scheduler(None)).unwrap();
        let kept = || Proofs::read(&node).unwrap().find(&key).unwrap().clone();
        assert!(prover.knows_scheduler(&key) && may_pack(&kept()));
        prover.keep(&key, Found::Pack(Err(failed("end")))).unwrap();
        assert!(kept().failed.is_none() && kept().may_release == Some(true));
        assert_eq!(kept().pack, Some(Err(failed("end"))));
        assert!(may_pack(&kept()), "it is measured again");
        // The scheduler is measured anew, well and badly.
        for found in [None, Some(failed("hold"))] {
            prover.keep(&key, scheduler(found)).unwrap();
            assert!(kept().failed.is_none() && kept().pack.is_some());
        }
        prover.keep(&key, Found::Pack(Ok(()))).unwrap();
        assert!(!may_pack(&kept()));
    }
}
