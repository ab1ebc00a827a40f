//! Containers that users start in jobs have the job's limits where the administrator has copied the files of
//! conf/containers, and only there: each runtime runs without its file first. The runtimes are Debian's.

#[cfg(feature = "full")]
mod guest;

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use softmig_fake_node::{Gpu, MIB, Node as Driver};
use softmig_tests::each_slurm::Outcome;
use softmig_tests::programs::LIBRARY;
use softmig_tests::requests::memory_mib;
use softmig_tests::runtimes::{self, IMAGE};
use softmig_tests::softmig::enforced;
use softmig_tests::{Client, Cluster, Gpus, Node, Output, Slurm};

/// Tests of one version only: `cargo xtask test` knows it by the name of the module.
mod slurm_24_11 {
    use super::Outcome;

    #[test]
    fn apptainers_containers_are_held() {
        super::apptainers_containers_are_held().check();
    }

    #[test]
    fn podmans_containers_are_held() {
        super::podmans_containers_are_held().check();
    }

    #[cfg(feature = "full")]
    #[test]
    fn containers_know_their_job_on_cgroup_v2() {
        super::containers_know_their_job_on_cgroup_v2().check();
    }

    #[test]
    fn charliecloud_is_held_by_options_of_its_own() {
        super::charliecloud_is_held_by_options_of_its_own().check();
    }

    #[test]
    fn dockers_containers_are_held_where_they_are_known() {
        super::dockers_containers_are_held_where_they_are_known().check();
    }
}

/// One allocation of a client.
const STEP: u64 = 32 * MIB;
/// Takes all that it gets.
const TAKES: &str = "/opt/programs/takes cuMemAlloc_v2 33554432 fill";
/// The fake driver's device, in the place of what a real one keeps in the kernel.
const DEVICE: &str = "/run/fake-gpu";
/// A node's CDI file by NVIDIA's toolkit, for the fake driver.
const NVIDIA_CDI: &str = r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {
  "deviceNodes": [{"path": "/dev/nvidia0"}]}}], "containerEdits": {"mounts": [
  {"hostPath": "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "containerPath": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
   "options": ["ro", "nosuid", "nodev", "bind"]},
  {"hostPath": "/run/fake-gpu", "containerPath": "/run/fake-gpu", "options": ["rw", "nosuid", "nodev", "rbind"]}]}}"#;

/// A cluster whose nodes have the runtimes, one node for each test.
struct Site {
    cluster: Cluster,
    _drivers: Vec<Driver>,
}

fn site() -> Result<&'static Site> {
    static SITE: LazyLock<Result<Site>> = LazyLock::new(Site::start);
    SITE.as_ref().map_err(|error| anyhow!("{error:#}"))
}

impl Site {
    fn start() -> Result<Site> {
        let cluster = enforced(Slurm::V24_11)
            .programs()
            .layer(runtimes::layer())
            .nodes(4)
            .gpus([Gpus::l40s(1)])
            .file("/etc/subuid", "alice:100000:65536\n")
            .file("/etc/subgid", "alice:100000:65536\n")
            .file("/etc/cdi/nvidia.json", NVIDIA_CDI)
            .start()?;
        cluster
            .run("root", &["sh", "-c", runtimes::MAKE_IMAGE])?
            .ok()?;
        let drivers = cluster.nodes().iter().map(Node::start_driver);
        let drivers = drivers.collect::<Result<_>>()?;
        Ok(Site {
            cluster,
            _drivers: drivers,
        })
    }
}

/// A file of conf/containers.
fn conf(name: &str) -> Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/containers");
    Ok(std::fs::read_to_string(folder.join(name))?)
}

/// A job of alice's that stays: a quarter of the GPU of a node.
struct Job {
    site: &'static Site,
    node: usize,
    id: u32,
}

