//! policy.toml: what an administrator decides, read and found consistent.

use crate::config::choices::{Placement, RawShards};
use crate::config::classes::{ClassLimits, Classes, Tables, Unknown};
use crate::config::error::{PolicyError, line_of};
use crate::config::file::File;
use crate::config::gates::{Gate, Gates};
use crate::config::gpu_types::GpuType;
use crate::config::inventory::{self, Nodes};
use crate::config::legacy_mps::Mps;
use crate::config::messages::Messages;
use crate::config::node_policy::{self, NodePolicy};
use crate::config::partitions::Partitions;
use crate::config::quota::{Quota, Weights};
use crate::config::refusal_code::Code;
use crate::config::reservable::{self, Holder, Reservable, Window};
use crate::config::routes::{self, Route};
use crate::config::slurm_words::SlurmWords;
use crate::config::suggest::nearest;
use crate::slurm::gres::{Item, items};
use crate::slurm::hostlist;
use crate::slurm::job_request::Request;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A policy that was read and found consistent.
#[derive(Clone, Debug)]
pub struct Policy {
    node: NodePolicy,
    plain_types: Vec<String>,
    messages: Messages,
    classes: Classes,
    weights: Weights,
    gates: Gates,
    reservables: Vec<Reservable>,
    mps: Option<Mps>,
    routes: Vec<Route>,
    nodes: Vec<Nodes>,
    /// What was found of partitions, for as long as the policy is in force.
    partitions: Arc<Mutex<Partitions>>,
    looks_at_people: bool,
    /// How to treat requests for shards that are not a slice.
    pub raw_shards: RawShards,
    /// True if a granted job is told the limits of its class.
    pub limit_notice: bool,
    /// Which GPU of a node fills first.
    pub placement: Placement,
    slurm_words: SlurmWords,
}

impl Policy {
    /// The path that every part of softmig reads.
    pub const PATH: &str = "/etc/softmig/policy.toml";

