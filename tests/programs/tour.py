# Python: the driver through ctypes, threads, children by fork, by spawn and by a shell.
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading


def say_library():
    with open("/proc/self/maps") as maps:
        mapped = "/libsoftmig.so" in maps.read()
    print("libsoftmig:", "mapped" if mapped else "not mapped", flush=True)


def init(queue):
    queue.put(ctypes.CDLL("libcuda.so.1").cuInit(0))


def main():
    say_library()
    signal.signal(signal.SIGUSR1, lambda number, frame: print("signal", number, flush=True))
    os.kill(os.getpid(), signal.SIGUSR1)
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=init, args=(queue,))
        child.start()
        print(method, "cuInit:", queue.get(), flush=True)
        child.join()
        print(method, "exit:", child.exitcode, flush=True)
    print(subprocess.run(["sh", "-c", "/opt/programs/maps; echo $?"], capture_output=True, text=True).stdout, end="", flush=True)
    cuda = ctypes.CDLL("libcuda.so.1")
    results = []
    threads = [threading.Thread(target=lambda: results.append(cuda.cuInit(0))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("threads:", sorted(results), flush=True)
    count = ctypes.c_int(-1)
    print("cuDeviceGetCount:", cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
    print("cuNoSuchThing:", hasattr(cuda, "cuNoSuchThing"), flush=True)
    return ctypes.CDLL("/opt/programs/libtour.so").tour_linked()


if __name__ == "__main__":
    sys.exit(main())
