import dask_jobqueue
import distributed
import who

if __name__ == "__main__":
    with dask_jobqueue.SLURMCluster(cores=1, memory="1GB", python="python3", job_extra_directives=["--gres=gpu:l40s.4:1"], scheduler_options={"dashboard_address": None}) as cluster, distributed.Client(cluster) as client:
        cluster.scale(jobs=1)
        client.wait_for_workers(1, timeout=60)
        print(*client.run(who.line).values(), sep="\n", flush=True)
