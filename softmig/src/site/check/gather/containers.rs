//! The container runtimes of this machine, and their configuration.

use crate::site::check::facts::{Runtime, RuntimeKind};
use std::path::{Path, PathBuf};

/// The one file of each build of Apptainer and Singularity.
const APPTAINER: [&str; 4] = [
    "/etc/apptainer/apptainer.conf",
    "/usr/local/etc/apptainer/apptainer.conf",
    "/etc/singularity/singularity.conf",
    "/usr/local/etc/singularity/singularity.conf",
];

/// A runtime, the paths of which any one shows that it is installed, what it reads, and the folder for a file of
/// softmig's.
type Known = (
    RuntimeKind,
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

const OTHERS: [Known; 3] = [
    (
        RuntimeKind::Podman,
        &["/usr/bin/podman", "/usr/local/bin/podman"],
        &[
            "/usr/share/containers/containers.conf",
            "/etc/containers/containers.conf",
            "/etc/containers/containers.conf.d",
        ],
        "/etc/containers/containers.conf.d",
    ),
    (
        RuntimeKind::Enroot,
        &["/etc/enroot"],
        &["/etc/enroot/mounts.d"],
        "/etc/enroot/mounts.d",
    ),
    (
        RuntimeKind::Docker,
        &[
            "/usr/bin/dockerd",
            "/usr/sbin/dockerd",
            "/usr/local/bin/dockerd",
        ],
        &["/etc/cdi", "/var/run/cdi"],
        "/etc/cdi",
    ),
];

/// Looks below `root`, which is `/`.
pub(crate) fn look(root: &Path) -> Vec<Runtime> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let apptainer = APPTAINER.iter().filter_map(|place| {
        let text = std::fs::read_to_string(below(place)).ok()?;
        Some(Runtime {
            kind: RuntimeKind::Apptainer,
            place: (*place).into(),
            text,
        })
    });
    let others = OTHERS.iter().filter_map(|(kind, signs, read, place)| {
        let is_here = signs.iter().any(|sign| below(sign).exists());
        is_here.then(|| Runtime {
            kind: *kind,
            place: (*place).into(),
            text: read.iter().map(|path| texts(&below(path))).collect(),
        })
    });
    apptainer.chain(others).collect()
}

/// The text of a file, or of all files in a folder. Unreadable ones are left out.
fn texts(path: &Path) -> String {
    let files: Vec<PathBuf> = match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.into()],
    };
    let texts = files
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok());
    texts.map(|text| text + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_their_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(look(root.path()).is_empty());
        write("usr/local/etc/apptainer/apptainer.conf", "bind path = /a");
        write("usr/bin/podman", "");
        write("etc/containers/containers.conf", "b");
        write("etc/containers/containers.conf.d/c.conf", "c");
        write("etc/enroot/enroot.conf", "");
        write("usr/sbin/dockerd", "");
        write("etc/cdi/nvidia.yaml", "d");
        let runtimes = look(root.path());
        let found: Vec<_> = runtimes
            .iter()
            .map(|one| (one.kind, one.place.as_str(), one.text.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (RuntimeKind::Apptainer, APPTAINER[1], "bind path = /a"),
                (RuntimeKind::Podman, OTHERS[0].3, "b\nc\n"),
                (RuntimeKind::Enroot, OTHERS[1].3, ""),
                (RuntimeKind::Docker, OTHERS[2].3, "d\n"),
            ]
        );
    }
}
