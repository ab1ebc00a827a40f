//! Lua module that gives sbatch, salloc and srun the policy's decision early.
