import submitit
import who

for options in [{"slurm_gres": "gpu:l40s.4:1"}, {"slurm_gpus_per_node": "l40s.4:1"}, {"slurm_gres": "gpu:l40s.12g:1"}]:
    executor = submitit.AutoExecutor(folder="submitit")
    executor.update_parameters(timeout_min=2, **options)
    print(executor.submit(who.line).result(), flush=True)