impl Job {
    fn start(node: usize) -> Result<Job> {
        let site = site()?;
        let name = site.cluster.node(node).name();
        let options = [
            "--gres=gpu:l40s.4:1",
            "--nodelist",
            name,
            "--output=/dev/null",
        ];
        let script = "touch $HOME/$SLURM_JOB_ID.started; exec sleep infinity";
        let id = site.cluster.user("alice").sbatch(&options, script)?;
        let started = format!("/home/alice/{id}.started");
        site.cluster.wait_until("the job's script runs", || {
            Ok(site.cluster.read(&started)?.is_some())
        })?;
        Ok(Job { site, node, id })
    }

    /// Runs a script of root's on the job's node, outside the job.
    fn root(&self, script: &str) -> Result<String> {
        let node = self.site.cluster.node(self.node);
        node.run_as_root(&["sh", "-ec", script])?.ok()
    }

    /// Copies a file of conf/containers onto the node, as an administrator does.
    fn copies(&self, name: &str, to: &str) -> Result<()> {
        let node = self.site.cluster.node(self.node);
        node.write(to, &conf(name)?)
    }

    /// Runs a step.
    fn step(&self, script: &str) -> Result<Output> {
        self.begin(script)?.wait(Duration::from_secs(60))
    }

    /// Starts a step.
    fn begin(&self, script: &str) -> Result<Client> {
        let id = format!("--jobid={}", self.id);
        let argv = ["srun", &id, "--overlap", "--ntasks=1", "bash", "-c", script];
        self.site.cluster.command("alice", &argv).spawn()
    }

    /// How many blocks a container gets, and whether the library is in it.
    fn takes(&self, run: &str) -> Result<(u64, bool)> {
        let output = self.step(&format!("{run} {TAKES}"))?;
        let said = |start: &str| {
            let mut lines = output.stdout.lines();
            let line = lines.find_map(|line| line.strip_prefix(start));
            line.with_context(|| format!("{run}: {output}"))
        };
        let mapped = said("libsoftmig: ")? == "mapped";
        let blocks = said("took: blocks=")?.split(' ').next().unwrap_or_default();
        Ok((blocks.parse()?, mapped))
    }

    /// Fails unless a container has the job's slice and no more.
    fn check_held(&self, run: &str) -> Result<()> {
        let (blocks, mapped) = self.takes(run)?;
        let room = (u64::from(memory_mib(1)) * MIB - Gpu::l40s(0).context) / STEP;
        ensure!(
            mapped && (room - 8..=room).contains(&blocks),
            "{run}: {blocks} of {room}, {mapped}"
        );
        Ok(())
    }

    /// Fails unless a container has the whole GPU, so that what holds it in another test is the file alone.
    fn check_not_held(&self, run: &str) -> Result<()> {
        let (blocks, mapped) = self.takes(run)?;
        let gpu = Gpu::l40s(0);
        let all = (gpu.usable() - gpu.context) / STEP;
        ensure!(
            !mapped && blocks == all,
            "{run}: {blocks} of {all}, {mapped}"
        );
        Ok(())
    }

    /// Copies a file and fails unless `softmig check` asked for it, and then is content.
    fn copies_what_is_asked_for(&self, code: &str, name: &str, to: &str) -> Result<()> {
        ensure!(self.finds(code)?, "no {code}");
        self.copies(name, to)?;
        if code == "CONTAINER_APPTAINER" {
            self.root(&format!("cat {to} >>/etc/apptainer/apptainer.conf"))?;
        }
        ensure!(!self.finds(code)?, "{code}");
        Ok(())
    }

    /// Whether `softmig check` has this finding on the job's node.
    fn finds(&self, code: &str) -> Result<bool> {
        let check = "softmig check --node --json | jq -r '.findings[].code'";
        let codes = self.root(check)?;
        Ok(codes.lines().any(|line| line == code))
    }

