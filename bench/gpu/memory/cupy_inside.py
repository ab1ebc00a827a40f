"""CuPy below a limit: its own pool, and the driver's."""
import json
import cupy

MIB = 1 << 20
said = {}
x = cupy.arange(1 << 20, dtype=cupy.float32)
said["sum"] = float(x.sum())
free, total = cupy.cuda.runtime.memGetInfo()
said["total_mib"] = total // MIB
for name, allocator in (("own pool", cupy.get_default_memory_pool().malloc), ("driver's pool", cupy.cuda.MemoryAsyncPool().malloc if hasattr(cupy.cuda, "MemoryAsyncPool") else None)):
    if allocator is None:
        continue
    cupy.cuda.set_allocator(allocator)
    held, error = [], None
    try:
        while len(held) < 96:
            held.append(cupy.empty(64 * MIB, dtype=cupy.uint8))
    except cupy.cuda.memory.OutOfMemoryError as refused:
        error = str(refused)[:120]
    except Exception as other:
        error = f"{type(other).__name__}: {other}"[:160]
    said[name] = {"got_mib": len(held) * 64, "error": error}
    del held
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.cuda.Device().synchronize()
print(json.dumps(said))
