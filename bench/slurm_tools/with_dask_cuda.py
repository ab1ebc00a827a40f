import dask_cuda
import distributed
import who

if __name__ == "__main__":
    with dask_cuda.LocalCUDACluster(dashboard_address=None) as cluster, distributed.Client(cluster) as client:
        print(*client.run(who.line).values(), sep="\n", flush=True)
