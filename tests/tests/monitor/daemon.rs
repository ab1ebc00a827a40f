//! The daemon: how a test starts it, and how it comes and goes.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use softmig_tests::{Client, Output};

use super::{MONITOR, on_node, root, with_the_units_rights};

/// The daemon, started as systemd does.
pub struct Daemon<'a> {
    node: &'a softmig_tests::Node,
    process: Option<Client>,
    systemd: UnixDatagram,
}

pub const LOG: &str = "/var/log/softmig/node.log";
/// A ping to systemd's watchdog.
const ALIVE: &str = "WATCHDOG=1";

impl<'a> Daemon<'a> {
    pub fn start(node: &'a softmig_tests::Node) -> Result<Daemon<'a>> {
        Daemon::start_by(node, "")
    }

    /// The same, with these words before its command line.
    pub fn start_by(node: &'a softmig_tests::Node, words: &str) -> Result<Daemon<'a>> {
        let socket = node.path("/run/notify")?;
        let _ = std::fs::remove_file(&socket);
        let systemd = UnixDatagram::bind(&socket).context("binding systemd's socket")?;
        systemd.set_read_timeout(Some(Duration::from_secs(60)))?;
        let rights = with_the_units_rights()?;
        let line = format!("echo $$ >/run/monitor.pid; exec {words} {rights} {MONITOR}");
        let call = node
            .command("root", &["sh", "-c", &line])
            .env("NOTIFY_SOCKET", "/run/notify")
            .env("WATCHDOG_USEC", "30000000");
        let daemon = Daemon {
            node,
            process: Some(call.spawn()?),
            systemd,
        };
        daemon.hears("READY=1")?;
        daemon.hears(ALIVE)?;
        Ok(daemon)
    }

    pub fn hears(&self, what: &str) -> Result<()> {
        let mut buffer = [0; 64];
        loop {
            let length = self.systemd.recv(&mut buffer).context(what.to_owned())?;
            let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if said == what {
                return Ok(());
            }
            ensure!(said == ALIVE, "{said} instead of {what}");
        }
    }

    pub fn end(self) -> Result<Output> {
        self.signal("TERM")?;
        self.hears("STOPPING=1")?;
        self.wait()
    }

    /// Kills it, and none of those that it has started.
    pub fn kill(self) -> Result<()> {
        self.signal("KILL")?;
        self.wait().map(drop)
    }

    fn signal(&self, name: &str) -> Result<()> {
        let line = format!("kill -{name} $(cat /run/monitor.pid)");
        self.node.run_as_root(&["sh", "-c", &line])?.ok().map(drop)
    }

    fn wait(mut self) -> Result<Output> {
        let process = self.process.take().context("it ended before")?;
        process.wait(Duration::from_secs(60))
    }

    pub fn log(&self) -> Result<String> {
        Ok(self.node.read(LOG)?.unwrap_or_default())
    }
}

#[test]
fn the_daemon_needs_no_driver_runs_once_and_ends_when_told() -> Result<()> {
    let machine = root().start()?;
    let node = &machine.nodes()[0];
    let socket = "/var/run/softmig/arbiter.sock";
    let usage = "/var/run/softmig/usage.sock";
    let softmig = |line: &str| on_node(&machine, &format!("softmig {line}"))?.ok();
    let alone = softmig("install --hook")?;
    let starts = "'systemctl enable --now softmig-monitor'";
    assert!(alone.contains(starts), "{alone}");
    let alone = softmig("node")?;
    assert!(alone.contains("monitor:   does not run"), "{alone}");
    assert!(alone.contains(starts), "{alone}");
    let daemon = Daemon::start(node)?;
    let said = node.command("alice", &["softmig", "node"]).output()?.ok()?;
    assert!(said.contains("monitor:   runs"), "{said}");
    let said = softmig("install --hook")?;
    assert!(!said.contains("softmig-monitor"), "{said}");
    let said = softmig("uninstall --hook")?;
    assert!(
        said.contains("'systemctl disable --now softmig-monitor'"),
        "{said}"
    );
    let owner = on_node(
        &machine,
        &format!("stat -c '%F %U %a' {socket} {usage} /var/run/softmig"),
    )?;
    assert_eq!(
        owner.ok()?,
        "socket root 666\nsocket root 600\ndirectory root 755\n"
    );
    let second = on_node(&machine, MONITOR)?;
    assert_eq!(second.status.code(), Some(1), "{second}");
    assert!(second.stderr.contains("another arbiter runs"), "{second}");
    let ended = daemon.end()?;
    assert_eq!(ended.status.code(), Some(0), "{ended}");
    assert_eq!(ended.stderr, "");
    assert!(!node.exists(socket)? && !node.exists(usage)?);

    // The remains of a killed one are not in the next one's way.
    let daemon = Daemon::start(node)?;
    daemon.kill()?;
    assert!(node.exists(socket)?);
    let ended = Daemon::start(node)?.end()?;
    assert_eq!(ended.status.code(), Some(0), "{ended}");
    Ok(())
}
