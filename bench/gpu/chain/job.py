"""What jobs run. `view`: what of the GPU a process sees. `run`: keeps the GPU busy, then takes all the memory that it gets.

    job.py view NVIDIA_SMI
    job.py run NAME FOLDER PROGRAM

A run tells what it found in FOLDER/NAME.json and waits for FOLDER/go-N between its parts, so that several do the same at
the same time. Without PyTorch it uses the driver alone, and PROGRAM for the work.
"""
import ctypes
import json
import pathlib
import subprocess
import sys
import time

MIB = 1 << 20
# Steps that a program is ahead of the GPU, and what comes before it has settled, in seconds.
AHEAD, SETTLED = 16, 1.0


def view(smi):
    """By the driver, by nvidia-smi, and which devices can be opened."""
    driver = ctypes.CDLL("libcuda.so.1")
    count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    free, total, whole = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
    codes = [driver.cuInit(0), driver.cuDeviceGetCount(ctypes.byref(count))]
    if not any(codes):
        codes += [driver.cuDeviceGet(ctypes.byref(device), 0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), driver.cuCtxSetCurrent(context)]
        codes += [driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), driver.cuDeviceTotalMem_v2(ctypes.byref(whole), device)]
    asked = subprocess.run([smi, "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True)
    opened = {}
    for path in sorted(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        try:
            open(path, "rb").close()
            opened[path.name] = "open"
        except OSError as error:
            opened[path.name] = error.strerror
    print(json.dumps({"codes": codes, "gpus": count.value, "cuda_total": total.value, "cuda_free": free.value, "device_total": whole.value, "smi": asked.stdout.split("\n")[:-1], "devices": opened}), flush=True)


class Torch:
    """The same in PyTorch."""

    def __init__(self, program):
        import torch
        self.torch = torch
        self.one = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty_like(self.one)
        for _ in range(20):
            self.step()
        torch.cuda.synchronize()

    def step(self):
        self.torch.matmul(self.one, self.one, out=self.out)

    def about(self):
        cuda = self.torch.cuda
        return {"by": f"PyTorch {self.torch.__version__}", "total": cuda.get_device_properties(0).total_memory, "mem_get_info": cuda.mem_get_info(), "gpus": cuda.device_count()}

    def calibrated(self):
        return {}

    def rate(self, start, seconds, calibrated):
        """Steps a second that the GPU finished, and what one takes by events."""
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(AHEAD + 1)]
        done, took, number = [], [], 0
        while time.monotonic() < start:
            time.sleep(0.0005)
        while time.monotonic() < start + seconds:
            if number > AHEAD:
                oldest = number - AHEAD - 1
                events[oldest % len(events)].synchronize()
                done.append(time.monotonic())
                if oldest:
                    took.append(before.elapsed_time(events[oldest % len(events)]))
                before = events[oldest % len(events)]
                events[oldest % len(events)] = self.torch.cuda.Event(enable_timing=True)
            self.step()
            events[number % len(events)].record()
            number += 1
        self.torch.cuda.synchronize()
        counted = [at for at in done if start + SETTLED <= at < start + seconds]
        return {"rate": len(counted) / (seconds - SETTLED), "steps": number, "step_ms": round(sorted(took)[len(took) // 2], 4)}

    def fill(self):
        """Takes memory until it is refused: how many MiB it got, and what the refusal says."""
        self.held, got, said = [], 0, ""
        for mib in (256, 16):
            try:
                while got < 300 * 1024:
                    self.held.append(self.torch.empty(mib * MIB, dtype=self.torch.uint8, device="cuda"))
                    got += mib
            except self.torch.cuda.OutOfMemoryError as error:
                said = f"OutOfMemoryError: {error}"
        return {"got_mib": got, "reserved_mib": self.torch.cuda.memory_reserved() // MIB, "said": said}

    def goes_on(self):
        self.held.clear()
        self.torch.cuda.empty_cache()
        return bool(self.torch.ones(1 << 20, device="cuda").sum().item() == 1 << 20)


class Driver:
    """The driver's calls, and the program for the work."""

    def __init__(self, program):
        self.worker = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        json.loads(self.worker.stdout.readline())
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.codes = [self.driver.cuInit(0), self.driver.cuDeviceGet(ctypes.byref(device), 0), self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), self.driver.cuCtxSetCurrent(context)]

    def ask(self, line):
        self.worker.stdin.write(line + "\n")
        self.worker.stdin.flush()
        return json.loads(self.worker.stdout.readline())

    def about(self):
        free, total, count = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_int()
        self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        self.driver.cuDeviceGetCount(ctypes.byref(count))
        return {"by": "the driver alone", "codes": self.codes, "total": total.value, "mem_get_info": [free.value, total.value], "gpus": count.value}

    def calibrated(self):
        return self.ask("calibrate")

    def rate(self, start, seconds, calibrated):
        rounds = max(1, round(1000 * calibrated["rounds_per_us"]))
        said = self.ask(f"run launch {rounds} 1000 {seconds} {start * 1e9:.0f} 1")
        if "ready" in said:
            said = json.loads(self.worker.stdout.readline())
        return {"rate": said["steady"][0] / (seconds - 0.5), "steps": said["finished"], "step_ms": 1.0}

    def fill(self):
        self.held, got, said = [], 0, ""
        for mib in (256, 16):
            while got < 300 * 1024:
                at = ctypes.c_uint64()
                code = self.driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(mib * MIB))
                if code:
                    said = f"error {code}"
                    break
                self.held.append(at)
                got += mib
        return {"got_mib": got, "reserved_mib": got, "said": "OutOfMemoryError, the driver's 2" if said == "error 2" else said}

    def goes_on(self):
        codes = [self.driver.cuMemFree_v2(at) for at in self.held]
        at = ctypes.c_uint64()
        codes.append(self.driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(MIB)))
        return not any(codes)


def run(name, folder, program):
    kept = {}

    def tell(part, found):
        kept[part] = found
        new = folder / f"{name}.new"
        new.write_text(json.dumps(kept))
        new.rename(folder / f"{name}.json")

    def wait(number):
        end = time.monotonic() + 120
        while not (folder / f"go-{number}").exists():
            if time.monotonic() > end:
                raise SystemExit(f"nobody said go-{number}")
            time.sleep(0.005)
        return json.loads((folder / f"go-{number}").read_text())

    try:
        import torch
        is_there = torch.cuda.is_available()
    except ImportError:
        is_there = False
    work = (Torch if is_there else Driver)(program)
    tell("about", work.about() | {"calibrated": work.calibrated()})
    how = wait(1)
    tell("work", work.rate(how["start"], how["seconds"], how.get("calibrated") or kept["about"]["calibrated"]))
    wait(2)
    tell("memory", work.fill())
    wait(3)
    tell("after", {"goes_on": work.goes_on()})


if __name__ == "__main__":
    if sys.argv[1] == "view":
        view(sys.argv[2])
    else:
        run(sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4])
