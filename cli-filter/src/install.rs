//! Puts softmig's function around the one that the site's own cli_filter.lua defines.

use crate::options;
use mlua::prelude::*;
use softmig_policy::{Context, Policy, Refusal, Submitter, Verdict, decide, now, one_gpu_as_slice};
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
        // If this fails, job_submit still decides. Slurm refuses a step with a slice.
        let answer = catch_unwind(AssertUnwindSafe(|| pre_submit(lua, &options)));
        let failure = match answer {
            Ok(Ok(code)) => return Ok(code),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "internal error (a panic)".to_string(),
        };
        log(
            lua,
            "log_debug",
            &format!("softmig: no decision here: {failure}"),
        )
        .ok();
        Ok(SUCCESS)
    })?;
    lua.load(AROUND).set_name("=softmig").call(ours)
}

fn pre_submit(lua: &Lua, table: &LuaTable) -> LuaResult<i32> {
    let slice = options::slice_of_job(table);
    if slice.is_some()
        && let Some((option, variable)) = options::per_gpu_in_step(table)
    {
        return refuse(lua, &Refusal::per_gpu_in_step(option, variable));
    }
    let Some(typed) = options::read(table) else {
        return Ok(SUCCESS);
    };
    let of_slice = |slice| one_gpu_as_slice(&typed, slice);
    let request = slice.as_ref().and_then(of_slice).unwrap_or(typed);
    // A login node may have no policy; slurmctld has.
    let text = std::fs::read_to_string(Policy::PATH).map_err(LuaError::external)?;
    let policy = Policy::parse_for_client(&text).map_err(LuaError::external)?;
    let context = Context {
        submitter: match policy.looks_at_people() {
            true => options::submitter(table),
            false => Submitter::default(),
        },
        now: now(),
        ..Context::default()
    };
    let verdict = decide(&policy, &request, &context);
    // In a slice Slurm would only say that the request is invalid.
    if let Some(slice) = slice {
        let shards = u64::from(slice.share().shards());
        let is_other = match &verdict {
            Verdict::Unchanged { tag, .. } => tag.is_some(),
            Verdict::Granted(grant) => shards != u64::from(grant.limits.share().shards()),
            Verdict::Refused(_) => false,
        };
        if is_other {
            let refusal = Refusal::step_in_slice(&policy, &request, shards);
            return refuse(lua, &refusal.at(&policy));
        }
    }
    match verdict {
        Verdict::Unchanged { .. } => Ok(SUCCESS),
        Verdict::Granted(grant) => match options::per_gpu(table) {
            // sbatch and salloc send it as it is, and job_submit converts it.
            Some(_) if !options::is_srun(table) => Ok(SUCCESS),
            // srun requests its step with the same option, which job_submit does not see.
            Some(option) => {
                let refusal = Refusal::per_gpu_with_srun(&grant.asked, &grant.request, option);
                refuse(lua, &refusal.at(&policy))
            }
            None => {
                options::write(table, &grant.request)?;
                if !options::is_step(table) {
                    options::write_typed(table, &grant.asked)?;
                }
                Ok(SUCCESS)
            }
        },
        Verdict::Refused(refusal) => refuse(lua, &refusal),
    }
}

fn refuse(lua: &Lua, refusal: &Refusal) -> LuaResult<i32> {
    for line in refusal.to_string().lines() {
        log(lua, "log_error", line)?;
    }
    Ok(ERROR)
}

/// The text is an argument, never the format: these functions run it through string.format.
fn log(lua: &Lua, function: &str, line: &str) -> LuaResult<()> {
    let slurm: LuaTable = lua.globals().get("slurm")?;
    slurm.get::<LuaFunction>(function)?.call(("%s", line))
}
