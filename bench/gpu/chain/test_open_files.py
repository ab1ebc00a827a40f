"""python3 -m unittest discover bench/gpu/chain: what belongs to a job is found, and nothing else is. Needs no GPU."""
import mmap
import os
import pathlib
import socket
import tempfile
import threading
import unittest

from open_files import Open, look

LISTENS, VISITOR, JOURNAL = "11", "12", "13"
OWN = [
    "/dev/null", "pipe:[5]", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "/run/softmig/arbiter.sock.lock", "/var/log/softmig/node.log",
    "/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/params", "/proc/7/task/8/stat", f"socket:[{LISTENS}]", f"socket:[{JOURNAL}]",
]
OF_A_JOB = [
    "/memfd:softmig-seat (deleted)", "anon_inode:[pidfd]", "pidfd:[4711]", f"socket:[{VISITOR}]", "/proc/77", "/proc/77/cgroup", "/run/softmig/12.conf (deleted)",
    "/run/softmig/jobs/12", "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_12/cgroup.procs",
]
SOCKETS = {LISTENS: False, VISITOR: True, JOURNAL: False}
MAPS = ["7f00-7f01 rw-s 00000000 00:01 15 /memfd:softmig-seat (deleted)"]


class OfAList(unittest.TestCase):
    def test_what_is_the_daemons_own_belongs_to_no_job(self):
        found = Open(7, OWN, ["7f00-7f01 r-xp 00000000 00:01 15 /usr/lib/libc.so.6"], SOCKETS, ["softmig-monitor", "clock", "reception"])
        self.assertEqual((str(found), sum(found.own.values())), ("nothing", len(OWN)))

    def test_each_thing_of_a_job_is_found_by_itself(self):
        for link in OF_A_JOB:
            self.assertEqual(sum(Open(7, [*OWN, link], [], SOCKETS, []).of_jobs.values()), 1, link)
        self.assertEqual(str(Open(7, OWN, MAPS, SOCKETS, [])), "1 page of a seat")
        self.assertEqual(str(Open(7, OWN, [], SOCKETS, ["clock", "seat"])), "1 thread of a seat")


class OfThisProcess(unittest.TestCase):
    """The kernel's own words for what an arbiter would leave."""

    def more(self):
        now = look(os.getpid())
        return {what: count - self.before.of_jobs[what] for what, count in now.of_jobs.items() if count != self.before.of_jobs[what]}, now.own - self.before.own

    def setUp(self):
        self.before = look(os.getpid())

    def test_the_file_and_the_page_of_a_seat(self):
        file = os.memfd_create("softmig-seat")
        os.ftruncate(file, mmap.PAGESIZE)
        self.addCleanup(os.close, file)
        self.assertEqual(self.more(), ({"file of a seat": 1}, {}))
        # It has a file of its own in Python.
        with mmap.mmap(file, mmap.PAGESIZE):
            self.assertEqual(self.more(), ({"file of a seat": 2, "page of a seat": 1}, {}))

    def test_a_pidfd(self):
        file = os.pidfd_open(os.getpid())
        self.addCleanup(os.close, file)
        self.assertEqual(self.more(), ({"pidfd": 1}, {}))

    def test_a_connection_but_not_the_socket_that_listens_nor_one_that_asks(self):
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "arbiter.sock"
        listens, asks = (self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(2))
        listens.bind(f"{path}.new")
        listens.listen()
        os.rename(f"{path}.new", path)
        asks.connect(str(path))
        self.assertEqual(self.more(), ({}, {"socket": 2}))
        self.enterContext(listens.accept()[0])
        self.assertEqual(self.more(), ({"connection": 1}, {"socket": 2}))

    def test_the_thread_of_a_seat_and_an_open_process(self):
        name = pathlib.Path("/proc/self/task")
        begun, end = threading.Event(), threading.Event()

        def seat():
            (name / str(threading.get_native_id()) / "comm").write_text("seat")
            begun.set()
            end.wait()

        thread = threading.Thread(target=seat)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(end.set)
        begun.wait()
        self.assertEqual(self.more(), ({"thread of a seat": 1}, {}))
        folder = os.open(f"/proc/{os.getppid()}", os.O_RDONLY)
        self.addCleanup(os.close, folder)
        self.assertEqual(self.more(), ({"thread of a seat": 1, "process in /proc": 1}, {}))

    def test_an_eventfd_is_the_daemons_own(self):
        file = os.eventfd(0)
        self.addCleanup(os.close, file)
        self.assertEqual(self.more(), ({}, {"anon_inode:[eventfd]": 1}))


if __name__ == "__main__":
    unittest.main()
