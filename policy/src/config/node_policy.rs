//! The part of policy.toml that a node needs: the GPU types, the treatment of jobs without a tag, the log, what the monitor ends.
//!
//! Prolog, epilog and monitor read only this part. Errors in the rules about users do not matter for a job that was granted,
//! and the programs that run for each job stay small.

use crate::config::choices::TagField;
use crate::config::error::{PolicyError, line_of, read};
use crate::config::gpu_types::{GpuTable, GpuType};
use crate::config::metrics::{Metrics, MetricsTable};
use crate::config::monitor::{Monitor, MonitorTable};
use crate::config::report::Report;
use crate::node::limits::Limits;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use toml::Spanned;

/// That part of a policy, read and found consistent.
#[derive(Clone, Debug)]
pub struct NodePolicy {
    pub(crate) gpus: BTreeMap<String, GpuType>,
    /// The prolog's decision on a job without a tag if slurmctld gives no answer.
    pub on_unknown: OnUnknown,
    /// A file that prolog, epilog and monitor log to besides the system's log.
    pub log_file: Option<String>,
    /// Whether only processes with the library may open GPUs of jobs with slices.
    pub device_gate: bool,
    /// The field of the job record that carries the tag.
    pub tag_field: TagField,
    /// The monitor's settings.
    pub monitor: Monitor,
    /// The ways in which others learn what jobs use.
    pub metrics: Metrics,
    /// The traces that a job's end leaves.
    pub report: Report,
    on_untagged: OnUntagged,
    names_people: bool,
}

/// The prolog's treatment of a job without a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnUntagged {
    /// It asks slurmctld what the job got.
    #[default]
    Ask,
    /// The job gets no GPU, if the policy's rules depend on who submits a job.
    Deny,
}

/// The prolog's decision on a job without a tag if slurmctld gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnknown {
    /// The job gets the smallest slice of its GPU's type.
    #[default]
    Smallest,
    /// The prolog fails, and Slurm drains the node.
    Drain,
}

/// `[gpu.*]` as they are written.
pub(crate) type GpuTables = BTreeMap<String, Spanned<GpuTable>>;

/// `[node]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeTable {
    #[serde(default)]
    on_unknown: OnUnknown,
    #[serde(default)]
    on_untagged: OnUntagged,
    log_file: Option<String>,
    #[serde(default)]
    device_gate: bool,
}

/// `[tag]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TagTable {
    #[serde(default)]
    pub(crate) field: TagField,
}

/// The tables of this part, as they are written.
pub(crate) struct Tables {
    pub(crate) gpu: GpuTables,
    pub(crate) node: NodeTable,
    pub(crate) tag: TagTable,
    pub(crate) monitor: MonitorTable,
    pub(crate) metrics: MetricsTable,
    pub(crate) report: Report,
}

/// The file with all other tables passed over; [`crate::config::file::File`] has them.
#[derive(Deserialize)]
struct NodeFile {
    #[serde(default)]
    gpu: GpuTables,
    #[serde(default)]
    node: NodeTable,
    #[serde(default)]
    tag: TagTable,
    #[serde(default)]
    monitor: MonitorTable,
    #[serde(default)]
    metrics: MetricsTable,
    #[serde(default)]
    report: Report,
    // Of these it only matters whether they are there.
    defaults: Option<IgnoredAny>,
    classes: Option<IgnoredAny>,
    users: Option<IgnoredAny>,
    gate: Option<IgnoredAny>,
    reservable: Option<IgnoredAny>,
}

