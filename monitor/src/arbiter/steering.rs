//! Steers jobs on the GPU's own scheduler, as [`crate::schedule::shares`] decides: what the GPU's log says goes there, and what is to
//! be done comes back.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use softmig_policy::node::limits::{Mode, Share};
use softmig_rm::{Channel, Switch};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tracing::{debug, info, warn};

use super::clock::now;
use super::settings::GpuId;
use super::switch_log::{CHANGING, Log, Stays};
use crate::schedule::shares::{DEFAULT_SLICE_US, Look, Observed, RECHECK, Sharing};
use crate::schedule::turns::Book;
use crate::schedule::turns::{Job, Nanos};

/// If the end of a stay interrupts a kernel, the GPU saves its state. This much more of the stay is then not work, and no job pays
/// for it (research/gpu-time.md).
const INTERRUPTING: Nanos = 70_000;

/// A GPU whose channels can be steered.
pub(super) trait Device: Send {
    /// The log since the last call, and whether something before it was lost.
    fn switches(&mut self, to: &mut Vec<Switch>) -> Result<bool, softmig_rm::Error>;

    /// Lets channels run or wait.
    fn enable(&self, channels: &[Channel], is_on: bool) -> Refused;
}

/// Channels that are not as they should be.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// They no longer exist.
    pub(super) gone: Vec<Channel>,
    /// The driver may take the call a moment later.
    pub(super) later: Vec<Channel>,
}

impl Device for softmig_rm::Gpu {
    fn switches(&mut self, to: &mut Vec<Switch>) -> Result<bool, softmig_rm::Error> {
        softmig_rm::Gpu::switches(self, to)
    }

    fn enable(&self, channels: &[Channel], is_on: bool) -> Refused {
        let mut all = Refused::default();
        for (channel, error) in softmig_rm::Gpu::enable(self, channels, is_on) {
            debug!("a channel that is to run: {is_on}: {error}");
            let place = if error.may_pass() {
                &mut all.later
            } else {
                &mut all.gone
            };
            place.push(channel);
        }
        all
    }
}

/// Opens a GPU.
type Open = Box<dyn Fn(GpuId) -> Result<Box<dyn Device>, softmig_rm::Error> + Send>;

/// How long after an error the device is opened anew.
const OPEN_AGAIN: Nanos = 60_000_000_000;

/// A GPU, and whether it can be steered.
pub(super) struct Scheduler {
    id: GpuId,
    /// The reason why all jobs take turns; `None` if the GPU can be steered, as far as is known.
    why_not: Option<String>,
    open: Open,
    /// After an error it is used no more than to let channels run.
    device: Option<Box<dyn Device>>,
    /// When to open it: at first, and after an error. Otherwise `None`.
    open_at: Option<Nanos>,
    log: Log,
    /// When a group came anew.
    renewed: Nanos,
    /// The channels that wait.
    waiting: BTreeSet<Channel>,
    /// The list of the channels that wait, for the process that comes after this one.
    list: PathBuf,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("list", &self.list)
            .finish()
    }
}

impl Scheduler {
    /// That of a GPU; its list is kept in this folder.
    pub(super) fn new(id: GpuId, folder: &Path) -> Self {
        Self {
            id,
            why_not: None,
            open: Box::new(|id| Ok(Box::new(softmig_rm::Gpu::open(id)?))),
            device: None,
            open_at: Some(Nanos::MIN),
            log: Log::default(),
            renewed: 0,
            waiting: BTreeSet::new(),
            list: folder.join(list_name(id)),
        }
    }

    /// Of a GPU that is not to be steered, for this reason.
    pub(super) fn off(id: GpuId, why: String) -> Self {
        info!("GPU {}: jobs take turns: {why}", name(id));
        Self {
            why_not: Some(why),
            open_at: Some(Nanos::MAX),
            ..Self::new(GpuId::default(), Path::new("/"))
        }
    }

    #[cfg(test)]
    pub(super) fn with(device: impl Device + Clone + 'static, folder: &Path) -> Self {
        Self {
            open: Box::new(move |_| Ok(Box::new(device.clone()))),
            ..Self::new(GpuId::default(), folder)
        }
    }

