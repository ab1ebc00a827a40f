//! Puts softmig's functions around those that the site's own job_submit.lua defines.

use crate::{guard, modify, submit};
use mlua::prelude::*;

/// The site's function runs first, so that softmig decides on what will really be submitted.
///
/// An error in it is not softmig's to swallow: it goes on to Slurm as it would without softmig, unless the job asks
/// for a slice, which must not slip by a script that failed half way.
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
    let refuse_slice = lua.create_function(|lua, (job, _): (LuaTable, LuaMultiValue)| {
        Ok(guard::refuse_slice(lua, &job))
    })?;
    let ours = lua.create_function(
        |lua, (job, partitions, uid): (LuaTable, LuaValue, LuaValue)| {
            Ok(guard::guarded(lua, &job, || {
                submit::submit(lua, &job, &partitions, &uid)
            }))
        },
    )?;
    put_around(lua, "slurm_job_submit", ours, &refuse_slice)?;
    let ours = lua.create_function(
        |lua, (job, record, _parts, uid): (LuaTable, LuaTable, LuaValue, LuaValue)| {
            Ok(guard::guarded(lua, &job, || {
                modify::modify(lua, &job, &record, &uid)
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
