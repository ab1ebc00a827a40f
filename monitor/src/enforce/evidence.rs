//! Finds out since when this node holds processes to limits, by its node.conf and by the list of libraries that every
//! process loads.
//!
//! Both hold for processes that begin after a change. So none is ended that began before the later of the two.

use crate::enforce::snapshot::{Evidence, beginning};
use rustix::time::{ClockId, clock_gettime};
use softmig_node::dir::Dir;
use softmig_policy::node::node_conf::{Identity, LONGEST, NodeConf, NodeMode};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file's time and a process's are known to the second.
const MARGIN: Duration = Duration::from_secs(2);
/// A process that began sooner after the arbiter may have found none.
const ARBITER_MARGIN: Duration = Duration::from_secs(1);

/// The longest list that a loader gets through in reasonable time.
const LONGEST_LIST: u64 = 1 << 20;

/// Where it is told.
#[derive(Clone, Debug)]
pub struct Places {
    etc: PathBuf,
    owner: u32,
    /// When this process began.
    began: u64,
}

impl Places {
    /// The places of this machine.
    pub fn of_this_machine() -> Self {
        Self::in_folder(Path::new("/etc"), 0)
    }

    /// Those in a folder of this user's, for tests.
    pub fn in_folder(etc: &Path, owner: u32) -> Self {
        Self {
            etc: etc.into(),
            owner,
            began: beginning(Path::new("/proc"), std::process::id()).unwrap_or(u64::MAX),
        }
    }

    /// Their present values.
    pub fn evidence(&self, arbiter_answers: bool) -> Evidence {
        Evidence {
            enforced_since: self.enforced_since().map(|time| ticks_at(time + MARGIN)),
            arbiter_since: self.began.saturating_add(ticks(ARBITER_MARGIN)),
            arbiter_answers,
        }
    }

    /// Since when the node enforces; `None` if it does not, or that cannot be told.
    fn enforced_since(&self) -> Option<SystemTime> {
        let etc = Dir::open(&self.etc, self.owner).ok()??;
        let own = etc.child("softmig").ok()??;
        let text = own.read("node.conf", LONGEST as u64).ok()??;
        let conf = NodeConf::parse(&text).ok()?;
        if (conf.mode, conf.identity) != (NodeMode::Enforce, Identity::Cgroup) {
            return None;
        }
        let list = etc.read("ld.so.preload", LONGEST_LIST).ok()??;
        let list = String::from_utf8_lossy(&list);
        let has_library = list.lines().any(|line| {
            let words = line.split('#').next().unwrap_or_default();
            let mut libraries = words.split([' ', '\t', ':']);
            libraries.any(|library| library.ends_with("/libsoftmig.so"))
        });
        let written = |dir: &Dir, name: &str| {
            let stat = dir.stat_of(name).ok()??;
            let seconds = u64::try_from(stat.st_mtime).ok()?;
            Some(UNIX_EPOCH + Duration::from_secs(seconds))
        };
        let times = [written(&own, "node.conf")?, written(&etc, "ld.so.preload")?];
        has_library.then(|| times[0].max(times[1]))
    }
}

fn ticks(time: Duration) -> u64 {
    let each = rustix::param::clock_ticks_per_second();
    let ticks = time.as_millis() * u128::from(each) / 1000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// A time of day as clock ticks since the machine's start; 0 for a time before that.
fn ticks_at(time: SystemTime) -> u64 {
    let up = clock_gettime(ClockId::Boottime);
    let up = Duration::try_from(up).unwrap_or_default();
    let ago = match SystemTime::now().duration_since(time) {
        Ok(ago) => return ticks(up.saturating_sub(ago)),
        Err(ahead) => ahead.duration(),
    };
    ticks(up + ago)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ENFORCE: &str = "SOFTMIG_NODE=enforce\n";
    const LIST: &str = "/usr/lib/softmig/libsoftmig.so\n";

    fn since(conf: Option<&str>, list: Option<&str>) -> Option<u64> {
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        fs::create_dir_all(etc.join("softmig")).unwrap();
        for (name, text) in [("softmig/node.conf", conf), ("ld.so.preload", list)] {
            if let Some(text) = text {
                fs::write(etc.join(name), text).unwrap();
            }
        }
        let places = Places::in_folder(&etc, rustix::process::getuid().as_raw());
        places.evidence(true).enforced_since
    }

    #[test]
    fn only_a_node_that_enforces_with_the_library_ends_processes() {
        assert!(since(Some(ENFORCE), Some(LIST)).is_some());
        let other = format!("/lib/x.so # {LIST}");
        for (conf, list) in [
            (None, Some(LIST)),
            (Some("SOFTMIG_NODE=observe\n"), Some(LIST)),
            (Some("SOFTMIG_NODE=off\n"), Some(LIST)),
            (
                Some("SOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\n"),
                Some(LIST),
            ),
            (Some("SOFTMIG_NODE=enfroce\n"), Some(LIST)),
            (Some(ENFORCE), None),
            (Some(ENFORCE), Some("")),
            (Some(ENFORCE), Some(other.as_str())),
        ] {
            assert_eq!(since(conf, list), None, "{conf:?} {list:?}");
        }
    }

    #[test]
    fn who_began_before_a_change_is_older_than_that() {
        // This process began before the file was written.
        let since = since(Some(ENFORCE), Some(LIST)).unwrap();
        let me = beginning(Path::new("/proc"), std::process::id()).unwrap();
        assert!(me < since);
        let later = ticks_at(SystemTime::now() + Duration::from_secs(5));
        assert!(since < later);
        assert!(ticks_at(UNIX_EPOCH) < me);
    }
}
