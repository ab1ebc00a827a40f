//! Container runtimes for clusters of Slurm 24.11: Debian's packages in a tree that is laid over the Debian root, and an
//! image for them, which is a folder and needs no registry.

use std::path::PathBuf;

use crate::slurm::{Slurm, roots_dir};

/// The packages. Apptainer is in Debian unstable alone, and asks for no newer libraries than trixie has.
pub const PACKAGES: &[&str] = &[
    "podman",
    "crun",
    "uidmap",
    "docker.io",
    "docker-cli",
    "jq",
    "apptainer/sid",
    "charliecloud-runtime",
];

/// Where the image is in a cluster.
pub const IMAGE: &str = "/opt/image";

/// The script that makes the image: Debian's shell and C library, the test clients, and nothing of softmig's.
pub const MAKE_IMAGE: &str = r#"
set -e
image=/opt/image libraries=/usr/lib/x86_64-linux-gnu
mkdir -p $image$libraries $image/usr/bin $image/usr/lib64 $image/opt/programs
mkdir -p $image/etc $image/var $image/proc $image/sys $image/dev $image/tmp $image/run $image/home $image/root
ln -s usr/bin $image/bin
ln -s usr/lib $image/lib
ln -s usr/lib64 $image/lib64
ln -s /run $image/var/run
cp -L /usr/bin/dash $image/usr/bin/sh
cp -L /usr/bin/cat $image/usr/bin/
cp -L $libraries/libc.so.6 $libraries/libgcc_s.so.1 $libraries/libm.so.6 $libraries/libdl.so.2 $libraries/libpthread.so.0 $image$libraries/
cp -L /usr/lib64/ld-linux-x86-64.so.2 $image/usr/lib64/
cp /opt/programs/takes /opt/programs/whose /opt/programs/musl-static $image/opt/programs/
cp /etc/passwd /etc/group /etc/os-release $image/etc/
"#;

/// The packages, arranged like `/`. `cargo xtask test` installs them there.
pub fn layer() -> PathBuf {
    roots_dir()
        .with_file_name("runtimes")
        .join(Slurm::V24_11.suite())
}
