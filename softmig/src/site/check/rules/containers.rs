//! Checks that containers have what the library needs in them.

use crate::site::check::facts::{Machine, Runtime, RuntimeKind};
use crate::site::check::finding::{Code, Finding};
use softmig_policy::node::paths::RUN;
use std::path::Path;

/// The paths that a job's programs need besides the library's folder.
const PATHS: [&str; 3] = ["/etc/ld.so.preload", "/etc/softmig", RUN];

pub(crate) fn check(machine: &Machine) -> Vec<Finding> {
    // If the node itself has no library, another finding says that first.
    let library = machine.preloaded.iter().flatten().next();
    let Some(folder) = library.and_then(|library| Path::new(library).parent()?.to_str()) else {
        return Vec::new();
    };
    let runtimes = machine.runtimes.iter();
    runtimes
        .filter_map(|runtime| of_runtime(runtime, folder))
        .collect()
}

fn of_runtime(runtime: &Runtime, folder: &str) -> Option<Finding> {
    let named = named(runtime);
    let needed = [folder].into_iter().chain(PATHS);
    let missing: Vec<&str> = needed.filter(|path| !names(&named, path)).collect();
    if missing.is_empty() {
        return None;
    }
    let missing = missing.join(", ");
    let (code, file) = match runtime.kind {
        RuntimeKind::Apptainer => (Code::ContainerApptainer, "append apptainer.conf"),
        RuntimeKind::Podman => (Code::ContainerPodman, "copy containers.conf"),
        RuntimeKind::Enroot => (Code::ContainerEnroot, "copy enroot.fstab"),
        RuntimeKind::Docker => (Code::ContainerDocker, "copy softmig.json"),
    };
    Some(Finding::new(
        code,
        &runtime.place,
        format!("containers do not get {missing}, so their programs are not held to a slice"),
        format!("{file} of /usr/share/softmig/examples/containers; see docs/containers.md"),
    ))
}

/// The words of a configuration, without its comments.
fn named(runtime: &Runtime) -> Vec<&str> {
    let lines = runtime.text.lines().map(str::trim_start);
    let counts = |line: &&str| match runtime.kind {
        RuntimeKind::Apptainer => line.starts_with("bind path"),
        _ => !line.starts_with('#'),
    };
    let separates =
        |letter: char| letter.is_whitespace() || matches!(letter, ':' | ',' | '"' | '\'' | '=');
    let words = lines.filter(counts).flat_map(|line| line.split(separates));
    words.map(|word| word.trim_end_matches('/')).collect()
}

/// Whether a path is among the words; /var/run is /run.
fn names(words: &[&str], path: &str) -> bool {
    let short = path.strip_prefix("/var").filter(|_| path == RUN);
    words
        .iter()
        .any(|word| *word == path || Some(*word) == short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{codes, machine};

    /// A file of conf/containers.
    fn conf(name: &str) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conf/containers/");
        std::fs::read_to_string(format!("{folder}{name}")).unwrap()
    }

    fn found(kind: RuntimeKind, text: &str) -> Vec<&'static str> {
        let mut machine = machine();
        machine.runtimes = vec![Runtime {
            kind,
            place: "/etc/x".into(),
            text: text.into(),
        }];
        codes(&check(&machine))
    }

    #[test]
    fn the_files_in_conf_are_what_is_missing() {
        for (kind, file, code) in [
            (
                RuntimeKind::Apptainer,
                "apptainer.conf",
                "CONTAINER_APPTAINER",
            ),
            (RuntimeKind::Podman, "containers.conf", "CONTAINER_PODMAN"),
            (RuntimeKind::Enroot, "enroot.fstab", "CONTAINER_ENROOT"),
            (RuntimeKind::Docker, "softmig.json", "CONTAINER_DOCKER"),
        ] {
            let text = conf(file);
            assert_eq!(found(kind, ""), [code]);
            assert!(found(kind, &text).is_empty(), "{file}");
            // Each path counts, and the short name of one is as good.
            for path in [
                "/usr/lib/softmig",
                "/etc/ld.so.preload",
                "/etc/softmig",
                "/var/run/softmig",
            ] {
                let without = text.replace(path, "/else");
                assert_eq!(found(kind, &without), [code], "{file} {path}");
            }
            assert!(found(kind, &text.replace("/var/run/", "/run/")).is_empty());
            let commented: String = text.lines().map(|line| format!("# {line}\n")).collect();
            assert_eq!(found(kind, &commented), [code]);
        }
    }

    #[test]
    fn the_library_may_be_elsewhere_or_nowhere() {
        let mut machine = machine();
        machine.runtimes = vec![Runtime {
            kind: RuntimeKind::Apptainer,
            place: "/etc/apptainer/apptainer.conf".into(),
            text: conf("apptainer.conf"),
        }];
        machine.preloaded = Ok(vec!["/var/lib/shared/libsoftmig.so".into()]);
        let found = check(&machine);
        assert!(
            found[0].what.contains("do not get /var/lib/shared, so"),
            "{}",
            found[0]
        );
        machine.preloaded = Ok(Vec::new());
        assert!(check(&machine).is_empty());
    }
}
