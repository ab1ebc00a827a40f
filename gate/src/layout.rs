//! Where the program finds in the kernel what it compares: offsets in this kernel's structures.

#![forbid(unsafe_code)]

use crate::btf::{Btf, BtfError};

/// Offsets of fields, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `task_struct.tgid`: the number of the process.
    pub(crate) tgid: i32,
    /// `task_struct.group_leader`: the process's first thread.
    pub(crate) leader: i32,
    /// `task_struct.start_time`: when that thread was made.
    pub(crate) start: i32,
    /// `task_struct.self_exec_id`: counts the programs that the process has executed.
    pub(crate) exec: i32,
    /// Its size: 8 from Linux 5.7 on, else 4.
    pub(crate) exec_size: i32,
    /// `task_struct.cgroups`: the process's control groups.
    pub(crate) groups: i32,
    /// `css_set.dfl_cgrp`: its group in the hierarchy of version 2.
    pub(crate) group: i32,
    /// Its states in hierarchies of version 1 by which Slurm knows jobs, in `css_set.subsys`.
    pub(crate) states: Vec<i32>,
    /// `cgroup.self`: the group's own state.
    pub(crate) own_state: i32,
    /// `cgroup.kn`: its folder.
    pub(crate) folder: i32,
    /// `cgroup_subsys_state.cgroup`: the group of a state.
    pub(crate) state_group: i32,
    /// `cgroup_subsys_state.parent`: the state of the group above.
    pub(crate) state_parent: i32,
    /// `kernfs_node.name`: the name of a folder.
    pub(crate) name: i32,
}

impl Layout {
    /// That of the kernel that this describes.
    pub fn find(btf: &Btf<'_>) -> Result<Self, BtfError> {
        let at = |structure, name| {
            let field = btf.field(structure, name)?;
            // Offsets of instructions are larger than those of any structure.
            i32::try_from(field.offset).map_err(|_| BtfError::Damaged)
        };
        let states = at("css_set", "subsys")?;
        let hierarchies = ["devices_cgrp_id", "freezer_cgrp_id"];
        let ids = hierarchies
            .into_iter()
            .filter_map(|id| btf.constant(id))
            // Kernels have far fewer.
            .filter_map(|id| i32::try_from(id).ok().filter(|id| *id < 64));
        let exec = btf.field("task_struct", "self_exec_id")?;
        let exec_size = match exec.size {
            4 => 4,
            8 => 8,
            _ => return Err(BtfError::Missing("task_struct.self_exec_id".into())),
        };
        Ok(Self {
            tgid: at("task_struct", "tgid")?,
            leader: at("task_struct", "group_leader")?,
            start: at("task_struct", "start_time")?,
            exec: at("task_struct", "self_exec_id")?,
            exec_size,
            groups: at("task_struct", "cgroups")?,
            group: at("css_set", "dfl_cgrp")?,
            states: ids.map(|id| states + id * 8).collect(),
            own_state: at("cgroup", "self")?,
            folder: at("cgroup", "kn")?,
            state_group: at("cgroup_subsys_state", "cgroup")?,
            state_parent: at("cgroup_subsys_state", "parent")?,
            name: at("kernfs_node", "name")?,
        })
    }
}