    /// Why jobs take turns, if that is known of the GPU itself.
    pub(super) fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// The device, if there is one.
    pub(super) fn device(&mut self) -> Option<&mut dyn Device> {
        if self.open_at.is_some_and(|at| at <= now()) {
            match (self.open)(self.id) {
                Ok(device) => {
                    (self.device, self.open_at) = (Some(device), None);
                    self.can_be_steered();
                }
                Err(error) => {
                    self.open_at = Some(now() + OPEN_AGAIN);
                    let why = format!("its scheduler cannot be steered: {error}");
                    if self.is_new(&why) {
                        info!("GPU {}: jobs take turns, since {why}", name(self.id));
                    }
                }
            }
        }
        // A closure would keep the lifetime of the trait object.
        match &mut self.device {
            Some(device) => Some(device.as_mut()),
            None => None,
        }
    }

    fn can_be_steered(&mut self) {
        self.why_not = None;
        info!("GPU {}: jobs get it by its own scheduler", name(self.id));
    }

    /// Notes why jobs take turns. Whether that is to be said.
    fn is_new(&mut self, why: &str) -> bool {
        let before = self.why_not.replace(why.to_owned());
        before.as_deref() != Some(why)
    }

    /// How each process used the GPU since the last call; `None` where it cannot be known.
    pub(super) fn stays(&mut self) -> Option<BTreeMap<u32, Stays>> {
        self.device()?;
        if self.open_at.is_some() {
            return None;
        }
        let mut switches = Vec::new();
        let (why, open_at) = match self.device()?.switches(&mut switches) {
            Ok(_) if switches.iter().any(|it| it.process == Switch::HIDDEN) => {
                let why = "it hides whose processes are there: this needs CAP_SYS_ADMIN";
                (why.into(), Some(Nanos::MAX))
            }
            Ok(has_lost) => {
                if self.why_not.is_some() {
                    self.can_be_steered();
                }
                let stays = self.log.note(&switches, now());
                self.log.forget(has_ended);
                if has_lost {
                    // The lost entries are later than those that are there. A process that came may have left.
                    self.log = Log::default();
                }
                return Some(stays);
            }
            Err(error) if error.may_pass() => (error.to_string(), None),
            Err(error) => (error.to_string(), Some(now() + OPEN_AGAIN)),
        };
        (self.log, self.open_at) = (Log::default(), open_at);
        let why = format!("its log of context switches is not to be had: {why}");
        if self.is_new(&why) {
            warn!("GPU {}: jobs take turns, since {why}", name(self.id));
        }
        None
    }

    /// True if the log does not tell which groups are on the GPU, and was not renewed of late. It knows no group that
    /// came before the log began.
    pub(super) fn is_to_be_renewed(&self, now: Nanos) -> bool {
        const SELDOM: Nanos = 100_000_000;
        self.log.is_empty() && now - self.renewed > SELDOM
    }

    /// Lets exactly these channels wait, and all others run. Those that the driver would not take are tried again by the next call.
    fn hold(&mut self, channels: &BTreeSet<Channel>) -> Held {
        let free: Vec<Channel> = self.waiting.difference(channels).copied().collect();
        let new: Vec<Channel> = channels.difference(&self.waiting).copied().collect();
        let mut held = Held::default();
        if free.is_empty() && new.is_empty() {
            return held;
        }
        let Some(device) = self.device() else {
            return held;
        };
        held.has_changed = true;
        // First those that may run, so that the GPU is never without work.
        let mut later = BTreeSet::new();
        if !free.is_empty() {
            later.extend(device.enable(&free, true).later);
        }
        self.waiting = channels | &later;
        // Before they wait, so that none is forgotten.
        self.note(&self.waiting);
        if let Some(device) = self.device().filter(|_| !new.is_empty()) {
            let refused = device.enable(&new, false);
            held.gone.extend(refused.gone);
            self.waiting.retain(|it| !refused.later.contains(it));
        }
        held.new.extend(new);
        held
    }

    /// Lets all run that still wait.
    pub(super) fn let_run(&mut self) {
        self.hold(&BTreeSet::new());
    }

