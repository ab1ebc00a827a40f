//! Why a job waits, in words that need no knowledge of Slurm; Slurm's own word for it stays behind, in brackets.

use crate::ask::squeue::Job;
use softmig_policy::config::classes::ClassLimits;
use softmig_policy::{Policy, WallTime, may_hold};

/// The user who asks, and the rules.
pub(crate) struct Asker<'a> {
    /// The policy, where it can be read.
    pub(crate) policy: Option<&'a Policy>,
    /// The user who reads this.
    pub(crate) user: Option<&'a str>,
}

/// Reasons that are one word each.
const WORDS: &[(&str, &str)] = &[
    ("None", "Slurm has not looked at it yet"),
    (
        "Resources",
        "no GPU, CPUs or memory are free for it now; it is next in line",
    ),
    ("Priority", "other jobs are before it in line"),
    (
        "Dependency",
        "it waits for another job to end (--dependency)",
    ),
    (
        "DependencyNeverSatisfied",
        "the job that it depends on ended in another way than it asks for, so it never starts; cancel it with scancel",
    ),
    (
        "BeginTime",
        "its time to start has not come (--begin, or a pause after it failed to start)",
    ),
    (
        "JobHeldUser",
        "it is held; 'scontrol release JOB' lets it go",
    ),
    ("JobHeldAdmin", "an administrator holds it; ask why"),
    (
        "launch failed requeued held",
        "it failed to start on its node and is held; ask your administrator",
    ),
    (
        "ReqNodeNotAvail",
        "a node that it needs is down, drained, or reserved",
    ),
    ("Reservation", "its reservation has not begun"),
    (
        "ReservationDeleted",
        "its reservation is gone, so it never starts; cancel it with scancel",
    ),
    (
        "ReservationInvalid",
        "it may not use its reservation, so it never starts",
    ),
    (
        "PartitionDown",
        "its partition starts no jobs at the moment",
    ),
    (
        "PartitionInactive",
        "its partition takes no jobs at the moment",
    ),
    (
        "PartitionNodeLimit",
        "its partition allows fewer nodes, or its nodes are down",
    ),
    (
        "PartitionTimeLimit",
        "its partition allows less time; use a smaller --time",
    ),
    (
        "PartitionConfig",
        "its partition does not allow what it asks for",
    ),
    (
        "AccountNotAllowed",
        "its account may not use this partition",
    ),
    ("QOSNotAllowed", "its QOS may not be used here"),
    ("InvalidAccount", "Slurm does not know its account any more"),
    ("InvalidQOS", "Slurm does not know its QOS any more"),
    (
        "BadConstraints",
        "no node has what it asks for, so it never starts",
    ),
    ("Licenses", "all licenses that it needs are in use"),
    (
        "JobArrayTaskLimit",
        "its array allows no more tasks at once (--array=...%N)",
    ),
    ("NodeDown", "a node that it needs is down"),
    (
        "Cleaning",
        "it is about to start again, and Slurm tidies up first",
    ),
    ("Prolog", "its node is being prepared"),
    ("InactiveLimit", "it was idle for too long"),
    ("DeadLine", "it cannot end before its deadline"),
    (
        "MaxRequeue",
        "it failed to start too often and is held; ask your administrator",
    ),
    (
        "JobHoldMaxRequeue",
        "it failed to start too often and is held; ask your administrator",
    ),
    ("SchedDefer", "Slurm looks at it a little later"),
    (
        "QOSTimeLimit",
        "its QOS allows less time; use a smaller --time",
    ),
    (
        "AssociationTimeLimit",
        "your account allows less time; use a smaller --time",
    ),
    (
        "AssociationJobLimit",
        "your account's jobs have reached its limit",
    ),
    (
        "AssociationResourceLimit",
        "your account's jobs have reached its limit",
    ),
    (
        "QOSJobLimit",
        "jobs of its QOS have reached the QOS's limit",
    ),
    (
        "QOSResourceLimit",
        "jobs of its QOS have reached the QOS's limit",
    ),
    (
        "MaxMemPerLimit",
        "it asks for more memory than the partition or Slurm allows; use a smaller --mem",
    ),
    (
        "JobLaunchFailure",
        "it failed to start on its node; ask your administrator",
    ),
    (
        "MaxPoweredUpNodes",
        "as many nodes are switched on as may be",
    ),
    (
        "QOSUsageThreshold",
        "its account has used too much lately for this QOS",
    ),
];

