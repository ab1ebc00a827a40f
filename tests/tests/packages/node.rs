//! A machine on which packages are installed, while users' programs start and end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use softmig_tests::{Client, Machine, Output, Root};

/// The library that processes load. No package has it.
pub(crate) const LIBRARY: &str = "/usr/lib/softmig/libsoftmig.so";
/// The list that names it.
pub(crate) const PRELOAD: &str = "/etc/ld.so.preload";

/// A systemctl that writes down what it was asked, with whether processes load the library at that time.
const SYSTEMCTL: &str = "#!/bin/sh
[ -e /etc/ld.so.preload ] && library=loaded || library=free
echo \"$* ($library)\" >>/tmp/systemctl
";

/// Programs of a user's, one after the other. Each has to end well and to say nothing.
const PROGRAMS: &str = "n=0
while [ ! -e /tmp/stop ]; do
    said=$(/bin/true 2>&1) || echo \"true failed: $?\"
    [ -z \"$said\" ] || echo \"true said: $said\"
    n=$((n + 1)); echo $n >&2
done";

/// A machine with packages in /root, each release in a folder of its own.
pub(crate) struct PackagedNode {
    machine: Machine,
}

impl PackagedNode {
    pub(crate) fn start(root: Root, releases: &[(&str, Vec<PathBuf>)]) -> Result<PackagedNode> {
        let mut root = root;
        for (release, packages) in releases {
            for package in packages {
                let name = package.file_name().context("a package without a name")?;
                root = root.install(package, Path::new("/root").join(release).join(name), 0o644);
            }
        }
        let node = PackagedNode {
            machine: root.start()?,
        };
        // A root's own systemctl does not run without systemd.
        node.write("/usr/bin/systemctl", SYSTEMCTL)?;
        node.shell("mkdir -p /run/systemd/system")?;
        Ok(node)
    }

    /// A script of root's that has to succeed.
    pub(crate) fn shell(&self, script: &str) -> Result<String> {
        self.try_shell(script)?.ok()
    }

    pub(crate) fn try_shell(&self, script: &str) -> Result<Output> {
        self.machine.command("root", &["sh", "-c", script]).output()
    }

    /// The calls of systemctl since the last time.
    pub(crate) fn asked_of_systemd(&self) -> Result<String> {
        self.shell("cat /tmp/systemctl 2>/dev/null; rm -f /tmp/systemctl")
    }

    pub(crate) fn read(&self, path: &str) -> Result<Option<String>> {
        self.machine.read(path)
    }

    pub(crate) fn write(&self, path: &str, contents: &str) -> Result<()> {
        self.machine.write(path, contents)
    }

    /// Starts programs of a user's until they are asked for.
    pub(crate) fn programs(&self) -> Result<Programs<'_>> {
        let client = self
            .machine
            .command("alice", &["sh", "-c", PROGRAMS])
            .spawn()?;
        Ok(Programs { node: self, client })
    }

    /// A user's process, with the library that it has in its memory now.
    pub(crate) fn sleeper(&self) -> Result<Sleeper<'_>> {
        let client = self.machine.command("alice", &["sleep", "1000"]).spawn()?;
        let sleeper = Sleeper {
            node: self,
            _client: client,
        };
        // Until the loader has done its work.
        for _ in 0..500 {
            if sleeper.libraries()?.contains("libsoftmig") {
                return Ok(sleeper);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("a new process does not have the library")
    }

    /// Whether a new process has this library in its memory: the file that the node has, with these bytes.
    pub(crate) fn ensure_live(&self, library: &str) -> Result<()> {
        self.shell(&format!(
            "cmp {LIBRARY} {library}; grep -qx {LIBRARY} {PRELOAD}"
        ))?;
        let maps = self
            .machine
            .command("alice", &["cat", "/proc/self/maps"])
            .output()?;
        ensure!(maps.stderr.is_empty(), "{maps}");
        ensure!(maps.stdout.contains(LIBRARY), "{maps}");
        Ok(())
    }

    /// Fails if the node loads a library.
    pub(crate) fn ensure_free(&self) -> Result<()> {
        let maps = self
            .machine
            .command("alice", &["cat", "/proc/self/maps"])
            .output()?;
        ensure!(
            maps.success() && maps.stderr.is_empty() && !maps.stdout.contains("libsoftmig"),
            "{maps}"
        );
        ensure!(self.read(PRELOAD)?.is_none(), "{PRELOAD} is there");
        self.shell(&format!("! [ -e {LIBRARY} ]"))?;
        Ok(())
    }
}

/// Programs that start and end all the time.
pub(crate) struct Programs<'a> {
    node: &'a PackagedNode,
    client: Client,
}

impl Programs<'_> {
    /// Waits until some more have run, then ends; fails if one of all of them did not run as ever.
    pub(crate) fn end(self) -> Result<()> {
        let count = |client: &Client| -> Result<usize> { Ok(client.stderr()?.lines().count()) };
        let before = count(&self.client)?;
        while count(&self.client)? < before + 3 {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.node.shell("touch /tmp/stop")?;
        let output = self.client.wait(Duration::from_secs(60))?;
        self.node.shell("rm /tmp/stop")?;
        ensure!(output.success() && output.stdout.is_empty(), "{output}");
        Ok(())
    }
}

/// A process that runs on.
pub(crate) struct Sleeper<'a> {
    node: &'a PackagedNode,
    _client: Client,
}

impl Sleeper<'_> {
    /// The softmig libraries in its memory.
    pub(crate) fn libraries(&self) -> Result<String> {
        self.node
            .shell("grep -h softmig /proc/$(pgrep -nx sleep)/maps | awk '{print $6, $7}' | sort -u")
    }
}