    /// Lets all run. If the driver does not take the call for long, the next look goes on with it.
    pub(super) fn end(&mut self) {
        /// The interval at which the driver is asked if it has no time for each ms.
        const PATIENCE: u32 = 100;
        for _ in 0..PATIENCE {
            self.let_run();
            if self.waiting.is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        warn!(
            "GPU {}: {} channels wait that are to run: the driver does not take the call",
            name(self.id),
            self.waiting.len()
        );
    }

    /// Writes down which channels wait: if this process dies, the next one lets them run.
    fn note(&self, waiting: &BTreeSet<Channel>) {
        let done = if waiting.is_empty() {
            fs::remove_file(&self.list)
        } else {
            let mut text = String::new();
            for channel in waiting {
                let _ = writeln!(text, "{:x} {:x}", channel.client, channel.handle);
            }
            let new = self.list.with_extension("new");
            fs::write(&new, text).and_then(|()| fs::rename(&new, &self.list))
        };
        match done {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!("{}: {error}", self.list.display());
            }
            _ => {}
        }
    }
}

/// Whether the process of this number has ended.
fn has_ended(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

fn name(id: GpuId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The beginning of a list's name; then comes the GPU.
const LIST: &str = "waiting-";

fn list_name(id: GpuId) -> String {
    format!("{LIST}{}", name(id))
}

/// Lets all channels run that an earlier arbiter left waiting when it ended.
pub(super) fn release(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let file = entry.file_name();
        let id = file
            .to_str()
            .and_then(|it| it.strip_prefix(LIST))
            .and_then(parse_id);
        let (Some(id), Ok(text)) = (id, fs::read_to_string(entry.path())) else {
            continue;
        };
        let mut scheduler = Scheduler::new(id, folder);
        scheduler.waiting = text.lines().filter_map(parse_channel).collect();
        info!(
            "GPU {}: {} channels were left waiting",
            name(id),
            scheduler.waiting.len()
        );
        if scheduler.device().is_some() {
            scheduler.end();
        }
        let _ = fs::remove_file(entry.path());
    }
}

fn parse_id(digits: &str) -> Option<GpuId> {
    let is_long = digits.len() == 2 * size_of::<GpuId>();
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_long)?;
    Some(number.to_be_bytes())
}

fn parse_channel(line: &str) -> Option<Channel> {
    let (client, handle) = line.split_once(' ')?;
    Some(Channel {
        client: u32::from_str_radix(client, 16).ok()?,
        handle: u32::from_str_radix(handle, 16).ok()?,
    })
}

/// The state of a process there, as far as its page says.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeatState {
    pub(super) job: Job,
    pub(super) process: u32,
    pub(super) wants_gpu: bool,
    /// For how long it had work since the last time.
    pub(super) pending: Nanos,
    /// The shortest time slice that it had since the last time, in microseconds; 0 for the driver's own.
    pub(super) slice: u64,
    /// Whether that was set since the last time.
    pub(super) has_new_slice: bool,
}

/// The job of a process that has no seat, and what that may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unseated {
    /// The job.
    pub job: Job,
    /// Its share.
    pub share: Share,
    /// Cap or share.
    pub mode: Mode,
}

/// The outcome for channels that are to wait.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Those that did not wait before.
    pub(super) new: BTreeSet<Channel>,
    /// Those that no longer exist.
    pub(super) gone: BTreeSet<Channel>,
    /// Whether the driver was told of any change. The GPU then begins its round anew.
    pub(super) has_changed: bool,
}

/// The jobs of a GPU while they are steered.
#[derive(Debug)]
pub(super) struct Steering {
    sharing: Sharing,
    /// When to look again; `None` until a process wakes the arbiter.
    pub(super) next: Option<Nanos>,
    /// The processes with a seat at the last look: of one that has gone since then, the log tells once more.
    seated: BTreeMap<u32, Job>,
    /// Whether the channels that run changed since the last look.
    has_changed: bool,
}

