"""What is seen from outside: the exporter's page, and the driver's own figures by NVML."""
import ctypes
import re
import subprocess
import threading
import time
import urllib.request

PORT = 9836
SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? ([^ ]+)$')


class Exporter:
    """softmig-exporter with all views, and its pages."""

    def __init__(self, work):
        self.mapping = work / "dcgm"
        self.mapping.mkdir()
        views = [f"--view={view}" for view in ("jobstats", "slurm-job-exporter", "ceems")]
        self.child = subprocess.Popen(["/usr/libexec/softmig-exporter", f"--listen=127.0.0.1:{PORT}", f"--dcgm-mapping={self.mapping}", *views], stdin=subprocess.DEVNULL)

    def page(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as answer:
            return answer.read().decode()

    def end(self):
        self.child.terminate()
        self.child.wait(5)


class Page:
    """Samples of a page: by name, labels and value."""

    def __init__(self, text):
        found = [SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#")]
        self.samples = [(one[1], dict(re.findall(r'(\w+)="([^"]*)"', one[2] or "")), float(one[3])) for one in found if one]

    def of(self, name, **labels):
        """The one sample; None if there is none."""
        found = [value for own, its, value in self.samples if own == name and its.items() >= {key: str(value) for key, value in labels.items()}.items()]
        if len(found) > 1:
            raise RuntimeError(f"{len(found)} samples of {name} {labels}")
        return found[0] if found else None

    def sum(self, name):
        return sum(value for own, _, value in self.samples if own == name)


class Process(ctypes.Structure):
    """nvmlProcessInfo_v2_t."""
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Utilization(ctypes.Structure):
    """nvmlUtilization_t."""
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Nvml:
    """The driver's figures of the first GPU, by NVML's own functions."""

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.gpu = ctypes.c_void_p()
        if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.gpu)):
            raise RuntimeError("no NVML")

    def processes(self):
        """The bytes of each process."""
        count, found = ctypes.c_uint(64), (Process * 64)()
        if code := self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.gpu, ctypes.byref(count), found):
            raise RuntimeError(f"NVML: {code}")
        return {one.pid: one.used for one in found[:count.value]}

    def utilization(self):
        """The percentage of the driver's last sample period in which a kernel ran."""
        seen = Utilization()
        return None if self.library.nvmlDeviceGetUtilizationRates(self.gpu, ctypes.byref(seen)) else seen.gpu


class Watch(threading.Thread):
    """Until it is told to end: keeps the exporter's page of each second, and what NVML says each quarter of a second."""

    def __init__(self, exporter, nvml):
        super().__init__(daemon=True)
        self.exporter, self.nvml = exporter, nvml
        self.pages, self.utilization, self.most, self.ends = [], [], {}, threading.Event()
        self.start()

    def run(self):
        number = 0
        while not self.ends.wait(0.25):
            self.utilization.append((time.monotonic(), self.nvml.utilization()))
            for pid, used in self.nvml.processes().items():
                self.most[pid] = max(used, self.most.get(pid, 0))
            if number % 4 == 0:
                self.pages.append((time.time(), self.exporter.page()))
            number += 1

    def mean_utilization(self, begin, end):
        seen = [percent for at, percent in self.utilization if begin <= at <= end and percent is not None]
        return sum(seen) / len(seen) if seen else None

    def end(self):
        self.ends.set()
        self.join(10)
        return self.pages
