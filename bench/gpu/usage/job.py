"""A job: job.py FOLDER NAME PROGRAM MIB REFUSED. It takes so much memory, has so many allocations refused, and works when it is told to.

Says what it has in FOLDER/NAME.json, waits for FOLDER/go with the start and the works by name, and says there what it launched.
It ends when FOLDER/end is there.
"""
import ctypes
import json
import pathlib
import subprocess
import sys
import time

MIB = 1 << 20
REFUSED = 2
# Far more than any slice: each try is refused whole.
TOO_LARGE = 200 << 30


def main(folder, name, program, mib, refused):
    folder, kept = pathlib.Path(folder), {}

    def tell(**found):
        kept.update(found)
        new = folder / f"{name}.new"
        new.write_text(json.dumps(kept))
        new.rename(folder / f"{name}.json")

    driver = ctypes.CDLL("libcuda.so.1")
    device, context, at = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    codes = [driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), 0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), driver.cuCtxSetCurrent(context)]
    codes.append(driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(int(mib) * MIB)))
    tries = [driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(TOO_LARGE)) for _ in range(int(refused))]
    worker = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    begun = json.loads(worker.stdout.readline())
    tell(codes=codes, held_bytes=int(mib) * MIB, refused=tries.count(REFUSED), refused_largest_bytes=TOO_LARGE if tries else 0, begun=begun, started=time.time())
    if how := wait(folder / "go"):
        mode, rounds, us, n = how["works"][name]
        if mode != "none":
            worker.stdin.write(f"run {mode} {rounds} {us} {how['seconds']} {how['start'] * 1e9:.0f} {n}\n")
            worker.stdin.flush()
            lines = map(json.loads, worker.stdout)
            said = next(line for line in lines if "ready" not in line)
            tell(launched=said["launched"], finished=said["finished"], drained_ms=said["drained_ms"], by=said["by"])
        else:
            time.sleep(max(0, how["start"] + how["seconds"] - time.monotonic()))
        tell(done=True)
    wait(folder / "end")
    # The line at the job's end comes when none of its processes is left.
    worker.stdin.close()
    worker.wait()


def wait(path):
    """The file's words, once it is there; five minutes at most."""
    end = time.monotonic() + 300
    while not path.exists():
        if time.monotonic() > end:
            raise SystemExit(f"{path} did not come")
        time.sleep(0.01)
    return json.loads(path.read_text())


main(*sys.argv[1:])
