//! Catches every failure of a decision. Before 26.05, Slurm takes an error for consent.

use crate::job_description::JobDescription;
use crate::slurm::{self, Slurm};
use mlua::prelude::*;
use softmig_policy::{Refusal, Verdict, decide_without_policy};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `decision`. If it fails, a request for a slice is refused and all else passes.
pub(crate) fn guarded(
    slurm: &Slurm,
    job: &LuaTable,
    decision: impl FnOnce() -> LuaResult<i32>,
) -> i32 {
    let failure = match catch_unwind(AssertUnwindSafe(decision)) {
        Ok(Ok(code)) => return code,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "internal error (a panic)".to_string(),
    };
    slurm.log_error(&format!("softmig: no decision: {failure}"));
    refuse_slice(slurm, job)
}

/// The code that refuses a request for a slice, or the one that lets anything else pass.
pub(crate) fn refuse_slice(slurm: &Slurm, job: &LuaTable) -> i32 {
    let is_slice = catch_unwind(AssertUnwindSafe(|| {
        let job = JobDescription::default().read_gpus(slurm, job)?;
        let verdict = decide_without_policy(&job.request());
        LuaResult::Ok(matches!(verdict, Verdict::Refused(_)))
    }));
    // A request that cannot even be looked at may be a slice.
    if matches!(is_slice, Ok(Ok(false))) {
        return slurm::SUCCESS;
    }
    slurm.log_user(&Refusal::internal().to_string());
    slurm::INVALID_GRES
}
