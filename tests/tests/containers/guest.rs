//! The same on control groups of version 2, where a container may have a namespace of control groups of its own: in a
//! guest kernel, with a driver that has no memory to be held to. The library says whose limits it finds.

use anyhow::{Context, Result, ensure};
use softmig_tests::programs::{LIBRARY, PRELOAD, tree};
use softmig_tests::requests::memory_mib;
use softmig_tests::runtimes::{self, MAKE_IMAGE};
use softmig_tests::softmig::stage;
use softmig_tests::uml::Uml;
use softmig_tests::{Gpus, Slurm};

use crate::containers::conf;

/// Starts a half, and beside it the quarter that a program gets which hides its job.
const JOBS: &str = r#"
stay() { as alice sbatch --parsable --output=/dev/null --gres=$1 --wrap 'touch $HOME/$SLURM_JOB_ID.up; exec sleep 1000'; }
stay gpu:l40s.2:1; stay gpu:l40s.4:1
wait_until '[ "$(echo /home/*/*.up | wc -w)" = 2 ]' || exit
step() { as alice srun --jobid=1 --overlap env SOFTMIG_LOG_LEVEL=3 CONTAINERS_STORAGE_CONF=/opt/storage.conf \
    XDG_RUNTIME_DIR=/tmp/alice "$@" 2>&1 </dev/null; }
mkdir /tmp/alice /tmp/proc && chown alice /tmp/alice
# A /proc that nothing covers, see main.rs.
mount -t proc proc /tmp/proc && mount --make-rshared /
cp /usr/lib64/ld-linux-x86-64.so.2 /usr/lib/x86_64-linux-gnu/libcuda.so.1 /opt/image/usr/lib/x86_64-linux-gnu/
cp -r /opt/image /tmp/alice/ && chown -R alice /tmp/alice
image="-e SOFTMIG_LOG_LEVEL --rootfs /tmp/alice/image /opt/programs/whose"
"#;

/// Runs each runtime with its file, and Podman once more as it is without.
const RUNS: &str = r#"
mkdir -p /etc/containers/containers.conf.d
cp /opt/conf/containers.conf /etc/containers/containers.conf.d/softmig.conf
cat /opt/conf/apptainer.conf >>/etc/apptainer/apptainer.conf
step podman run --network=none $image >$OUT/podman
step podman run --network=none --cgroupns=private $image >$OUT/hidden
step apptainer exec /opt/image /opt/programs/whose >$OUT/apptainer
"#;

/// Boots once for all of it.
pub fn run() -> Result<()> {
    let client = tempfile::tempdir()?;
    for (from, to) in [
        ("whose", "opt/programs/whose"),
        ("takes", "opt/programs/takes"),
        ("musl-static", "opt/programs/musl-static"),
        ("libbare.so", "usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    ] {
        let to = client.path().join(to);
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(tree().join("opt/programs").join(from), to)?;
    }
    let storage = "[storage]\ndriver = \"vfs\"\nrootless_storage_path = \"/tmp/alice/storage\"\n";
    let image = format!("({MAKE_IMAGE}) || exit\n");
    let run = Uml::builder(Slurm::V24_11)
        .gpus([Gpus::l40s(1)])
        .layer(runtimes::layer())
        .stage(stage())
        .stage(client.path())
        .file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")
        .file(PRELOAD, format!("{LIBRARY}\n"))
        .file("/etc/subuid", "alice:100000:65536\n")
        .file("/etc/subgid", "alice:100000:65536\n")
        .file("/opt/storage.conf", storage)
        .file("/opt/conf/containers.conf", conf("containers.conf")?)
        .file("/opt/conf/apptainer.conf", conf("apptainer.conf")?)
        .run(&[&image, JOBS, RUNS].concat())?
        .ok()?;
    let half = format!("job 1: limited to {} MiB and 50 %", memory_mib(2));
    for runtime in ["podman", "apptainer"] {
        let with = run.output(runtime)?;
        ensure!(with.contains(&half), "{runtime}: {with}\n{run}");
    }
    // Why containers.conf says cgroupns: Podman's own default on version 2.
    let hidden = run.output("hidden")?;
    let is_unknown = hidden.contains("whose: library=1") && !hidden.contains(&half);
    ensure!(is_unknown, "{hidden}\n{run}");
    Ok(())
}
