//! Puts softmig's functions around those that the site's own job_submit.lua defines.

use crate::job_description::{NAMES, READERS};
use crate::slurm::Slurm;
use crate::{guard, modify, submit};
use mlua::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The site's function runs first, so that softmig decides on what will really be submitted.
///
/// An error in it goes on to Slurm, as it would without softmig. If the job asks for a slice, the job is refused instead: it
/// must not pass because a script failed half way.
const AROUND: &str = r#"
local site, ours, refuse_slice = ...
return function(...)
    if site then
        local ok, code = pcall(site, ...)
        if not ok then
            local refusal = refuse_slice(...)
            if refusal ~= 0 then
                slurm.log_error("%s", "softmig: the site's job_submit.lua failed: " .. tostring(code))
                return refusal
            end
            error(code, 0)
        end
        if code ~= nil and code ~= 0 then
            return code
        end
    end
    return ours(...)
end
"#;

/// Replaces the globals `slurm_job_submit` and `slurm_job_modify`.
pub(crate) fn install(lua: &Lua) -> LuaResult<()> {
    let slurm = Rc::new(Slurm::load(lua, READERS, NAMES)?);
    // The file that is good when slurmctld starts stays in force if it is broken before the first job.
    let at_start = catch_unwind(AssertUnwindSafe(|| submit::policy(&slurm)));
    if at_start.is_err() {
        slurm.log_error("softmig: internal error (a panic) while reading the policy");
    }
    let own = slurm.clone();
    let refuse_slice = lua.create_function(move |_, (job, _): (LuaTable, LuaMultiValue)| {
        Ok(guard::refuse_slice(&own, &job))
    })?;
    let own = slurm.clone();
    let ours = lua.create_function(
        move |_, (job, partitions, uid): (LuaTable, LuaValue, LuaValue)| {
            Ok(guard::guarded(&own, &job, || {
                submit::submit(&own, &job, &partitions, &uid)
            }))
        },
    )?;
    put_around(lua, "slurm_job_submit", ours, &refuse_slice)?;
    let ours = lua.create_function(
        move |_, (job, record, partitions, uid): (LuaTable, LuaTable, LuaValue, LuaValue)| {
            Ok(guard::guarded(&slurm, &job, || {
                modify::modify(&slurm, &job, &record, &partitions, &uid)
            }))
        },
    )?;
    put_around(lua, "slurm_job_modify", ours, &refuse_slice)
}

fn put_around(
    lua: &Lua,
    name: &str,
    ours: LuaFunction,
    refuse_slice: &LuaFunction,
) -> LuaResult<()> {
    let site: Option<LuaFunction> = lua.globals().get(name)?;
    let around: LuaFunction =
        lua.load(AROUND)
            .set_name("=softmig")
            .call((site, ours, refuse_slice))?;
    lua.globals().set(name, around)
}
