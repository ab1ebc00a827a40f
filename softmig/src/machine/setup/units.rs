//! softmig's daemon and systemd.

use super::step::Step;
use crate::ask::monitor;
use crate::output::say::say;
use anyhow::{Context, bail, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

const UNIT: &str = "softmig-monitor.service";
/// It runs only where the site enabled it.
const NOTICES: &str = "softmig-notices.service";

/// Whether systemd started this machine.
pub(crate) fn runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Whether its command is here, as in the image of a machine that it will start.
fn is_here() -> bool {
    ["/usr/bin/systemctl", "/bin/systemctl"]
        .iter()
        .any(|path| Path::new(path).exists())
}

/// Runs systemctl; what it says is the error.
pub(crate) fn systemctl(words: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("systemctl")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("running systemctl")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "'systemctl {}' failed: {}; see 'journalctl -u {UNIT}'",
            words.join(" "),
            said.trim()
        );
    }
    Ok(())
}

/// Does nothing, but where all is undone it lets systemd see the old files again.
#[derive(Debug)]
pub(crate) struct Reload;

impl Step for Reload {
    fn needed(&mut self) -> anyhow::Result<Option<String>> {
        Ok(runs().then(String::new))
    }

    fn take(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        systemctl(&["daemon-reload"])?;
        systemctl(&["try-restart", UNIT])
    }

    fn is_told(&self) -> bool {
        false
    }
}

/// Starts the monitor, or starts it again where an older one runs.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    ran: bool,
}

impl Step for Monitor {
    fn needed(&mut self) -> anyhow::Result<Option<String>> {
        let running = monitor::process();
        self.ran = running.is_some();
        if !runs() {
            if is_here() && !self.ran {
                let enabled = systemctl(&["is-enabled", "--quiet", UNIT]).is_ok();
                return Ok((!enabled).then(|| format!("enable {UNIT} for the next start")));
            }
            say!(
                "systemd does not run here: see to it that {} runs, and is started again after an upgrade",
                monitor::PROGRAM
            );
            return Ok(None);
        }
        Ok(match running {
            Some(process) if !process.replaced => None,
            Some(_) => Some(format!("start {UNIT} again, the new one")),
            None => Some(format!("enable {UNIT}, and start it")),
        })
    }

    fn take(&mut self) -> anyhow::Result<()> {
        if !runs() {
            return systemctl(&["enable", UNIT]);
        }
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", UNIT])?;
        systemctl(&["restart", UNIT])
    }

    fn check(&self) -> anyhow::Result<()> {
        if runs() {
            let active = systemctl(&["is-active", "--quiet", UNIT]);
            ensure!(
                active.is_ok(),
                "it does not run; see 'journalctl -u {UNIT}'"
            );
        }
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        match (self.ran, runs()) {
            // It starts again when the old files are back.
            (true, _) => Ok(()),
            (false, true) => systemctl(&["disable", "--now", UNIT]),
            (false, false) => systemctl(&["disable", UNIT]),
        }
    }
}

/// Ends the monitor for good.
#[derive(Debug)]
pub(crate) struct Stop;

impl Step for Stop {
    fn needed(&mut self) -> anyhow::Result<Option<String>> {
        if !runs() {
            if let Some(process) = monitor::process() {
                bail!(
                    "softmig-monitor runs as process {} and systemd does not run here: end it, then do this again",
                    process.pid
                );
            }
            return Ok(is_here().then(|| format!("disable {UNIT}")));
        }
        Ok(Some(format!("stop {UNIT}, and disable it")))
    }

    fn take(&mut self) -> anyhow::Result<()> {
        // A package may have no such unit.
        let _ = if runs() {
            systemctl(&["disable", "--now", NOTICES])
        } else {
            systemctl(&["disable", NOTICES])
        };
        if runs() {
            systemctl(&["disable", "--now", UNIT])
        } else {
            // In an image there may be no such unit any more.
            let _ = systemctl(&["disable", UNIT]);
            Ok(())
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !runs() || monitor::process().is_none(),
            "softmig-monitor still runs"
        );
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        if runs() {
            systemctl(&["enable", "--now", UNIT])
        } else {
            systemctl(&["enable", UNIT])
        }
    }
}
