//! Lua module that answers Slurm's job_submit with the policy's decision.
