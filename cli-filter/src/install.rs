//! Puts softmig's function around the one that the site's own cli_filter.lua defines.

use crate::options;
use mlua::prelude::*;
use softmig_policy::{Context, Policy, Refusal, Verdict, decide};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The site's function runs first. Slurm also wants the other two functions to exist.
const AROUND: &str = r#"
local ours = ...
local site = slurm_cli_pre_submit
function slurm_cli_pre_submit(options, offset)
    if site then
        local code = site(options, offset)
        if code ~= nil and code ~= 0 then
            return code
        end
    end
    return ours(options)
end
slurm_cli_setup_defaults = slurm_cli_setup_defaults or function() return 0 end
slurm_cli_post_submit = slurm_cli_post_submit or function() return 0 end
"#;

const SUCCESS: i32 = 0;
/// `slurm.ERROR`.
const ERROR: i32 = -1;

/// Replaces the global `slurm_cli_pre_submit`.
pub(crate) fn install(lua: &Lua) -> LuaResult<()> {
    let ours = lua.create_function(|lua, options: LuaTable| {
        // What fails here is decided by job_submit all the same.
        let answer = catch_unwind(AssertUnwindSafe(|| pre_submit(lua, &options)));
        Ok(match answer {
            Ok(Ok(code)) => code,
            Ok(Err(_)) | Err(_) => SUCCESS,
        })
    })?;
    lua.load(AROUND).set_name("=softmig").call(ours)
}

fn pre_submit(lua: &Lua, table: &LuaTable) -> LuaResult<i32> {
    if options::is_step(table)
        && let Some(variable) = options::inherited_per_gpu(table)
    {
        return refuse(lua, &Refusal::per_gpu_in_step(variable));
    }
    let Some(request) = options::read(table) else {
        return Ok(SUCCESS);
    };
    // A login node may have no policy; slurmctld has.
    let policy = std::fs::read_to_string(Policy::PATH)
        .ok()
        .and_then(|text| Policy::parse(&text).ok());
    let Some(policy) = policy else {
        return Ok(SUCCESS);
    };
    match decide(&policy, &request, &Context::default()) {
        Verdict::Unchanged { .. } => Ok(SUCCESS),
        Verdict::Granted(grant) => match options::per_gpu(table) {
            // sbatch and salloc send it as it is, and job_submit makes figures of the job of it.
            Some(_) if !options::is_srun(table) => Ok(SUCCESS),
            // srun asks for its step in the same words, which job_submit does not see.
            Some(option) if !options::is_step(table) => {
                refuse(lua, &Refusal::per_gpu_with_srun(&grant, option))
            }
            _ => {
                options::write(table, &grant.request)?;
                Ok(SUCCESS)
            }
        },
        Verdict::Refused(refusal) => refuse(lua, &refusal),
    }
}

fn refuse(lua: &Lua, refusal: &Refusal) -> LuaResult<i32> {
    let slurm: LuaTable = lua.globals().get("slurm")?;
    let log_error: LuaFunction = slurm.get("log_error")?;
    for line in refusal.to_string().lines() {
        log_error.call::<()>(("%s", line))?;
    }
    Ok(ERROR)
}