/// Those of jobs that wait for their turn alone. Others wait for a limit, a time, a node, or a person.
const IN_LINE: &[&str] = &["None", "Resources", "Priority", "SchedDefer", "Cleaning"];

/// Whether a job waits for its turn alone, so that it may be the next to start.
pub(crate) fn is_in_line(job: &Job) -> bool {
    job.waits() && IN_LINE.contains(&code(job).0)
}

/// Slurm's code, and what follows it: `ReqNodeNotAvail, UnavailableNodes:gpu02`.
fn code(job: &Job) -> (&str, &str) {
    job.reason.split_once(',').unwrap_or((&job.reason, ""))
}

impl Asker<'_> {
    /// Why this job waits: words, and the code of Slurm's.
    pub(crate) fn why(&self, job: &Job) -> (String, String) {
        let (code, more) = code(job);
        let known = WORDS.iter().find(|(word, _)| *word == code);
        let mut words = match known {
            Some((_, words)) => words.to_string(),
            None => self
                .limit(job, code)
                .unwrap_or_else(|| "Slurm says no more than its code".to_string()),
        };
        if let Some((_, nodes)) = more.split_once("UnavailableNodes:")
            && !nodes.is_empty()
        {
            words += &format!(": {nodes}");
        } else if more.contains("maintenance") {
            words += ": there is maintenance ahead, and it would not end before; a smaller --time may let it start";
        }
        (words.replace("JOB", &job.name), code.to_string())
    }

    /// A limit: of a class, of a QOS of the site's own, or of an account.
    fn limit(&self, job: &Job, code: &str) -> Option<String> {
        let whose = if self.user == Some(job.user.as_str()) {
            "your other jobs".to_string()
        } else {
            format!("other jobs of {}", job.user)
        };
        let class = self.class(job);
        let may = |what: Option<String>, otherwise: &str| match (class, what) {
            (Some(class), Some(what)) => {
                format!("what {} may hold at once ({what})", class.called())
            }
            _ => otherwise.to_string(),
        };
        let amounts = || {
            may(
                self.policy
                    .zip(class)
                    .and_then(|(policy, class)| may_hold(policy, class)),
                "all that one user may hold at once",
            )
        };
        let quota = class.map(|class| &class.quota);
        let figure = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}"));
        let held = match code {
            "QOSMaxBillingPerUser" | "QOSMaxGRESPerUser" => amounts(),
            "QOSMaxJobsPerUserLimit" => may(
                figure(quota.and_then(|quota| quota.jobs), "GPU jobs"),
                "as many jobs as one user may run at once",
            ),
            "QOSMaxCpuPerUserLimit" => may(
                figure(quota.and_then(|quota| quota.cpus), "CPUs"),
                "as many CPUs as one user may hold at once",
            ),
            "QOSMaxMemoryPerUser" => may(
                figure(
                    quota.and_then(|quota| quota.host_memory_mib),
                    "MiB of host memory",
                ),
                "as much host memory as one user may hold at once",
            ),
            "QOSMaxWallDurationPerJobLimit" => {
                return Some(match quota.and_then(|quota| quota.wall_time) {
                    Some(time) => too_long(class, time),
                    None => "its QOS allows less time; use a smaller --time".to_string(),
                });
            }
            _ => return by_prefix(code, &whose),
        };
        Some(format!(
            "{whose} hold {held}; it starts when enough of them have ended"
        ))
    }

    /// The class whose limit it is: that of the job's QOS.
    fn class(&self, job: &Job) -> Option<&ClassLimits> {
        let own = self.policy?.standings().iter();
        own.filter(|class| class.qos.is_some())
            .find(|class| class.qos.as_deref() == Some(job.qos.as_str()))
    }
}

