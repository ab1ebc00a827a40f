"""CuPy: pools, kernels and NVRTC, whose results must be the same with and without the hook."""
import time
import cupy

print("total", cupy.cuda.runtime.memGetInfo()[1])
kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * 2 + 1", "twice")
x = cupy.arange(1 << 20, dtype=cupy.float32)
y = kernel(x)
cupy.cuda.Device().synchronize()
start = time.perf_counter()
for _ in range(2000):
    y = kernel(x)
cupy.cuda.Device().synchronize()
print("time step_ns %.0f" % ((time.perf_counter() - start) / 2000 * 1e9))
print("sum", float(y.sum()), "pool", cupy.get_default_memory_pool().total_bytes())
