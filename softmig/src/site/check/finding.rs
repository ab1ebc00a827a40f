//! A finding: what is wrong, where, and what to do about it.

use crate::output::say::{and_others, counted};
use crate::site::check::facts::{NodeFinding, Report};
use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Slices do not work, or a user gets more than the policy gives.
    Error,
    /// Slices work, but perhaps not as expected.
    Warn,
    /// Something could not be looked at, so nothing is known about it.
    Skip,
    /// Nothing is wrong.
    Info,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN",
            Self::Skip => "SKIP",
            Self::Info => "INFO",
        })
    }
}

/// Makes the codes, their names and their levels from one list.
macro_rules! codes {
    ($($name:ident $level:ident $text:literal,)+) => {
        /// The codes of findings. The names are public and stable; docs/check.md explains each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($name,)+
        }

        impl Code {
            /// All codes.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name.
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// The code of this name.
            pub(crate) fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.as_str() == name)
            }

            /// How much it matters.
            pub(crate) const fn level(self) -> Level {
                match self {
                    $(Self::$name => Level::$level,)+
                }
            }
        }
    };
}

codes! {
    // Slurm's settings.
    SelectType Error "SELECT_TYPE",
    LlSharedGresTooOld Error "LL_SHARED_GRES_TOO_OLD",
    MultipleSharingGresPj Error "MULTIPLE_SHARING_GRES_PJ",
    Placement Warn "PLACEMENT",
    PlacementAlwaysPacks Warn "PLACEMENT_ALWAYS_PACKS",
    GresTypes Error "GRES_TYPES",
    Prolog Error "PROLOG",
    Epilog Error "EPILOG",
    PrologFlags Error "PROLOG_FLAGS",
    PrologRunInJob Warn "PROLOG_RUN_IN_JOB",
    JobSubmit Error "JOB_SUBMIT",
    CliFilter Warn "CLI_FILTER",
    CliFilterScript Error "CLI_FILTER_SCRIPT",
    LuaModule Error "LUA_MODULE",
    LuaVersion Error "LUA_VERSION",
    LuaGlibc Error "LUA_GLIBC",
    LuaStray Warn "LUA_STRAY",
    PolicyUnreadable Error "POLICY_UNREADABLE",
    PolicyInForce Warn "POLICY_IN_FORCE",
    Proctrack Error "PROCTRACK",
    ConstrainDevices Error "CONSTRAIN_DEVICES",
    ConstrainDeviceMemory Info "CONSTRAIN_DEVICE_MEMORY",
    CgroupSluid Warn "CGROUP_SLUID",
    SettingTwice Warn "SETTING_TWICE",
    TagField Error "TAG_FIELD",
    LegacyMps Warn "LEGACY_MPS",
    PrivateData Warn "PRIVATE_DATA",
    // The GPUs of the nodes.
    MpsAndShard Error "MPS_AND_SHARD",
    GpusUntyped Error "GPUS_UNTYPED",
    GpusUnknown Warn "GPUS_UNKNOWN",
    ShardsUntyped Error "SHARDS_UNTYPED",
    ShardsUneven Error "SHARDS_UNEVEN",
    ShardsPerGpu Error "SHARDS_PER_GPU",
    ShardsUnknown Error "SHARDS_UNKNOWN",
    ShardsMissing Warn "SHARDS_MISSING",
    ShardsOfAllTypes Error "SHARDS_OF_ALL_TYPES",
    ReservableShared Error "RESERVABLE_SHARED",
    MigShared Error "MIG_SHARED",
    GpusOrder Error "GPUS_ORDER",
    NodeTwice Error "NODE_TWICE",
    NodeMissing Error "NODE_MISSING",
    NodeGpus Error "NODE_GPUS",
    NodeUnlisted Warn "NODE_UNLISTED",
    GresConf Error "GRES_CONF",
    // The limits of users.
    Accounting Error "ACCOUNTING",
    AccountingTres Error "ACCOUNTING_TRES",
    AccountingEnforce Error "ACCOUNTING_ENFORCE",
    BillingWeights Error "BILLING_WEIGHTS",
    BillingWithoutGpus Warn "BILLING_WITHOUT_GPUS",
    BillingMaxTres Error "BILLING_MAX_TRES",
    PriorityUnused Warn "PRIORITY_UNUSED",
    QosMissing Error "QOS_MISSING",
    QosLimits Error "QOS_LIMITS",
    QosPriority Error "QOS_PRIORITY",
    QosFlags Error "QOS_FLAGS",
    QosNotAllowed Error "QOS_NOT_ALLOWED",
    QosPartition Error "QOS_PARTITION",
    OtherQos Warn "OTHER_QOS",
    PartitionExclusive Error "PARTITION_EXCLUSIVE",
    SpecResources Error "SPEC_RESOURCES",
    ClassNever Warn "CLASS_NEVER",
    ClassMembers Warn "CLASS_MEMBERS",
    ClassGroups Warn "CLASS_GROUPS",
    // Settings of the site that only take whole GPUs into account.
    DefPerGpu Warn "DEF_PER_GPU",
    CpusBelowSlices Warn "CPUS_BELOW_SLICES",
    LimitGpuOnly Warn "LIMIT_GPU_ONLY",
    BillingGpuOnly Warn "BILLING_GPU_ONLY",
    // Names of Slurm's in the policy.
    PartitionTwice Error "PARTITION_TWICE",
    PartitionNodes Error "PARTITION_NODES",
    RoutePartition Error "ROUTE_PARTITION",
    RouteGpus Warn "ROUTE_GPUS",
    GatePartition Error "GATE_PARTITION",
    GateAccount Error "GATE_ACCOUNT",
    GateClass Warn "GATE_CLASS",
    GateGres Error "GATE_GRES",
    GateReservation Warn "GATE_RESERVATION",
    ReservationInvaded Error "RESERVATION_INVADED",
    ReservableOver Warn "RESERVABLE_OVER",
    ReservableMoved Error "RESERVABLE_MOVED",
    ReservableHolder Warn "RESERVABLE_HOLDER",
    ReservableType Error "RESERVABLE_TYPE",
    ReservableJobs Warn "RESERVABLE_JOBS",
    ReservableWindow Info "RESERVABLE_WINDOW",
    // This node.
    PolicyMissing Error "POLICY_MISSING",
    PolicyDiffers Error "POLICY_DIFFERS",
    NodeConf Error "NODE_CONF",
    NodeMode Warn "NODE_MODE",
    Preload Error "PRELOAD",
    PreloadBroken Error "PRELOAD_BROKEN",
    LibraryOld Warn "LIBRARY_OLD",
    LibraryOpen Error "LIBRARY_OPEN",
    Monitor Warn "MONITOR",
    MonitorOld Warn "MONITOR_OLD",
    LoaderOther Warn "LOADER_OTHER",
    NodePrograms Error "NODE_PROGRAMS",
    RunFull Error "RUN_FULL",
    RunFolder Warn "RUN_FOLDER",
    JobEnded Warn "JOB_ENDED",
    CgroupLayout Error "CGROUP_LAYOUT",
    ContainerApptainer Warn "CONTAINER_APPTAINER",
    ContainerPodman Warn "CONTAINER_PODMAN",
    ContainerEnroot Warn "CONTAINER_ENROOT",
    ContainerDocker Warn "CONTAINER_DOCKER",
    DeviceMemoryLimits Info "DEVICE_MEMORY_LIMITS",
    DeviceMemorySmaller Warn "DEVICE_MEMORY_SMALLER",
    DeviceGate Warn "DEVICE_GATE",
    PackProgram Warn "PACK_PROGRAM",
    PackNoEffect Warn "PACK_NO_EFFECT",
    PackProved Info "PACK_PROVED",
    NvmlMemory Error "NVML_MEMORY",
    NvmlGpus Error "NVML_GPUS",
    SchedulerNoEffect Warn "SCHEDULER_NO_EFFECT",
    SchedulerProved Info "SCHEDULER_PROVED",
    ComputeMode Error "COMPUTE_MODE",
    GpuPending Warn "GPU_PENDING",
    GpuMemory Warn "GPU_MEMORY",
    GpuPersistence Info "GPU_PERSISTENCE",
    MigEmpty Error "MIG_EMPTY",
    MigDivided Error "MIG_DIVIDED",
    // Facts that could not be looked at.
    NotLookedAt Skip "NOT_LOOKED_AT",
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The code of the finding.
    pub(crate) code: Code,
    /// The file, setting, node, partition or table.
    pub(crate) place: String,
    /// The fact.
    pub(crate) what: String,
    /// The remedy; empty where nothing has to be done.
    pub(crate) remedy: String,
}

