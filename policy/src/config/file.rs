//! policy.toml as it is written, and the errors of one that cannot be read.

use crate::config::choices::{Placement, RawShards};
use crate::config::error::{PolicyError, read};
use crate::config::gates::GateTable;
use crate::config::inventory::NodesTable;
use crate::config::legacy_mps::LegacyTable;
use crate::config::messages;
use crate::config::metrics::MetricsTable;
use crate::config::monitor::MonitorTable;
use crate::config::node_policy::{GpuTables, NodeTable, TagTable};
use crate::config::quota::{ClassTable, DefaultsTable, UserTable};
use crate::config::report::Report;
use crate::config::reservable::ReservableTable;
use crate::config::routes::RouteTable;
use crate::config::slurm_words::SlurmTable;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// The whole. Every key is described in conf/policy.toml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(default)]
    pub(crate) raw_shards: RawShards,
    #[serde(default)]
    pub(crate) plain_types: Vec<String>,
    #[serde(default)]
    pub(crate) limit_notice: bool,
    pub(crate) default_class: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) tag: TagTable,
    #[serde(default)]
    pub(crate) node: NodeTable,
    #[serde(default)]
    pub(crate) monitor: MonitorTable,
    #[serde(default)]
    pub(crate) metrics: MetricsTable,
    #[serde(default)]
    pub(crate) report: Report,
    #[serde(default)]
    pub(crate) placement: PlacementTable,
    #[serde(default)]
    pub(crate) slurm: SlurmTable,
    #[serde(default)]
    pub(crate) messages: messages::Table,
    #[serde(default)]
    pub(crate) gpu: GpuTables,
    pub(crate) defaults: Option<Spanned<DefaultsTable>>,
    #[serde(default)]
    pub(crate) classes: BTreeMap<String, Spanned<ClassTable>>,
    #[serde(default)]
    pub(crate) users: BTreeMap<String, Spanned<UserTable>>,
    #[serde(default)]
    pub(crate) gate: Vec<Spanned<GateTable>>,
    #[serde(default)]
    pub(crate) reservable: Vec<Spanned<ReservableTable>>,
    #[serde(default)]
    pub(crate) legacy: LegacyTable,
    #[serde(default)]
    pub(crate) route: Vec<Spanned<RouteTable>>,
    #[serde(default)]
    pub(crate) nodes: Vec<Spanned<NodesTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlacementTable {
    #[serde(default)]
    pub(crate) shards: Placement,
}

impl File {
    /// Whether a rule may depend on who submits a job.
    pub(crate) fn names_people(&self) -> bool {
        self.defaults.is_some()
            || !self.classes.is_empty()
            || !self.users.is_empty()
            || !self.gate.is_empty()
            || !self.reservable.is_empty()
    }

    /// Reads all of it.
    pub(crate) fn read(text: &str) -> Result<Self, PolicyError> {
        read(text)
    }
}
