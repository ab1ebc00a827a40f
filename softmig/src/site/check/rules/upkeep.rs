//! Checks that the parts that run on a node are the installed ones, and have room.

use crate::site::check::facts::Upkeep;
use crate::site::check::finding::{Code, Finding};
use softmig_policy::node::paths::RUN;

const LIBRARY: &str = "/usr/lib/softmig/libsoftmig.so";

pub(crate) fn check(upkeep: &Upkeep) -> Vec<Finding> {
    let mut found = Vec::new();
    if upkeep.old_library {
        found.push(Finding::new(
            Code::LibraryOld,
            LIBRARY,
            "it is another one than the installed release has: new processes load the older one",
            "run 'softmig install --hook', which tries the other and puts it in its place",
        ));
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
    match &upkeep.full {
        Err(why) => found.push(Finding::skip(RUN, why)),
        Ok(false) => {}
        Ok(true) => found.push(Finding::new(
            Code::RunFull,
            RUN,
            "it is full: jobs that start get no GPU, or their prolog fails and Slurm drains the node",
            format!("find the large files with 'df {RUN}; du -a {RUN}', remove those that belong to no job, and resume the node with scontrol"),
        )),
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::codes;

    #[test]
    fn each_state_has_its_code() {
        assert!(check(&Upkeep::default()).is_empty());
        let all = Upkeep {
            old_library: true,
            open_library: Some("its mode is 0777".into()),
            old_monitor: Some("0.1.0".into()),
            full: Ok(true),
        };
        let expected = ["LIBRARY_OLD", "LIBRARY_OPEN", "MONITOR_OLD", "RUN_FULL"];
        assert_eq!(codes(&check(&all)), expected);
        let unknown = Upkeep {
            full: Err("no".into()),
            ..Upkeep::default()
        };
        assert_eq!(codes(&check(&unknown)), ["NOT_LOOKED_AT"]);
    }
}
