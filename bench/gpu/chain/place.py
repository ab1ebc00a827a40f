"""A machine on which Slurm and softmig are installed, in a mount namespace of its own."""
import functools
import json
import os
import pathlib
import shutil
import subprocess
import tomllib

USER, NAME = 61117, "softmig-bench"
# What softmig has there, all of it gone with the namespace.
OWN = [pathlib.Path(path) for path in ("/run/softmig", "/var/log/softmig", "/var/lib/softmig", "/usr/lib/softmig")]
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
POLICY = pathlib.Path("/etc/softmig/policy.toml")
# Parts of a GPU of which the policy as shipped has no entry.
SHARDS = 8


def sh(*command, check=True, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))[:200]}: {done.returncode} {(done.stdout + done.stderr)[-600:]}")
    return done


@functools.cache
def gpu_type():
    """The machine's first GPU: what softmig knows of its type."""
    return json.loads(sh("softmig", "probe", "--json").stdout)["types"][0]


def shards_of(kind):
    """Into how many parts the policy cuts a GPU of this type."""
    return tomllib.loads(POLICY.read_text())["gpu"][kind]["shards"]


class Place:
    def __init__(self, work, stage, packages, into_root, prepare):
        self.work, self.stage, self.packages, self.into_root, self.prepare = work, stage, packages, into_root, prepare
        self.made = []

    def furnish(self):
        sh("mount", "--make-rprivate", "/")
        self.own_etc()
        if not self.into_root:
            self.over_usr()
        for folder in OWN:
            if not folder.exists():
                folder.mkdir(parents=True)
                self.made.append(folder)
            sh("mount", "-t", "tmpfs", "-o", "mode=0755", "softmig-bench", folder)
        self.unpack()
        self.softmig()
        if self.prepare:
            sh(self.prepare.resolve())
        self.driver_by_name()
        self.know_gpu()
        self.user()

    def own_etc(self):
        """/etc/ld.so.preload and Slurm's files are this namespace's."""
        new = self.work / "etc"
        new.mkdir()
        sh("mount", "-t", "tmpfs", "-o", "mode=0755", "softmig-bench", new)
        sh("cp", "-a", "/etc/.", new)
        sh("mount", "--move", new, "/etc")

    def over_usr(self):
        """What is written to /usr is this namespace's; what is mounted below it stays there."""
        layer = self.work / "layer"
        layer.mkdir()
        sh("mount", "-t", "tmpfs", "softmig-bench", layer)
        below = [line.split()[4] for line in open("/proc/self/mountinfo") if line.split()[4].startswith("/usr/")]
        for at, path in enumerate(below):
            (layer / f"below-{at}").mkdir() if os.path.isdir(path) else (layer / f"below-{at}").touch()
            sh("mount", "--bind", path, layer / f"below-{at}")
        (layer / "upper").mkdir()
        (layer / "work").mkdir()
        sh("mount", "-t", "overlay", "softmig-bench", "-o", f"lowerdir=/usr,upperdir={layer}/upper,workdir={layer}/work", "/usr")
        for at, path in enumerate(below):
            sh("mount", "--move", layer / f"below-{at}", path, check=False)

    def unpack(self):
        """Slurm's packages; of the libraries those that are not there."""
        debs = sorted(self.packages.glob("*.deb"))
        if not debs:
            raise RuntimeError(f"no packages in {self.packages}: bench/gpu/chain/packages.sh downloads them")
        own, libraries = self.work / "slurm", self.work / "libraries"
        for deb in debs:
            sh("dpkg", "-x", deb, own if deb.name.startswith(("slurm", "munge")) else libraries)
        sh("cp", "-a", f"{own}/usr/.", "/usr")
        known = sh("ldconfig", "-p").stdout
        for file in [*libraries.glob("usr/lib/x86_64-linux-gnu/*.so*"), *libraries.glob("lib/x86_64-linux-gnu/*.so*")]:
            if f"{file.name} " not in known and not (LIBRARIES / file.name).exists():
                sh("cp", "-a", file, LIBRARIES)
        sh("ldconfig")
        for name in ("slurmctld", "slurmd", "slurmstepd"):
            if not pathlib.Path("/usr/sbin", name).exists():
                pathlib.Path("/usr/sbin", name).symlink_to(f"{name}-wlm")
        missing = [line.strip() for program in ("/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged") for line in sh("ldd", program).stdout.splitlines() if "not found" in line]
        if missing:
            raise RuntimeError(f"libraries that are missing: {missing}")

    def softmig(self):
        """The tree that is installed, but for /etc/slurm/*.conf, which depend on the machine."""
        if not (self.stage / "usr/libexec/softmig-prolog").exists():
            raise RuntimeError(f"{self.stage}: this is not what `cargo xtask stage` makes")
        sh("cp", "-a", "--no-preserve=ownership", f"{self.stage}/usr/.", "/usr")
        sh("install", "-m", "0755", "/usr/lib/softmig/staged/libsoftmig.so", "/usr/lib/softmig/libsoftmig.so")
        for example, place in (("policy.toml", "softmig"), ("job_submit.lua", "slurm"), ("cli_filter.lua", "slurm")):
            sh("install", "-D", "-m", "0644", f"/usr/share/softmig/examples/{example}", f"/etc/{place}/{example}")

    def driver_by_name(self):
        """Programs without an environment find the driver too."""
        if "libcuda.so.1 " in sh("ldconfig", "-p").stdout:
            return
        found = next(pathlib.Path("/usr/local/nvidia").rglob("libcuda.so.1"), None)
        if not found:
            raise RuntimeError("there is no libcuda.so.1")
        pathlib.Path("/etc/ld.so.conf.d/softmig-bench.conf").write_text(f"{found.parent}\n")
        sh("ldconfig")

    def know_gpu(self):
        """The policy has an entry for the machine's GPU."""
        known, text = gpu_type(), POLICY.read_text()
        if f"[gpu.{known['type']}]" not in text:
            memory = known["memory"]
            POLICY.write_text(f"{text}\n[gpu.{known['type']}]\nmemory_mib = {memory['total_mib']}\nreserved_mib = {memory['reserved_mib']}\nshards = {SHARDS}\n")

    def user(self):
        home = self.work / "home"
        home.mkdir()
        os.chown(home, USER, USER)
        for file, line in (("passwd", f"{NAME}:x:{USER}:{USER}::{home}:/bin/sh"), ("group", f"{NAME}:x:{USER}:")):
            with open(f"/etc/{file}", "a") as end:
                end.write(f"{line}\n")
        with open("/etc/hosts", "a") as end:
            end.write(f"127.0.0.1 localhost {os.uname().nodename.split('.')[0]}\n")
        # Slurm takes a machine with loopback addresses alone for one without a network. Nothing is sent to this one.
        if shutil.which("ip") and not sh("ip", "-4", "address", "show", "scope", "global", check=False).stdout.strip():
            sh("ip", "address", "add", "192.0.2.1/32", "dev", "lo", check=False)

    def end(self, run, log):
        """Ends a run, if it came to begin, and keeps its log; removes the folder of the work."""
        if run:
            log.write_text(run.end())
        self.leave()
        shutil.rmtree(self.work, ignore_errors=True)

    def leave(self):
        """What is outside of the namespace: folders that were made, and the work's, from below what is mounted there."""
        sh("umount", "-l", self.work / "layer", check=False)
        for folder in reversed(self.made):
            sh("umount", "-l", folder, check=False)
            try:
                folder.rmdir()
            except OSError:
                pass
