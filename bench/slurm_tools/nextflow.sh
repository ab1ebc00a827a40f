#!/bin/bash
#SBATCH -J nf-slice
#SBATCH -o .command.log
#SBATCH --no-requeue
#SBATCH --signal B:USR2@30
#SBATCH -t 00:02:00
#SBATCH --mem 500M
#SBATCH --gres=gpu:l40s.4:1
python3 /opt/cases/who.py