    /// Reads a policy.toml. Times in it that have no offset are in the time zone of this machine.
    ///
    /// ```
    /// use softmig_policy::Policy;
    /// let error = Policy::parse("[gpu.l40s]\nmemory_mb = 46068\n").unwrap_err();
    /// assert_eq!(error.to_string(), "line 2: [gpu.l40s]: unknown key memory_mb; did you mean memory_mib?");
    /// ```
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        Self::parse_in(text, TimeZone::system)
    }

    /// Reads a file that is to be in force. A file without any `[gpu.*]` table would lift every limit and is an error.
    ///
    /// ```
    /// use softmig_policy::Policy;
    /// let error = Policy::parse_whole("limit_notice = true\n").unwrap_err();
    /// assert_eq!(error.to_string(), "it has no [gpu.*] table; is it empty, or still being written?");
    /// ```
    pub fn parse_whole(text: &str) -> Result<Self, PolicyError> {
        let policy = Self::parse(text)?;
        if policy.gpus().next().is_none() {
            return Err(PolicyError::of_file(
                "it has no [gpu.*] table; is it empty, or still being written?",
            ));
        }
        Ok(policy)
    }

    /// Reads a file for a client, which needs it for one request only. It compiles the expressions of a gate when a job
    /// meets the gate; an expression that does not compile opens the gate to no job. It does not check lists of nodes.
    pub fn parse_for_client(text: &str) -> Result<Self, PolicyError> {
        Self::read(text, TimeZone::system)
    }

    /// Reads a file as `parse` does in another time zone, by its IANA name such as `Europe/Amsterdam`.
    pub fn parse_at(text: &str, zone: &str) -> Result<Self, PolicyError> {
        let zone = TimeZone::get(zone).map_err(|error| PolicyError::new(zone, None, error))?;
        Self::parse_in(text, || zone)
    }

    fn parse_in(text: &str, zone: impl FnOnce() -> TimeZone) -> Result<Self, PolicyError> {
        let policy = Self::read(text, zone)?;
        policy.gates.build()?;
        inventory::each_once(&policy.nodes)?;
        Ok(policy)
    }

    fn read(text: &str, zone: impl FnOnce() -> TimeZone) -> Result<Self, PolicyError> {
        let file = File::read(text)?;
        let names_people = file.names_people();
        let tables = node_policy::Tables {
            gpu: file.gpu,
            node: file.node,
            tag: file.tag,
            monitor: file.monitor,
            metrics: file.metrics,
            report: file.report,
        };
        let node = NodePolicy::check(tables, names_people, text)?;
        let gpus = &node.gpus;
        // A key of the top that is written below this table is found here. The classes would miss it.
        let messages = Messages::check(file.messages, text)?;
        let tables = Tables {
            default_class: file.default_class,
            defaults: file.defaults,
            classes: file.classes,
            users: file.users,
        };
        let classes = Classes::check(tables, gpus, text)?;
        let reservables = if file.reservable.is_empty() {
            Vec::new()
        } else {
            // Only here, since it looks for the machine's time zone.
            reservable::check(file.reservable, gpus, &zone(), text)?
        };
        let mps = file.legacy.check(gpus);
        let gates = Gates::check(file.gate, &classes, gpus, text)?;
        if mps.as_ref().is_ok_and(Option::is_some) {
            gates.refuse_mps()?;
        }
        let routes = routes::check(file.route, gpus, text)?;
        let limits = |standing: &ClassLimits| standing.quota != Quota::default();
        Ok(Self {
            looks_at_people: classes.standings().len() > 1
                || classes.standings().iter().any(limits)
                || !gates.list().is_empty()
                || !reservables.is_empty()
                || !routes.is_empty(),
            slurm_words: file.slurm.check().map_err(|(span, message)| {
                PolicyError::new("[slurm]", line_of(text, &span), &message)
            })?,
            messages,
            gates,
            mps: mps.map_err(|(span, message)| {
                PolicyError::new("[legacy.mps]", line_of(text, &span), message)
            })?,
            routes,
            nodes: inventory::check(file.nodes, gpus, &file.plain_types, &reservables, text)?,
            partitions: Arc::default(),
            weights: Weights::from_gpus(gpus),
            node,
            classes,
            reservables,
            plain_types: file.plain_types,
            raw_shards: file.raw_shards,
            limit_notice: file.limit_notice,
            placement: file.placement.shards,
        })
    }

    /// True unless all nodes with GPUs of this type are without shards of it.
    pub(crate) fn shares(&self, kind: &str) -> bool {
        let is_mig = |kind: &str| self.gpu(kind).is_some_and(GpuType::is_mig);
        inventory::shares(&self.nodes, kind, is_mig)
    }

    /// The site's own words for settings of softmig.conf.
    pub fn slurm_words(&self) -> &SlurmWords {
        &self.slurm_words
    }

    /// The number of its tables: an administrator sees in a log that tables were lost.
    pub fn summary(&self) -> String {
        let tables = [
            (self.gpus().count(), "[gpu.*]"),
            (self.classes.class_names().count(), "[classes.*]"),
            (self.classes.user_tables(), "[users.*]"),
            (self.gates().len(), "[[gate]]"),
            (self.reservables.len(), "[[reservable]]"),
            (self.routes.len(), "[[route]]"),
            (self.nodes.len(), "[[nodes]]"),
        ];
        let counted = tables.map(|(count, table)| format!("{count} {table}"));
        counted.join(", ")
    }

    /// The part that nodes read.
    pub fn node(&self) -> &NodePolicy {
        &self.node
    }

    /// The type of that exact name; Slurm's types are case sensitive.
    pub fn gpu(&self, name: &str) -> Option<&GpuType> {
        self.node.gpu(name)
    }

    /// All types, by name.
    pub fn gpus(&self) -> impl Iterator<Item = &GpuType> {
        self.node.gpus()
    }

    /// The site's own line to a refusal.
    pub fn message(&self, code: Code) -> Option<&str> {
        self.messages.for_code(code)
    }

    /// Limits in order: users without a class, classes, single users.
    pub fn standings(&self) -> &[ClassLimits] {
        self.classes.standings()
    }

    /// The limits of users that no rule names.
    pub fn standing_of_others(&self) -> Option<&ClassLimits> {
        self.classes.standing_of_others()
    }

    /// For how long a job's GPU may be unused before the job is idle. It depends on the user's name, the job's account
    /// and the user's primary group, as far as they are known; `None` if the job never is.
    pub fn idle_after(
        &self,
        user: Option<&str>,
        account: Option<&str>,
        group: Option<u32>,
    ) -> Option<Duration> {
        self.classes.idle_after(user, account, group)
    }

    /// The members of a class by name, and by Slurm account.
    pub fn members(&self, class: &str) -> (&[String], &[String]) {
        self.classes.members(class)
    }

    /// True if a class has members by their primary group.
    pub fn has_groups(&self, class: &str) -> bool {
        self.classes.has_groups(class)
    }

    /// The weight of a whole GPU in shards.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// True if softmig puts jobs into this QOS.
    pub fn is_qos(&self, name: &str) -> bool {
        self.classes.is_qos(name)
    }

    /// True if any rule depends on the submitter or on the place where the job will run.
    pub fn looks_at_people(&self) -> bool {
        self.looks_at_people
    }

    /// True if any rule names users.
    pub fn names_users(&self) -> bool {
        let mut holders = self.reservables.iter().map(Reservable::holder);
        self.classes.names_users() || holders.any(|holder| matches!(holder, Holder::User(_)))
    }

    /// True if any class names primary groups.
    pub fn names_groups(&self) -> bool {
        self.classes.names_groups()
    }

    /// The Slurm accounts that rules name, in lower case.
    pub fn accounts(&self) -> BTreeSet<String> {
        let holders = self
            .reservables
            .iter()
            .filter_map(|one| match one.holder() {
                Holder::Account(name) => Some(name.to_lowercase()),
                Holder::User(_) => None,
            });
        let gates = self.gates.list().iter().flat_map(Gate::accounts);
        let classes = self.classes.accounts();
        holders.chain(gates.chain(classes).cloned()).collect()
    }

    /// True if any rule names partitions.
    pub fn names_partitions(&self) -> bool {
        self.gates
            .list()
            .iter()
            .any(|gate| !gate.partitions().is_empty())
    }

    /// The gates.
    pub fn gates(&self) -> &[Gate] {
        self.gates.list()
    }

    /// The gates with the expressions that open them.
    pub(crate) fn gate_set(&self) -> &Gates {
        &self.gates
    }

    /// True if a reservation of that name opens the gate of that number.
    pub fn gate_opens(&self, gate: usize, reservation: &str) -> bool {
        self.gates.opens(gate, reservation)
    }

    /// The reserved GPUs.
    pub fn reservables(&self) -> &[Reservable] {
        &self.reservables
    }

    /// True if this is the type of a reserved GPU.
    pub fn is_reservable(&self, kind: &str) -> bool {
        self.reservables.iter().any(|one| one.kind() == kind)
    }

    /// True for the type of a GPU whose last reservation is not over. Afterwards all users may have it.
    pub fn is_reserved(&self, kind: &str, now: i64) -> bool {
        let mut all = self.reservables.iter();
        all.any(|one| one.kind() == kind && one.window(now) != Window::Over)
    }

    /// The type of a reservation's GPUs without the reservation.
    pub fn of_reservable(&self, kind: &str) -> Option<&GpuType> {
        let one = self.reservables.iter().find(|one| one.kind() == kind)?;
        self.gpu(one.base_type())
    }

    /// True if a request names the type of a reserved GPU.
    pub fn asks_for_reserved(&self, request: &Request) -> bool {
        let mut items = request.tres().flat_map(|(_, text)| items(text));
        items.any(|(_, item)| match item {
            Item::Gpu(gres) => gres.kind.is_some_and(|kind| self.is_reservable(kind)),
            Item::Malformed(_) | Item::Other(_) => false,
        })
    }

    /// The nodes with reserved GPUs; `None` without an inventory.
    pub fn nodes_with_reserved_gpus(&self, now: i64) -> Option<String> {
        let has_reserved = |nodes: &&Nodes| {
            let mut gpus = nodes.gpus().iter();
            gpus.any(|gpus| self.is_reserved(&gpus.kind, now))
        };
        let names: Vec<&str> = self
            .nodes
            .iter()
            .filter(has_reserved)
            .map(Nodes::names)
            .collect();
        (!names.is_empty()).then(|| names.join(","))
    }

    /// The meaning of units of mps, if the policy has one.
    pub fn mps(&self) -> Option<&Mps> {
        self.mps.as_ref()
    }

    /// The partitions of slice jobs.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The inventory.
    pub fn nodes(&self) -> &[Nodes] {
        &self.nodes
    }

    /// True if no node of these partitions, with commas between, has GPUs; false where that is not known, as without an
    /// inventory or for more than 64 partitions. `nodes_of` has a partition's nodes as Slurm writes them.
    ///
    /// ```
    /// use softmig_policy::Policy;
    /// let gpu = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
    /// let nodes = "[[nodes]]\nnames = \"gpu[01-04]\"\ngpus = [\"l40s:4\"]\n";
    /// let policy = Policy::parse(&format!("{gpu}{nodes}")).unwrap();
    /// let nodes_of = |name: &str| Some(if name == "cpu" { "n[1-9]" } else { "gpu[01-02]" }.to_string());
    /// assert!(policy.are_without_gpus("cpu", nodes_of));
    /// assert!(!policy.are_without_gpus("cpu,gpu", nodes_of));
    /// ```
    pub fn are_without_gpus(
        &self,
        partitions: &str,
        nodes_of: impl Fn(&str) -> Option<String>,
    ) -> bool {
        // After a panic under the lock, what is known is still right.
        let mut known = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.are_without_gpus(&self.nodes, partitions, nodes_of, hostlist::expand)
    }

    /// The class limits of a user. `Err` when they depend on a fact that is not known here.
    pub(crate) fn standing(
        &self,
        user: Option<&str>,
        account: Result<Option<&str>, Unknown>,
        group: Option<u32>,
    ) -> Result<Option<&ClassLimits>, Unknown> {
        self.classes.standing(user, account, group)
    }

    /// The class limits of a user, as far as they can be told from this.
    pub fn standing_of(
        &self,
        user: &str,
        account: &str,
        group: Option<u32>,
    ) -> Option<&ClassLimits> {
        self.standing(Some(user), Ok(Some(account)), group).ok()?
    }

    /// True if a node may have GPUs of several types.
    pub(crate) fn may_mix_types(&self) -> bool {
        if self.nodes.is_empty() {
            let others = self.reservables.len() + self.plain_types.len();
            return self.gpus().count() + others > 1;
        }
        self.nodes.iter().any(Nodes::is_mixed)
    }

    /// Types that are never cut.
    pub fn plain_types(&self) -> &[String] {
        &self.plain_types
    }

    /// True if a type whose name ends like a slice is listed as a plain type.
    pub fn is_plain_type(&self, name: &str) -> bool {
        self.gpu(name).is_some() || self.plain_types.iter().any(|plain| plain == name)
    }

    /// The known type that a misspelt one most likely means.
    pub fn nearest_type(&self, name: &str) -> Option<&GpuType> {
        self.gpu(nearest(name, self.gpus().map(GpuType::name))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::node_policy::OnUnknown;

    fn error(text: &str) -> String {
        Policy::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_policy_offers_nothing_and_lifts_nothing() {
        let policy = Policy::parse("").unwrap();
        assert_eq!(policy.gpus().count(), 0);
        assert_eq!(policy.raw_shards, RawShards::Refuse);
        assert_eq!(policy.node.on_unknown, OnUnknown::Smallest);
    }

    #[test]
    fn every_divisor_is_on_offer_unless_the_table_says_otherwise() {
        let policy = Policy::parse(
            "[gpu.a]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 12\n\
             [gpu.b]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 12\nslices = [6, 2, 2]\n",
        )
        .unwrap();
        assert_eq!(policy.gpu("a").unwrap().slices(), [2, 3, 4, 6, 12]);
        assert_eq!(policy.gpu("b").unwrap().slices(), [2, 6]);
        assert_eq!(policy.gpu("b").unwrap().slice(4), None);
        assert_eq!(policy.gpu("b").unwrap().slice_of_shards(2), Some(6));
        assert_eq!(policy.gpu("b").unwrap().slice_of_shards(3), None);
    }

    #[test]
    fn a_missing_or_senseless_figure_is_an_error() {
        let gpu = |body: &str| error(&format!("# first line\n[gpu.x]\n{body}"));
        for (body, expected) in [
            (
                "memory_mib = 1\nreserved_mib = 0\n",
                "line 2: [gpu.x]: shards is missing",
            ),
            (
                "memory_mib = 46\nreserved_mib = 0\nshards = 4\n",
                "line 2: [gpu.x]: memory_mib = 46 is less than any GPU has: it counts MiB, and 'softmig probe' prints it",
            ),
            (
                "memory_mib = 47173632\nreserved_mib = 0\nshards = 4\n",
                "line 2: [gpu.x]: memory_mib = 47173632 is more than any GPU has: it counts MiB, and 'softmig probe' prints it",
            ),
            (
                "memory_mib = 10000\nreserved_mib = 10000\nshards = 4\n",
                "line 2: [gpu.x]: reserved_mib = 10000 leaves nothing of memory_mib = 10000",
            ),
            (
                "memory_mib = 10000\nreserved_mib = 0\nshards = 0\n",
                "line 2: [gpu.x]: shards = 0 is not from 1 to 100 (a shard is at least 1 % of a GPU)",
            ),
            (
                "memory_mib = 10000\nreserved_mib = 9997\nshards = 4\n",
                "line 2: [gpu.x]: 3 MiB in 4 shards leaves less than 1 MiB for one",
            ),
            (
                "memory_mib = 10000\nreserved_mib = 0\nshards = 8\nslices = [3]\n",
                "line 2: [gpu.x]: slices has 3, which does not divide 8 shards; valid sizes are 2, 4, 8",
            ),
        ] {
            assert_eq!(gpu(body), expected);
        }
    }
}