impl NodePolicy {
    /// Reads a policy.toml.
    ///
    /// ```
    /// use softmig_policy::NodePolicy;
    /// let text = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n[classes.students]\nshard = \"typo\"\n";
    /// let policy = NodePolicy::parse(text).unwrap();
    /// assert_eq!(policy.gpu("l40s").unwrap().limits(1).unwrap().memory_mib(), 11366);
    /// ```
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let file: NodeFile = read(text)?;
        let people = [
            file.defaults,
            file.classes,
            file.users,
            file.gate,
            file.reservable,
        ];
        let names_people = people.iter().any(Option::is_some);
        let tables = Tables {
            gpu: file.gpu,
            node: file.node,
            tag: file.tag,
            monitor: file.monitor,
            metrics: file.metrics,
            report: file.report,
        };
        Self::check(tables, names_people, text)
    }

    pub(crate) fn check(
        tables: Tables,
        names_people: bool,
        text: &str,
    ) -> Result<Self, PolicyError> {
        let Tables {
            gpu,
            node,
            tag,
            monitor,
            metrics,
            report,
        } = tables;
        let gpus = check_gpus(gpu, text)?;
        let log_file = node.log_file;
        if let Some(path) = log_file.as_deref().filter(|path| !path.starts_with('/')) {
            let message = format!("log_file = \"{path}\" is not an absolute path");
            return Err(PolicyError::new("[node]", None, message));
        }
        Ok(Self {
            gpus,
            on_unknown: node.on_unknown,
            log_file,
            tag_field: tag.field,
            on_untagged: node.on_untagged,
            names_people,
            monitor: monitor.check()?,
            metrics: metrics.check()?,
            report,
            device_gate: node.device_gate,
        })
    }

    /// Whether a job without a tag gets no GPU: job_submit has not decided on it.
    pub fn denies_untagged(&self) -> bool {
        self.names_people && self.on_untagged == OnUntagged::Deny
    }

    /// The type of that exact name; Slurm's types are case sensitive.
    pub fn gpu(&self, name: &str) -> Option<&GpuType> {
        self.gpus.get(name)
    }

    /// All types, by name.
    pub fn gpus(&self) -> impl Iterator<Item = &GpuType> {
        self.gpus.values()
    }

    /// The limits of this many shards of a type. A part that is spread over several GPUs counts as the smallest part
    /// of each: which GPU holds how much is not known here.
    pub fn allocated(&self, kind: Option<&str>, shards: u64) -> Option<Limits> {
        let gpu = match kind {
            Some(kind) => self.gpu(kind)?,
            None => self.only_type()?,
        };
        u32::try_from(shards)
            .ok()
            .and_then(|shards| gpu.limits(shards).ok())
            .or_else(|| gpu.limits(1).ok())
    }

    /// The smallest part of the type that the driver's name for a card (`NVIDIA L40S`, `NVIDIA TITAN RTX`) belongs to,
    /// or of any type when none does: a type's name need not be in its cards' name.
    pub fn smallest(&self, model: Option<&str>) -> Option<Limits> {
        let is_model = |gpu: &&GpuType| model.is_some_and(|model| names(model, gpu.name()));
        let smallest = |gpu: &GpuType| {
            let size = gpu.slices().last().copied().unwrap_or(1);
            gpu.limits(gpu.shards_per_gpu() / size).ok()
        };
        self.gpus().find(is_model).and_then(smallest).or_else(|| {
            self.gpus()
                .filter_map(smallest)
                .min_by_key(Limits::memory_mib)
        })
    }

    fn only_type(&self) -> Option<&GpuType> {
        let mut types = self.gpus();
        types.next().filter(|_| types.next().is_none())
    }
}

fn check_gpus(tables: GpuTables, text: &str) -> Result<BTreeMap<String, GpuType>, PolicyError> {
    let checked = tables.into_iter().map(|(key, entry)| {
        let line = line_of(text, &entry.span());
        let gpu = entry.into_inner().check(&key);
        let gpu =
            gpu.map_err(|message| PolicyError::new(format_args!("[gpu.{key}]"), line, message))?;
        Ok((key, gpu))
    });
    checked.collect()
}

