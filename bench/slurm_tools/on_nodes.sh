#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
#SBATCH --gres=gpu:l40s.4:1
#SBATCH --cpus-per-task=2 --mem=3G --output=said

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head --lines=1)
srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node=gpu --rdzv-backend=c10d \
    --rdzv-endpoint="$first:$((20000 + SLURM_JOB_ID % 20000))" --rdzv-id="$SLURM_JOB_ID" /opt/cases/who.py