impl Steering {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            sharing: Sharing::new(now),
            next: None,
            seated: BTreeMap::new(),
            has_changed: false,
        }
    }

    /// Adds a job.
    pub(super) fn add(&mut self, job: Job, share: Share, mode: Mode, credit: Nanos) {
        self.sharing.add(job, share, mode, credit);
    }

    /// Removes a job that has gone.
    pub(super) fn remove(&mut self, job: Job) {
        self.sharing.remove(job);
    }

    /// Whether a job's channels run, and their time slice; 0 for the driver's own.
    pub(super) fn state(&self, job: Job) -> Option<(bool, u64)> {
        self.sharing.state(job)
    }

    /// Whether a job's channels run; a job's that is not known do.
    pub(super) fn is_on(&self, job: Job) -> bool {
        self.state(job).is_none_or(|(is_on, _)| is_on)
    }

    /// The time that a job may still have, and its charge.
    pub(super) fn standing(&self, job: Job) -> Option<(Nanos, Nanos)> {
        self.sharing.standing(job)
    }

    /// Takes the sums of all jobs since they were last taken.
    pub(super) fn take_book(&mut self) -> Book {
        self.sharing.take_book()
    }

    /// Decides, by how each process used the GPU and what it says.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        processes: &BTreeMap<u32, Stays>,
        seats: &[SeatState],
        unseated: &BTreeMap<u32, Unseated>,
    ) -> Look {
        let mut observed: BTreeMap<Job, Observed> = BTreeMap::new();
        for (process, of) in unseated {
            let has_seat = seats.iter().any(|one| one.process == *process);
            let Some(stays) = processes.get(process).filter(|_| !has_seat) else {
                continue;
            };
            // A job without a seat is here as long as it owes.
            if self.standing(of.job).is_none() {
                self.add(of.job, of.share, of.mode, 0);
                self.remove(of.job);
            }
            observed.entry(of.job).or_default().unseated += stays.resident;
        }
        let seated: BTreeMap<u32, Job> = seats.iter().map(|one| (one.process, one.job)).collect();
        let left = std::mem::replace(&mut self.seated, seated);
        let (mut change, mut unclaimed) = (0, 0);
        for (process, stays) in processes {
            change += CHANGING * stays.lengths.len() as Nanos;
            if self.seated.contains_key(process) || unseated.contains_key(process) {
                continue;
            }
            match left
                .get(process)
                .filter(|job| self.standing(**job).is_some())
            {
                Some(job) => observed.entry(*job).or_default().unseated += stays.resident,
                None => unclaimed += stays.resident,
            }
        }
        let has_changed = std::mem::take(&mut self.has_changed);
        let is_new_round = has_changed || seats.iter().any(|it| it.has_new_slice);
        for one in seats {
            let place = observed.entry(one.job).or_default();
            place.wants_gpu |= one.wants_gpu;
            place.pending += one.pending;
            let Some(stays) = processes.get(&one.process) else {
                continue;
            };
            place.resident += stays.resident;
            let is_on = self.is_on(one.job);
            // A new round ends a stay, which says nothing about the job.
            let mut may_be_ended = is_new_round;
            for &length in &stays.lengths {
                // A job that is held was taken out with work left.
                let is_cut = !is_on || length >= nearly(one.slice);
                let interrupting = if is_cut { INTERRUPTING } else { 0 };
                place.resident -= interrupting;
                place.changing += CHANGING + interrupting;
                change += interrupting;
                place.cut += u32::from(is_cut);
                let has_left = !is_cut && !std::mem::take(&mut may_be_ended);
                place.left += u32::from(has_left);
            }
        }
        self.sharing.note_others(change, unclaimed);
        let look = self.sharing.look(now, &observed);
        self.next = look.next;
        look
    }

    /// Lets exactly these channels wait, and all others run.
    pub(super) fn hold(&mut self, scheduler: &mut Scheduler, channels: BTreeSet<Channel>) -> Held {
        let held = scheduler.hold(&channels);
        self.has_changed |= held.has_changed;
        if scheduler.waiting != channels {
            self.next = Some(now() + RECHECK);
        }
        held
    }

    /// Lets the group of these channels come to the GPU anew, so that the log has it.
    pub(super) fn renew(&mut self, now: Nanos, scheduler: &mut Scheduler, channels: Vec<Channel>) {
        scheduler.renewed = now;
        let waiting = scheduler.waiting.clone();
        self.hold(scheduler, &waiting | &channels.into_iter().collect());
        self.hold(scheduler, waiting);
    }
}

/// The shortest time that counts as a slice of `slice` microseconds in which a group was interrupted.
fn nearly(slice: u64) -> Nanos {
    let slice = if slice == 0 { DEFAULT_SLICE_US } else { slice };
    Nanos::try_from(slice * 900).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
#[path = "steering_tests.rs"]
mod tests;
