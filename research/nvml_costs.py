#!/usr/bin/env python3
"""On a machine with a GPU: the CPU time of NVML's calls, by the number of processes that have a context there.

    python3 research/nvml_costs.py --out FOLDER

Writes FOLDER/gpu-nvml-costs.json, which belongs to research/results: by call and number of processes the median of 20 calls in us.
No other program may use the GPU meanwhile. `length` asks for the length of a list alone.
"""
import ctypes
import json
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True

from facts import machine, options

# A process that has a context until its input ends.
HOLDER = """
import ctypes, sys
driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), 0)
print(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), flush=True)
sys.stdin.read()
"""
COUNTS = (0, 1, 8, 32)
CALLS, PAUSE = 20, 0.02
# Entries, each longer than NVML's own: nvmlProcessInfo_t and nvmlProcessUtilizationSample_t.
ENTRIES, ENTRY = 4096, 64


def calls():
    """What is timed, by name."""
    nvml, gpu, room = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.create_string_buffer(ENTRIES * ENTRY)
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)):
        sys.exit("no NVML")
    asked = {}
    for name in ("Compute", "Graphics", "MPSCompute"):
        function = getattr(nvml, f"nvmlDeviceGet{name}RunningProcesses_v3")
        asked[f"{name}, length"] = lambda function=function: function(gpu, ctypes.byref(ctypes.c_uint(0)), None)
        asked[name] = lambda function=function: function(gpu, ctypes.byref(ctypes.c_uint(ENTRIES)), room)
    asked["ProcessUtilization"] = lambda: nvml.nvmlDeviceGetProcessUtilization(gpu, room, ctypes.byref(ctypes.c_uint(ENTRIES)), ctypes.c_ulonglong(0))
    asked["MigMode"] = lambda: nvml.nvmlDeviceGetMigMode(gpu, ctypes.byref(ctypes.c_uint()), ctypes.byref(ctypes.c_uint()))
    asked["MemoryInfo"] = lambda: nvml.nvmlDeviceGetMemoryInfo(gpu, room)
    return asked


def microseconds(call):
    taken = []
    for _ in range(CALLS):
        begun = time.process_time_ns()
        call()
        taken.append((time.process_time_ns() - begun) / 1e3)
        time.sleep(PAUSE)
    return round(statistics.median(taken))


def main():
    out, asked, holders, found = options().out, calls(), [], {}
    for count in COUNTS:
        while len(holders) < count:
            holders.append(subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            if holders[-1].stdout.readline().strip() != "0":
                sys.exit("no context")
        time.sleep(1)
        for name, call in asked.items():
            found.setdefault(name, {})[count] = microseconds(call)
    for holder in holders:
        holder.communicate()
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu-nvml-costs.json").write_text(json.dumps({"machine": machine(), "cpu_us": found}, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
