import parsl
import who
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider

for launcher in [{}, {"launcher": SrunLauncher()}]:
    provider = SlurmProvider(scheduler_options="#SBATCH --gres=gpu:l40s.4:1", walltime="00:02:00", cores_per_node=1, exclusive=False, max_blocks=1, worker_init="export PYTHONPATH=$PYTHONPATH PATH=$PATH", **launcher)
    executor = HighThroughputExecutor(label="slices", address="127.0.0.1", max_workers_per_node=1, provider=provider)
    with parsl.load(Config(executors=[executor], strategy="none")):
        print(parsl.python_app(who.line)().result(), flush=True)
    parsl.clear()