    /// A program of another C library does not load what glibc's loader lists.
    fn check_musl(&self, run: &str) -> Result<()> {
        let said = self
            .step(&format!("{run} /opt/programs/musl-static"))?
            .ok()?;
        ensure!(said.contains("libsoftmig: not mapped"), "{said}");
        Ok(())
    }

    /// Users cannot change softmig's files in a container, but for their job's own folder.
    fn check_files(&self, run: &str) -> Result<()> {
        let script = format!(
            "cd /var/run/softmig; : >>jobs/{0}/ledger && echo ledger; \
             for file in {0}.conf /etc/softmig/node.conf /etc/ld.so.preload {LIBRARY} new; do (: >>$file) && echo $file; done",
            self.id
        );
        let said = self
            .step(&format!("{run} sh -c '{script}' 2>/dev/null; true"))?
            .ok()?;
        ensure!(said == "ledger\n", "{said}");
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.site
            .cluster
            .run("root", &["scancel", &self.id.to_string()])?
            .ok()?;
        Ok(())
    }
}

fn apptainers_containers_are_held() -> Result<()> {
    let job = Job::start(0)?;
    job.root("ldconfig")?;
    // As images have it: how Apptainer sets the environment in a container, for --nv too.
    job.root(&format!("apptainer build --sandbox /opt/apptainer {IMAGE}"))?;
    let run = format!("apptainer exec --nv --bind {DEVICE} /opt/apptainer");
    job.check_not_held(&run)?;
    job.copies_what_is_asked_for(
        "CONTAINER_APPTAINER",
        "apptainer.conf",
        "/etc/apptainer/softmig.conf",
    )?;
    job.check_held(&run)?;
    job.check_files(&run)?;
    job.check_musl(&run)?;
    // See docs/containers.md on --contain.
    let contained = format!("apptainer exec --contain --nv --bind {DEVICE} /opt/apptainer");
    job.check_not_held(&contained)?;
    let paths = "/usr/lib/softmig,/etc/ld.so.preload,/etc/softmig,/var/run/softmig";
    for run in [contained, run] {
        job.check_held(&format!("APPTAINER_BIND={paths} {run}"))?;
    }
    job.end()
}

fn podmans_containers_are_held() -> Result<()> {
    let job = Job::start(1)?;
    job.root(AS_A_NODE)?;
    let storage = "[storage]\ndriver = \"overlay\"\nrootless_storage_path = \"/tmp/storage\"\n";
    job.site.cluster.write("/opt/storage.conf", storage)?;
    let podman = "CONTAINERS_STORAGE_CONF=/opt/storage.conf XDG_RUNTIME_DIR=/tmp/alice PODMAN_IGNORE_CGROUPSV1_WARNING=1 podman";
    job.step(&format!(
        "mkdir /tmp/alice; tar -C {IMAGE} -c . | {podman} import - debian"
    ))?
    .ok()?;
    let run = |options: &str| {
        format!("{podman} run --rm --network=none --device nvidia.com/gpu=all {options} debian")
    };
    job.check_not_held(&run(""))?;
    job.copies_what_is_asked_for(
        "CONTAINER_PODMAN",
        "containers.conf",
        "/etc/containers/containers.conf.d/softmig.conf",
    )?;
    job.check_held(&run(""))?;
    job.check_held(&run("--userns=keep-id"))?;
    job.check_files(&run(""))?;
    job.check_musl(&run(""))?;
    // Podman's processes of all of a user's jobs share a mount namespace, which is older here than the second job.
    let first = job.begin(&format!(
        "{podman} unshare true && echo there; exec sleep 600"
    ))?;
    job.site.cluster.wait_until("podman's first process", || {
        Ok(first.stdout()?.contains("there"))
    })?;
    let second = Job::start(1)?;
    second.check_held(&run(""))?;
    second.end()?;
    job.end()
}

