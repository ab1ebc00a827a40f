//! The Lua module that slurmctld's job_submit calls: reads a job, asks the policy, writes the answer into the job.
//!
//! conf/job_submit.lua loads it with two lines. It has no rule of its own: `job_description` reads Slurm's table into a
//! struct and writes what changed back, `submit` and `modify` carry out the decision on that struct, `marks` keeps the tag
//! that the prolog reads, and `store` and `last_good` have the policy. `guard` catches every error: Slurm would let the job
//! pass as it came.

#![forbid(unsafe_code)]

mod guard;
mod install;
mod job_description;
mod last_good;
mod marks;
mod modify;
mod slurm;
mod store;
mod submit;
mod submitter;
mod written;

use mlua::prelude::*;

/// `luaopen_softmig_job_submit`: `install()` puts the functions around the site's own.
#[mlua::lua_module]
fn softmig_job_submit(lua: &Lua) -> LuaResult<LuaTable> {
    let module = lua.create_table()?;
    module.set(
        "install",
        lua.create_function(|lua, ()| install::install(lua))?,
    )?;
    Ok(module)
}
