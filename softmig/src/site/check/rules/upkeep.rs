//! Checks that the parts that run on a node are the installed ones, and have room.

use crate::site::check::facts::Upkeep;
use crate::site::check::finding::{Code, Finding};
use softmig_policy::node::paths::RUN;

const LIBRARY: &str = "/usr/lib/softmig/libsoftmig.so";

pub(crate) fn check(upkeep: &Upkeep) -> Vec<Finding> {
    let mut found = Vec::new();
    for (is_wrong, code, place, what, remedy) in rows! {
        upkeep.old_library, LibraryOld, LIBRARY,
            "it is another one than the installed release has: new processes load the older one",
            "run 'softmig install --hook', which tries the other and puts it in its place";
        upkeep.full == Ok(true), RunFull, RUN,
            "it is full: jobs that start get no GPU, or their prolog fails and Slurm drains the node",
            "find the large files with 'df /var/run/softmig; du -a /var/run/softmig', remove those that belong to no job, and \
             resume the node with scontrol";
    } {
        if is_wrong {
            found.push(Finding::new(code, place, what, remedy));
        }
    }
    if let Some(why) = &upkeep.open_library {
        found.push(Finding::new(
            Code::LibraryOpen,
            LIBRARY,
            format!("others than root can change what every process loads: {why}"),
            "look at what it is now, then run 'softmig install --hook', which puts root's own there",
        ));
    }
    if let Some(version) = &upkeep.old_monitor {
        found.push(Finding::new(
            Code::MonitorOld,
            "softmig-monitor",
            format!(
                "{version} runs on, and its file is gone: it was upgraded and not started again"
            ),
            "run 'systemctl daemon-reload; systemctl restart softmig-monitor'",
        ));
    }
    for (gpu, bytes) in &upkeep.missing_memory {
        found.push(Finding::new(
            Code::GpuMemory,
            format!("GPU {gpu}"),
            format!(
                "others hold {} MiB of the memory that its jobs may have",
                bytes >> 20
            ),
            "'softmig monitor' shows who; of memory that no process has, the GPU is free when its last user has closed it",
        ));
    }
    if let Err(why) = &upkeep.full {
        found.push(Finding::skip(RUN, why));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::codes;

    #[test]
    fn what_is_in_order_or_unseen_is_no_fault() {
        assert!(check(&Upkeep::default()).is_empty());
        let unknown = Upkeep {
            full: Err("no".into()),
            ..Upkeep::default()
        };
        assert_eq!(codes(&check(&unknown)), ["NOT_LOOKED_AT"]);
    }
}