fn too_long(class: Option<&ClassLimits>, time: WallTime) -> String {
    let who = class.map_or("its class".to_string(), ClassLimits::called);
    format!("{who} may use at most {time}; use a smaller --time")
}

/// Families of limits, of which Slurm has one for each thing that it counts.
fn by_prefix(code: &str, whose: &str) -> Option<String> {
    let told = |words: &str| Some(words.to_string());
    match code {
        _ if code.starts_with("QOSMax") && code.contains("PerUser") => Some(format!(
            "{whose} hold all that one user may hold at once; it starts when enough of them have ended"
        )),
        _ if code.starts_with("Max") && code.ends_with("PerAccount") => {
            told("jobs of its account hold all that its QOS lets one account hold at once")
        }
        _ if code.starts_with("Max") && code.ends_with("PerUser") => {
            told("jobs of its user have promised as much time as its QOS lets one user have")
        }
        _ if code.starts_with("QOSMax") || code.starts_with("QOSMin") => {
            told("it asks for more, or less, than one job of its QOS may have, so it never starts")
        }
        _ if code.starts_with("QOSGrp") => {
            told("jobs of all users hold all that its QOS may hold at once")
        }
        _ if code.starts_with("AssocGrp") && code.contains("Minutes") => {
            told("its account has used up its time; ask who manages the account")
        }
        _ if code.starts_with("AssocGrp") => {
            told("jobs of its account hold all that the account may hold at once")
        }
        _ if code.starts_with("AssocMax") && code.contains("PerJob") => {
            told("it asks for more than one job of its account may have, so it never starts")
        }
        _ if code.starts_with("AssocMax") => {
            told("jobs of its user hold all that the account lets one user hold at once")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(reason: &str, user: &str) -> String {
        let policy = Policy::parse(
            "default_class = \"student\"\n[gpu.l40s]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n\
             [classes.student]\nshards = 2\nwhole_gpus = 0\njobs = 3\ncpus = 8\nwall_time = \"1-00:00:00\"\n",
        )
        .unwrap();
        let job = Job {
            name: "12".into(),
            user: "alice".into(),
            qos: "student".into(),
            reason: reason.into(),
            ..Job::default()
        };
        let asker = Asker {
            policy: Some(&policy),
            user: Some(user),
        };
        let (words, code) = asker.why(&job);
        format!("{words} [{code}]")
    }

    #[test]
    fn a_students_reasons_are_words() {
        insta::assert_snapshot!(
            [
                "None",
                "Resources",
                "Priority",
                "Dependency",
                "BeginTime",
                "JobHeldUser",
                "JobHeldAdmin",
                "ReqNodeNotAvail, UnavailableNodes:gpu02",
                "ReqNodeNotAvail, May be reserved for other job",
                "ReqNodeNotAvail, Reserved for maintenance",
                "QOSMaxBillingPerUser",
                "QOSMaxGRESPerUser",
                "QOSMaxJobsPerUserLimit",
                "QOSMaxCpuPerUserLimit",
                "QOSMaxMemoryPerUser",
                "QOSMaxWallDurationPerJobLimit",
                "QOSMaxNodePerUserLimit",
                "QOSGrpGRES",
                "AssocGrpGRES",
                "AssocGrpCPUMinutesLimit",
                "AssocMaxJobsLimit",
                "AssocMaxGRESPerJob",
                "QOSMaxGRESPerJob",
                "MaxGRESPerAccount",
                "MaxGRESRunMinsPerUser",
                "WeWillSee",
            ]
            .map(|reason| why(reason, "alice"))
            .join("\n")
        );
    }

    #[test]
    fn another_users_jobs_are_not_yours() {
        assert!(
            why("QOSMaxBillingPerUser", "bob")
                .starts_with("other jobs of alice hold what class student may hold")
        );
    }

    #[test]
    fn no_code_is_there_twice_and_all_words_are_plain() {
        let mut codes: Vec<&str> = WORDS.iter().map(|(code, _)| *code).collect();
        codes.sort_unstable();
        let all = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), all);
        assert!(WORDS.iter().all(|(_, words)| words.is_ascii()));
        assert!(IN_LINE.iter().all(|code| codes.contains(code)));
    }
}
