//! A GPU's own scheduler: its log of context switches, and the calls that let channels run or wait.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use softmig_rm::{Channel, Ended, Error, ErrorKind, Reading, Switch, Untaken};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tracing::{debug, info, warn};

use super::clock::now;
use super::settings::{GpuId, Standing};
use super::switch_log::{Log, Stays};
use crate::schedule::Nanos;
use crate::schedule::interruptions::Amount;

/// A GPU whose channels can be steered.
pub(super) trait Device: Send {
    /// The log since the last call.
    fn switches(&mut self, to: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error>;

    /// Lets channels run or wait. Those that `ended` gives may be left as they are.
    fn enable(&self, channels: &[Channel], is_on: bool, ended: Ended<'_>) -> Untaken;
}

impl Device for softmig_rm::Gpu {
    fn switches(&mut self, to: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error> {
        softmig_rm::Gpu::switches(self, to)
    }

    fn enable(&self, channels: &[Channel], is_on: bool, ended: Ended<'_>) -> Untaken {
        softmig_rm::Gpu::enable(self, channels, is_on, ended)
    }
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

/// Opens a GPU.
type Open = Box<dyn Fn(GpuId) -> Result<Box<dyn Device>, softmig_rm::Error> + Send>;

/// How long after an error the device is opened anew.
const OPEN_AGAIN: Nanos = 60_000_000_000;

/// A log is silent after so many groups came without an entry.
const MOST_SILENT: u32 = 3;

/// A GPU that gives no answer so many times in a row is taken for one that never will. Each time can take seconds.
const MOST_TIMEOUTS: u32 = 3;

/// A GPU, and whether it can be steered.
pub(super) struct Scheduler {
    id: GpuId,
    /// The reason why it is not to be steered, by what was measured.
    barred: Option<String>,
    /// The reason why it cannot be steered; `None` if it can, as far as is known.
    why_not: Option<String>,
    /// Whether channels that run may be let run once more.
    may_release: bool,
    open: Open,
    /// After an error it is used no more than to let channels run.
    device: Option<Box<dyn Device>>,
    /// When to open it: at first, and after an error. Otherwise `None`.
    open_at: Option<Nanos>,
    log: Log,
    /// How many times in a row the GPU gave no answer.
    timeouts: u32,
    /// When a group came anew.
    renewed: Nanos,
    /// How often one did since the log's last entry.
    silent: u32,
    /// Whether the device was opened anew because of that, since the log's last entry.
    is_anew: bool,
    /// Whether the log ever had an entry, of this driver.
    has_spoken: bool,
    /// Whether it was said that it can be steered.
    is_told: bool,
    /// The channels that wait. At first those that an earlier arbiter left waiting when it ended.
    pub(super) waiting: BTreeSet<Channel>,
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
        let list = folder.join(list_name(id));
        let waiting = read_list(&list);
        if !waiting.is_empty() {
            info!(
                "GPU {}: {} channels were left waiting",
                name(id),
                waiting.len()
            );
        }
        Self {
            id,
            barred: None,
            why_not: None,
            may_release: true,
            open: Box::new(|id| Ok(Box::new(softmig_rm::Gpu::open(id)?))),
            device: None,
            open_at: Some(Nanos::MIN),
            log: Log::default(),
            timeouts: 0,
            renewed: 0,
            silent: 0,
            is_anew: false,
            has_spoken: false,
            is_told: false,
            waiting,
            list,
        }
    }

    /// The GPU's UUID.
    pub(super) fn id(&self) -> GpuId {
        self.id
    }

    /// The GPU's UUID, as the log has it.
    pub(super) fn name(&self) -> String {
        name(self.id)
    }

    /// Whether it is to be steered. True if that is new.
    pub(super) fn set_standing(&mut self, standing: &Standing) -> bool {
        let barred = standing.as_ref().err();
        self.may_release = standing.as_ref().is_ok_and(|proved| proved.may_release);
        if self.barred.as_ref() == barred {
            return false;
        }
        self.barred = barred.cloned();
        self.why_not = barred.cloned();
        (self.log, self.open_at, self.is_told) = (Log::default(), Some(Nanos::MIN), false);
        if let Some(why) = barred {
            info!("GPU {}: each job keeps its own cap: {why}", name(self.id));
        }
        true
    }

    #[cfg(test)]
    pub(super) fn with(device: impl Device + Clone + 'static, folder: &Path) -> Self {
        Self {
            open: Box::new(move |_| Ok(Box::new(device.clone()))),
            ..Self::new(GpuId::default(), folder)
        }
    }

    /// Closes the device, unless channels wait. True if it was open.
    pub(super) fn let_go(&mut self) -> bool {
        if self.device.is_none() || !self.waiting.is_empty() {
            return false;
        }
        (self.device, self.log, self.has_spoken) = (None, Log::default(), false);
        self.open_at = self.open_at.or(Some(Nanos::MIN));
        info!(
            "GPU {}: no process uses it, and it is closed",
            name(self.id)
        );
        true
    }

    /// Why it cannot be steered, if that is known.
    pub(super) fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// The device, if there is one. Channels that wait need no log, and are to run also where the GPU is not to be steered.
    pub(super) fn device(&mut self) -> Option<&mut dyn Device> {
        if self.open_at.is_some_and(|at| at <= now()) {
            match (self.open)(self.id) {
                Ok(device) => {
                    (self.device, self.open_at) = (Some(device), None);
                    self.timeouts = 0;
                }
                Err(error) => {
                    self.open_at = Some(now() + OPEN_AGAIN);
                    let why = format!("its scheduler cannot be steered: {error}");
                    if self.is_new(&why) {
                        info!(
                            "GPU {}: each job keeps its own cap, since {why}",
                            name(self.id)
                        );
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
        if self.why_not.take().is_some() || !self.is_told {
            info!("GPU {}: jobs get it by its own scheduler", name(self.id));
        }
        self.is_told = true;
    }

    /// Notes why it cannot be steered. Whether that is to be said.
    fn is_new(&mut self, why: &str) -> bool {
        if self.barred.is_some() {
            return false;
        }
        let before = self.why_not.replace(why.to_owned());
        before.as_deref() != Some(why)
    }

    /// How each process used the GPU from the last call until a moment ago, and that moment; `None` where it cannot be known.
    pub(super) fn stays(&mut self) -> Option<(Nanos, BTreeMap<u32, Stays>)> {
        if self.barred.is_some() {
            return None;
        }
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
            Ok(reading) => {
                let at = Nanos::try_from(reading.at).unwrap_or(Nanos::MAX);
                self.timeouts = 0;
                if !switches.is_empty() {
                    (self.silent, self.is_anew, self.has_spoken) = (0, false, true);
                }
                self.can_be_steered();
                if reading.has_lost || reading.lacks_last {
                    debug!(
                        "GPU {}: its log lacks something: {reading:?}",
                        name(self.id)
                    );
                }
                if reading.has_lost {
                    // Who was there may have left.
                    self.log = Log::default();
                }
                let stays = self.log.note(&switches, at);
                self.log.forget(has_ended);
                if reading.lacks_last {
                    // Who came may have left.
                    self.log = Log::default();
                }
                return Some((at, stays));
            }
            Err(error) => {
                let is_fault = self.is_fault(&error);
                (error.to_string(), is_fault.then(|| now() + OPEN_AGAIN))
            }
        };
        self.give_up(
            open_at,
            &format!("its log of context switches is not to be had: {why}"),
        );
        None
    }

    /// Whether it cannot be expected that the GPU does the same the next time.
    fn is_fault(&mut self, error: &Error) -> bool {
        self.timeouts = if error.is_timeout() {
            self.timeouts + 1
        } else {
            0
        };
        match error.kind() {
            ErrorKind::Passing => self.timeouts >= MOST_TIMEOUTS,
            ErrorKind::Gone | ErrorKind::Refused => true,
        }
    }

    /// It cannot be steered, for this reason, until it is opened anew at that time, or for a moment.
    fn give_up(&mut self, open_at: Option<Nanos>, why: &str) {
        (self.log, self.open_at) = (Log::default(), open_at);
        if self.is_new(why) {
            warn!(
                "GPU {}: each job keeps its own cap, since {why}",
                name(self.id)
            );
        }
    }

    /// Channels were not taken: if that is a fault of the GPU's, it cannot be steered any more.
    fn judge(&mut self, untaken: &Untaken) {
        match &untaken.error {
            None => self.timeouts = 0,
            Some(error) if untaken.rest.is_empty() => debug!("channels that have gone: {error}"),
            Some(error) if self.is_fault(error) => {
                let why = format!("its channels cannot be held or released: {error}");
                self.give_up(Some(now() + OPEN_AGAIN), &why);
            }
            Some(error) => debug!("channels that are to run or to wait: {error}"),
        }
    }

    /// Whether it gave no answer for long, and is not to be opened anew yet.
    fn is_silent(&self) -> bool {
        self.timeouts >= MOST_TIMEOUTS && self.open_at.is_some_and(|at| at > now())
    }

    /// True if the log does not tell which groups are on the GPU, and was not renewed of late. It knows no group that
    /// came before the log began.
    pub(super) fn is_to_be_renewed(&self, now: Nanos) -> bool {
        const SELDOM: Nanos = 100_000_000;
        self.log.is_empty() && now - self.renewed > SELDOM
    }

    /// Lets exactly these channels wait, and all others run. Those that the driver would not take are tried again by the next call.
    pub(super) fn hold(&mut self, channels: &BTreeSet<Channel>, ended: Ended<'_>) -> Held {
        let free: Vec<Channel> = self.waiting.difference(channels).copied().collect();
        let new: Vec<Channel> = channels.difference(&self.waiting).copied().collect();
        let mut held = Held::default();
        if (free.is_empty() && new.is_empty()) || self.is_silent() {
            return held;
        }
        let Some(device) = self.device() else {
            return held;
        };
        held.has_changed = true;
        // First those that may run, so that the GPU is never without work.
        let mut later = BTreeSet::new();
        if !free.is_empty() {
            let untaken = device.enable(&free, true, ended);
            self.judge(&untaken);
            later.extend(untaken.rest);
        }
        self.waiting = channels | &later;
        // Before they wait, so that none is forgotten.
        self.note(&self.waiting);
        if let Some(device) = self.device().filter(|_| !new.is_empty()) {
            let untaken = device.enable(&new, false, ended);
            self.judge(&untaken);
            held.gone.extend(untaken.gone);
            let waiting = |it: &Channel| !untaken.rest.contains(it) && !held.gone.contains(it);
            self.waiting.retain(waiting);
        }
        held.new.extend(new);
        held
    }

    /// Forgets that channels wait, and does not let them run: those of a process that has ended.
    pub(super) fn retire(&mut self, channels: &[Channel]) {
        self.waiting.retain(|it| !channels.contains(it));
        self.note(&self.waiting);
    }

    /// Whether channels that run may be let run once more, and there are some of which none waits.
    pub(super) fn may_release(&self, channels: &[Channel]) -> bool {
        let waits = |channel| self.waiting.contains(channel);
        self.may_release && !channels.is_empty() && !channels.iter().any(waits)
    }

    /// Lets channels run that nobody here holds, so often, or for as long as others can wait for that. Returns those that no longer
    /// exist, and how many calls are left. Of other errors the driver's answer says nothing: it may not like to let channels run that
    /// do.
    pub(super) fn release(
        &mut self,
        mut channels: Vec<Channel>,
        amount: Amount,
    ) -> (BTreeSet<Channel>, usize) {
        /// Meanwhile nobody is held or let run.
        const LONGEST: Nanos = 5_000_000;
        /// Few in each call: where one has gone the others are told one by one.
        const CALL: usize = 8;
        // A process can tell of one as often as it likes.
        channels.sort_unstable();
        channels.dedup();
        let all = channels.chunks(CALL);
        let mut left = match amount {
            Amount::Times(times) => all.len() * times as usize,
            Amount::Left(calls) => calls,
        };
        let begun = now();
        let mut gone = BTreeSet::new();
        while left > 0 && now() - begun < LONGEST && gone.is_empty() {
            // The last call is for the last ones, whenever it comes.
            let call = all
                .len()
                .checked_sub(1)
                .map(|last| last - (left - 1) % all.len());
            let some = call.and_then(|call| all.clone().nth(call));
            let Some((device, some)) = self.device().zip(some) else {
                break;
            };
            let untaken = device.enable(some, true, &BTreeSet::new);
            gone.extend(untaken.gone);
            left -= 1;
            if untaken.error.is_some_and(|error| error.is_timeout()) {
                self.timeouts += 1;
                break;
            }
        }
        (gone, left)
    }

    /// Lets the group of these channels come to the GPU anew, so that the log has it. Returns those that no longer exist.
    pub(super) fn renew(
        &mut self,
        now: Nanos,
        channels: Vec<Channel>,
        ended: Ended<'_>,
    ) -> BTreeSet<Channel> {
        if self.silent >= MOST_SILENT {
            self.note_silence();
            return BTreeSet::new();
        }
        (self.renewed, self.silent) = (now, self.silent + 1);
        let waiting = self.waiting.clone();
        let all = &waiting | &channels.into_iter().collect();
        let Held { gone, .. } = self.hold(&all, ended);
        self.hold(&waiting, ended);
        gone
    }

    /// Groups came, and the log has nothing of that: so nobody is charged or held. A job that only copies makes no entry either. So
    /// a log that had one before is only begun anew, which helps after the GPU's engine began anew.
    fn note_silence(&mut self) {
        self.silent = 0;
        let why = format!(
            "{MOST_SILENT} times a group with work came anew, and its log of context switches has no entry of it"
        );
        if !self.is_anew {
            warn!("GPU {}: {why}: it is opened anew", name(self.id));
            (self.log, self.open_at) = (Log::default(), Some(Nanos::MIN));
            self.is_anew = true;
        } else if !self.has_spoken {
            self.is_anew = false;
            self.give_up(Some(now() + OPEN_AGAIN), &why);
        }
    }

    /// Lets all run that still wait.
    pub(super) fn let_run(&mut self) {
        self.hold(&BTreeSet::new(), &BTreeSet::new);
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
            if self.is_silent() {
                break;
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

/// The GPUs on which an earlier arbiter left channels waiting when it ended.
pub(super) fn left_waiting(folder: &Path) -> Vec<GpuId> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let id = |name: std::ffi::OsString| parse_id(name.to_str()?.strip_prefix(LIST)?);
    names.filter_map(id).collect()
}

fn read_list(list: &Path) -> BTreeSet<Channel> {
    let text = fs::read_to_string(list).unwrap_or_default();
    text.lines().filter_map(parse_channel).collect()
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

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