impl Finding {
    pub(crate) fn new(
        code: Code,
        place: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            code,
            place: place.into(),
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// A finding that something could not be looked at.
    pub(crate) fn skip(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(Code::NotLookedAt, place, why, "")
    }
}

/// The most names in one finding.
const NAMED: usize = 5;

/// "a, b", and how many more there are; `None` without any.
pub(crate) fn listed(names: impl Iterator<Item = impl AsRef<str>>) -> Option<String> {
    let names: Vec<String> = names.map(|name| name.as_ref().to_string()).collect();
    let (named, others) = names.split_at(names.len().min(NAMED));
    (!named.is_empty()).then(|| and_others(&named.join(", "), others.len()))
}

/// One line for people.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, code) = (self.code.level(), self.code.as_str());
        write!(f, "{level:<5} {code} {}: {}", self.place, self.what)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// All that was found, the worst first.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    /// Sorts by level, and within a level in the order in which they were found. Equal findings are kept once.
    pub(crate) fn sorted(found: Vec<Finding>) -> Self {
        let mut unique: Vec<Finding> = Vec::new();
        for finding in found {
            if !unique.contains(&finding) {
                unique.push(finding);
            }
        }
        unique.sort_by_key(|finding| finding.code.level());
        Self(unique)
    }

    /// The number of findings of a level.
    pub(crate) fn count(&self, level: Level) -> usize {
        let of_level = self
            .0
            .iter()
            .filter(|finding| finding.code.level() == level);
        of_level.count()
    }

