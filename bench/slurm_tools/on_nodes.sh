#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
#SBATCH --gres=gpu:l40s.4:1
#SBATCH --cpus-per-task=2 --mem=3G --output=said

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head --lines=1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
srun bash -c 'torchrun --nnodes=$SLURM_NNODES --node-rank=$SLURM_NODEID --nproc-per-node=gpu \
    --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT /opt/cases/who.py'
