"""What a daemon has open, and what of that belongs to a job."""
import collections
import os
import pathlib
import re

# Where jobs have their files. The lock there is the daemon's own.
JOBS = re.compile(r"(/var)?/run/softmig/(?!arbiter\.sock\.lock$)|/sys/fs/cgroup/")
SEAT = "/memfd:softmig-seat"


class Open:
    """Of one process at one moment: what it has for jobs, each kind with how many, and what it has for itself."""

    def __init__(self, pid, links, maps, sockets, threads):
        kinds = [(link, kind(link, pid, sockets)) for link in links]
        self.of_jobs = collections.Counter(found for _, found in kinds if found)
        # The daemon keeps a seat's page, not its file.
        self.of_jobs.update("page of a seat" for line in maps if SEAT in line)
        self.of_jobs.update("thread of a seat" for name in threads if name == "seat")
        self.own = collections.Counter(re.sub(r":\[\d+\]", "", link) for link, found in kinds if not found)

    def __str__(self):
        return ", ".join(f"{count} {what}" for what, count in sorted(self.of_jobs.items())) or "nothing"


def kind(link, pid, sockets):
    """What of a job's it is; nothing if the daemon's own."""
    if link.startswith(SEAT):
        return "file of a seat"
    if re.match(r"(anon_inode:\[)?pidfd\b", link):
        return "pidfd"
    if link.startswith("socket:["):
        return "connection" if sockets.get(link[8:-1]) else None
    if re.match(r"/proc/\d", link):
        return None if link.split("/")[2] == str(pid) else "process in /proc"
    return "file of a job" if JOBS.match(link) else None


def accepted(lines):
    """Of /proc/net/unix: by inode, whether it is a connection that was accepted. It has the name of the socket that
    listens, which those have not that the process itself connected."""
    rows = [line.split() for line in list(lines)[1:]]
    return {row[6]: len(row) > 7 and not int(row[3], 16) & 0x10000 for row in rows}


def look(pid):
    proc = pathlib.Path(f"/proc/{pid}")
    links = []
    for file in (proc / "fd").iterdir():
        try:
            links.append(os.readlink(file))
        except FileNotFoundError:
            pass
    threads = []
    for task in (proc / "task").iterdir():
        try:
            threads.append((task / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            pass
    sockets = accepted((proc / "net/unix").read_text().splitlines())
    return Open(pid, links, (proc / "maps").read_text().splitlines(), sockets, threads)