    pub(crate) fn to_json(&self) -> String {
        let findings = self.0.iter().map(|finding| NodeFinding {
            level: finding.code.level().to_string().to_ascii_lowercase(),
            code: finding.code.as_str().to_string(),
            r#where: finding.place.clone(),
            what: finding.what.clone(),
            remedy: finding.remedy.clone(),
        });
        let all = Report {
            errors: self.count(Level::Error),
            warnings: self.count(Level::Warn),
            not_looked_at: self.count(Level::Skip),
            findings: findings.collect(),
        };
        serde_json::to_string(&all).unwrap_or_default()
    }
}

impl Findings {
    /// A line for each finding, and one of this command's that sums up.
    pub(crate) fn told_by(&self, command: &str) -> String {
        let lines: String = self
            .0
            .iter()
            .map(|finding| format!("{finding}\n"))
            .collect();
        format!(
            "{lines}{command}: {}, {}, {} not looked at",
            counted(self.count(Level::Error), "error"),
            counted(self.count(Level::Warn), "warning"),
            counted(self.count(Level::Skip), "thing"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_named_once() {
        let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[test]
    fn the_page_has_every_code_with_its_level() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/check.md"))
                .unwrap();
        let rows: BTreeSet<(String, String)> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .filter_map(|row| {
                let (code, rest) = row.split_once("` | ")?;
                let level = rest.split(' ').next()?;
                // Another table shows commands.
                let is_code = !code.contains(' ');
                is_code.then(|| (code.to_string(), level.to_string()))
            })
            .collect();
        let codes = Code::ALL
            .iter()
            .map(|code| (code.as_str().to_string(), code.level().to_string()));
        assert_eq!(rows, codes.collect());
    }

    #[test]
    fn the_worst_comes_first_and_nothing_twice() {
        let warn = Finding::new(Code::Monitor, "n1", "b", "");
        let error = Finding::new(Code::Preload, "n1", "a", "do it");
        let findings = Findings::sorted(vec![
            Finding::skip("NVML", "there is none here"),
            warn.clone(),
            error,
            warn,
        ]);
        insta::assert_snapshot!(findings.told_by("softmig check"), @r"
        ERROR PRELOAD n1: a; do it
        WARN  MONITOR n1: b
        SKIP  NOT_LOOKED_AT NVML: there is none here
        softmig check: 1 error, 1 warning, 1 thing not looked at
        ");
        insta::assert_snapshot!(findings.to_json(), @r#"{"errors":1,"warnings":1,"not_looked_at":1,"findings":[{"level":"error","code":"PRELOAD","where":"n1","what":"a","remedy":"do it"},{"level":"warn","code":"MONITOR","where":"n1","what":"b","remedy":""},{"level":"skip","code":"NOT_LOOKED_AT","where":"NVML","what":"there is none here","remedy":""}]}"#);
    }
}