/// It has no configuration of the site's.
fn charliecloud_is_held_by_options_of_its_own() -> Result<()> {
    let job = Job::start(3)?;
    // It makes folders for its mounts, and no files.
    job.root(&format!(
        "cp -r {IMAGE} /opt/charliecloud; : >/opt/charliecloud/etc/ld.so.preload; \
         cp /usr/lib/x86_64-linux-gnu/libcuda.so.1 /opt/charliecloud/usr/lib/x86_64-linux-gnu/"
    ))?;
    let run = |options: &str| format!("ch-run -W -b {DEVICE} {options} /opt/charliecloud --");
    job.check_not_held(&run(""))?;
    let run = run("-b /usr/lib/softmig -b /etc/ld.so.preload -b /etc/softmig -b /run/softmig");
    job.check_held(&run)?;
    job.check_files(&run)?;
    job.end()
}

#[cfg(feature = "full")]
fn containers_know_their_job_on_cgroup_v2() -> Result<()> {
    guest::run()
}

fn dockers_containers_are_held_where_they_are_known() -> Result<()> {
    let job = Job::start(2)?;
    job.root(AS_A_NODE)?;
    job.root(&START_DOCKER.replace("NODE", job.site.cluster.node(job.node).name()))?;
    job.root(&format!("tar -C {IMAGE} -c . | docker import - debian"))?;
    let run = |options: &str| {
        format!("docker run --rm --network=none --device nvidia.com/gpu=all {options} debian")
    };
    let slice = "--device softmig/slice=job";
    job.check_not_held(&run(""))?;
    job.copies_what_is_asked_for("CONTAINER_DOCKER", "softmig.json", "/etc/cdi/softmig.json")?;
    // Its daemon starts containers outside the job: known by the user, and in the job by its control group.
    let group = "--cgroup-parent=$(sed -n 's/.*:devices://p' /proc/self/cgroup)";
    for who in ["--user=2001", &format!("--user=2001 {group}"), group] {
        job.check_held(&run(&format!("{slice} {who}")))?;
    }
    job.check_files(&run(&format!("{slice} --user=2001 {group}")))?;
    job.check_musl(&run(slice))?;
    // Root outside every job has no limits.
    let (blocks, mapped) = job.takes(&run(slice))?;
    ensure!(mapped && blocks > 1000, "{blocks} {mapped}");
    // The ordinary command alone, once NVIDIA's specification has softmig's mounts.
    job.root(MERGE)?;
    job.check_held(&run(group))?;
    job.end()
}

/// The changes to a node of these tests. crun wants control groups of version 1 or 2, and the machine may
/// have some of both. The kernel lets a user namespace mount a `/proc` where another is seen in full, and the driver's
/// files cover a part of it here. systemd makes all mounts shared.
const AS_A_NODE: &str = "! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
mkdir -p /tmp/proc; mount -t proc proc /tmp/proc
mount --make-rshared /";

/// Starts Docker's daemon, whose control groups go with those of the node.
const START_DOCKER: &str = r#"
mkdir -p /etc/docker
echo '{"features": {"cdi": true}}' >/etc/docker/daemon.json
dockerd --data-root /tmp/docker --cgroup-parent /slurm_NODE/docker --bridge=none --iptables=false --ip6tables=false \
    >/tmp/dockerd.log 2>&1 </dev/null &
for try in $(seq 60); do docker version >/dev/null 2>&1 && break; sleep 0.5; done
docker version >/dev/null || { cat /tmp/dockerd.log; exit 1; }
chmod 666 /run/docker.sock
"#;

/// The command of docs/containers.md, with the file that `nvidia-ctk cdi generate` writes. Files in /var/run/cdi count
/// more than those in /etc/cdi, and each node here has its own.
const MERGE: &str = "mkdir -p /var/run/cdi; cd /etc/cdi
jq --slurpfile softmig softmig.json '.containerEdits.mounts += $softmig[0].devices[0].containerEdits.mounts' \\
    <nvidia.json >/var/run/cdi/nvidia.json";