/// True if consecutive words of `model` are `name`, without regard to case and punctuation.
fn names(model: &str, name: &str) -> bool {
    let letters = |text: &str| -> String {
        let plain = text.chars().filter(char::is_ascii_alphanumeric);
        plain.map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let words: Vec<String> = model.split([' ', '-']).map(letters).collect();
    let name = letters(name);
    (0..words.len())
        .any(|first| (first..words.len()).any(|last| words[first..=last].concat() == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    /// For any file, node and submission have the same GPUs.
    #[test]
    fn a_node_reads_what_submission_reads() {
        let text = include_str!("../../../conf/policy.toml");
        let (policy, node) = (
            Policy::parse(text).unwrap(),
            NodePolicy::parse(text).unwrap(),
        );
        assert!(node.gpus().count() > 0);
        assert_eq!(format!("{node:?}"), format!("{:?}", policy.node()));
    }

    #[test]
    fn what_is_wrong_about_people_is_none_of_a_nodes_business() {
        let gpu = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
        for wrong in [
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"(\"]\n",
            "[clases.a]\n",
            "[users.a]\nclass = \"b\"\n",
        ] {
            let text = format!("{gpu}{wrong}");
            assert!(Policy::parse(&text).is_err(), "{wrong}");
            assert!(NodePolicy::parse(&text).unwrap().gpu("l40s").is_some());
        }
        for wrong in [
            "[node]\non_unknwn = \"drain\"\n",
            "[node]\nlog_file = \"log\"\n",
            "[monitor]\nend = \"yes\"\n",
            "[gpu.a]\nmemory_mib = 1\nreserved_mib = 1\nshards = 1\n",
            "[[gate\n",
        ] {
            let text = format!("{gpu}{wrong}");
            let (policy, node) = (Policy::parse(&text), NodePolicy::parse(&text));
            assert_eq!(node.unwrap_err(), policy.unwrap_err());
        }
    }

    #[test]
    fn jobs_without_a_tag_are_denied_only_if_the_policy_says_so() {
        let gpu = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
        let denies = |rest: &str| {
            NodePolicy::parse(&format!("{gpu}{rest}"))
                .unwrap()
                .denies_untagged()
        };
        let deny = "[node]\non_untagged = \"deny\"\n";
        let ask = "[node]\non_untagged = \"ask\"\n";
        for people in [
            "[defaults]\nshards = 1\n",
            "[classes.a]\nqos = \"b\"\n",
            "[users.alice]\nshards = 1\n",
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a\"]\n",
            "[[reservable]]\ntype = \"l40s_r\"\n",
        ] {
            assert!(denies(&format!("{deny}{people}")), "{people}");
            assert!(!denies(&format!("{ask}{people}")), "{people}");
            assert!(!denies(people), "{people}");
        }
        assert!(!denies(deny));
        assert!(!denies(&format!("{deny}[[route]]\npartition = \"gpu\"\n")));
    }

    #[test]
    fn in_doubt_a_job_gets_the_smallest_part() {
        let policy = NodePolicy::parse(
            "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
             [gpu.big]\nmemory_mib = 100000\nreserved_mib = 0\nshards = 10\nslices = [2]\n\
             [gpu.titanrtx]\nmemory_mib = 24220\nreserved_mib = 0\nshards = 2\n",
        )
        .unwrap();
        let memory = |limits: Option<Limits>| limits.unwrap().memory_mib();
        assert_eq!(memory(policy.smallest(Some("NVIDIA L40S"))), 11366);
        assert_eq!(memory(policy.smallest(Some("NVIDIA Big-80GB"))), 50000);
        assert_eq!(memory(policy.smallest(Some("NVIDIA TITAN RTX"))), 12110);
        assert_eq!(memory(policy.smallest(Some("Other"))), 11366);
        assert_eq!(memory(policy.allocated(Some("l40s"), 2)), 22732);
        assert_eq!(memory(policy.allocated(Some("l40s"), 6)), 11366);
        assert_eq!(policy.allocated(None, 1), None);
    }
}
