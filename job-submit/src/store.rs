//! The policy in slurmctld: read again when its file changes, and kept if the new file is wrong.

use crate::last_good;
use softmig_policy::Policy;
use softmig_policy::slurm::conf::parses_extra;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval between complaints about a wrong file.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// A file, and its last good value.
struct Watched<T> {
    stamp: Option<Stamp>,
    good: Option<Arc<T>>,
    complaint: Option<String>,
    complained: Option<Instant>,
    looked: Option<Instant>,
}

/// Distinguishes versions of a file; a replaced file has another inode.
#[derive(PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            inode: meta.ino(),
            size: meta.size(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

impl<T> Watched<T> {
    const fn new() -> Self {
        Self {
            stamp: None,
            good: None,
            complaint: None,
            complained: None,
            looked: None,
        }
    }

    /// True if it is time to look at the file again.
    fn is_due(&mut self, interval: Duration) -> bool {
        let due = self.looked.is_none_or(|last| last.elapsed() >= interval);
        if due {
            self.looked = Some(Instant::now());
        }
        due
    }

    /// The value now, and a complaint for the log if one is due.
    fn refresh(
        &mut self,
        path: &PathBuf,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> (Option<Arc<T>>, Option<String>) {
        match fs::metadata(path) {
            Ok(meta) => {
                let stamp = Stamp::of(&meta);
                if self.stamp.as_ref() != Some(&stamp) {
                    let read = fs::read_to_string(path).map_err(|error| error.to_string());
                    self.stamp = Some(stamp);
                    self.take(read.and_then(|text| parse(&text)));
                }
            }
            Err(error) => {
                self.stamp = None;
                self.take(Err(error.to_string()));
            }
        }
        (self.good.clone(), self.due_complaint())
    }

    fn take(&mut self, read: Result<T, String>) {
        match read {
            Ok(value) => {
                self.good = Some(Arc::new(value));
                self.complaint = None;
            }
            Err(complaint) => {
                // Log a new fault at once.
                if self.complaint.as_deref() != Some(&complaint) {
                    self.complained = None;
                }
                self.complaint = Some(complaint);
            }
        }
    }

    /// Takes a good value from another place.
    fn have(&mut self, value: T) -> Option<Arc<T>> {
        self.good = Some(Arc::new(value));
        self.good.clone()
    }

    fn due_complaint(&mut self) -> Option<String> {
        let complaint = self.complaint.as_ref()?;
        let due = self
            .complained
            .is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL);
        if !due {
            return None;
        }
        self.complained = Some(Instant::now());
        Some(complaint.clone())
    }
}

static POLICY: Mutex<Watched<Policy>> = Mutex::new(Watched::new());
static EXTRA_CONSTRAINTS: Mutex<Watched<bool>> = Mutex::new(Watched::new());

/// After a panic under the lock, the value is at worst an old one, which is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The policy in force, and lines for slurmctld's log.
pub(crate) struct InForce {
    /// The last good one.
    pub(crate) policy: Option<Arc<Policy>>,
    /// The line that it has changed.
    pub(crate) news: Option<String>,
    /// The line that the file is wrong, if one is due.
    pub(crate) complaint: Option<String>,
}

/// The last good policy.
pub(crate) fn policy() -> InForce {
    let path = PathBuf::from(Policy::PATH);
    let mut watched = lock(&POLICY);
    let before = watched.good.clone();
    let mut not_kept = None;
    let mut news = None;
    let (mut policy, complaint) = watched.refresh(&path, |text| {
        let policy = Policy::parse_whole(text).map_err(|error| error.to_string())?;
        not_kept = last_good::keep(&slurm_conf(), text).err();
        let before = before.map_or_else(String::new, |before| {
            format!("; before: {}", before.summary())
        });
        let now = policy.summary();
        news = Some(format!(
            "softmig: {} is in force: {now}{before}",
            Policy::PATH
        ));
        Ok(policy)
    });
    if let Some(error) = not_kept {
        let line = format!("softmig: no copy of the policy for slurmctld's next start: {error}");
        return InForce {
            policy,
            news,
            complaint: Some(line),
        };
    }
    let mut consequence = "the last good one stays in force".to_string();
    if policy.is_none() {
        if let Some((kept, path)) = last_good::kept(&slurm_conf()) {
            consequence = format!("the last good one is in force: {}", path.display());
            policy = watched.have(kept);
        } else {
            consequence = "requests for slices are refused".to_string();
        }
    }
    let line =
        complaint.map(|complaint| format!("softmig: {}: {complaint}; {consequence}", Policy::PATH));
    InForce {
        policy,
        news,
        complaint: line,
    }
}

/// The path of slurmctld's configuration.
fn slurm_conf() -> PathBuf {
    std::env::var_os("SLURM_CONF")
        .unwrap_or_else(|| "/etc/slurm/slurm.conf".into())
        .into()
}

/// True if Slurm parses a job's `extra` itself, so that it cannot carry the tag; and a line for the log if slurm.conf cannot
/// be read.
///
/// slurm.conf takes effect by a restart or a reconfiguration, not within the second.
pub(crate) fn slurm_parses_extra() -> (bool, Option<String>) {
    let mut watched = lock(&EXTRA_CONSTRAINTS);
    let mut line = None;
    if watched.is_due(Duration::from_secs(1)) {
        let path = slurm_conf();
        let (_, complaint) = watched.refresh(&path, |text| Ok(parses_extra(text)));
        line = complaint.map(|complaint| {
            format!(
                "softmig: {}: {complaint}; the tag goes into extra (policy.toml, [tag], can say comment)",
                path.display()
            )
        });
    }
    (watched.good.as_deref().copied().unwrap_or(false), line)
}
