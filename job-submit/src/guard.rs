//! Nothing that fails here reaches Slurm: before 26.05 it takes an error for consent.

use crate::{fields, slurm};
use mlua::prelude::*;
use softmig_policy::{Refusal, Verdict, decide_without_policy};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `decision`. If it fails, a request for a slice is refused and all else passes.
pub(crate) fn guarded(lua: &Lua, job: &LuaTable, decision: impl FnOnce() -> LuaResult<i32>) -> i32 {
    let failure = match catch_unwind(AssertUnwindSafe(decision)) {
        Ok(Ok(code)) => return code,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "internal error (a panic)".to_string(),
    };
    slurm::log_error(lua, &format!("softmig: no decision: {failure}"));
    refuse_slice(lua, job)
}

/// The code that refuses a request for a slice, or the one that lets anything else pass.
pub(crate) fn refuse_slice(lua: &Lua, job: &LuaTable) -> i32 {
    let is_slice = catch_unwind(AssertUnwindSafe(|| {
        let request = fields::read_gpus(job);
        matches!(decide_without_policy(&request), Verdict::Refused(_))
    }));
    // A request that cannot even be looked at may be a slice.
    if is_slice.unwrap_or(true) {
        slurm::log_user(lua, &Refusal::internal().to_string());
        slurm::INVALID_GRES
    } else {
        slurm::SUCCESS
    }
}
