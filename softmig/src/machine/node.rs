//! `softmig node`: whether the hook limits anything on this node, and the switch for it.

pub(crate) mod jobs;
mod refusals;
mod settings;

use crate::ask::monitor;
use crate::files::config_lock::{Etc, be_root};
use crate::machine::preload;
use crate::machine::scheduler;
use crate::output::say::say;
use anyhow::Context;
use clap::{Args, ValueEnum};
use jobs::Survey;
use refusals::Refusals;
pub(crate) use settings::Settings;
use softmig_node::gpu::installed;
use softmig_node::job::JobId;
use softmig_node::node::Node as NodeFolders;
use softmig_node::usage_socket;
use softmig_policy::node::node_conf::{Identity, NodeConf, NodeMode};
use softmig_policy::node::paths::NODE_CONF;

/// Shows what softmig does on this node, or changes it.
///
/// Without MODE shows the mode, since when it holds, whether library and monitor are at work, how jobs share each
/// GPU, to root also what the monitor ended or would have ended, and in observe mode what the hook reported that it
/// would have refused. With MODE writes it to /etc/softmig/node.conf; that holds for processes started from then on.
/// The switch to enforce first gives a conf to the GPU jobs that run here without one, so that they keep their GPUs.
///
/// Exit status: 0 done, 2 wrong usage, 1 all else; then the mode is as it was.
#[derive(Args)]
pub(crate) struct Node {
    /// The node's mode from now on
    mode: Option<Mode>,
    /// Enforce also when slurmctld does not say what jobs without a conf may take: their new processes see no GPU
    #[arg(long, requires = "mode")]
    anyway: bool,
}

/// The modes, as people type them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Jobs are held to their limits
    Enforce,
    /// Nothing is refused; what would have been is counted
    Observe,
    /// The library does nothing, as if it were not there
    Off,
}

impl From<Mode> for NodeMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Enforce => Self::Enforce,
            Mode::Observe => Self::Observe,
            Mode::Off => Self::Off,
        }
    }
}

impl Node {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self.mode {
            None => show(),
            Some(mode) => {
                be_root("softmig node MODE")?;
                prepare(mode.into(), self.anyway)?;
                switch(&Etc::lock()?, mode.into())?;
                tell_whether_loaded();
                Ok(())
            }
        }
    }
}

/// Shows the node's state.
fn show() -> anyhow::Result<()> {
    let Some(settings) = Settings::read()? else {
        say!("no mode: {NODE_CONF} does not exist, so softmig does nothing here");
        say!("next: 'softmig install --hook' makes this a node of softmig's");
        return Ok(());
    };
    let NodeConf { mode, identity } = settings.conf()?;
    let since = humantime::format_rfc3339_seconds(settings.since);
    say!("mode:      {mode}, since {since}");
    say!(
        "jobs:      {}",
        match identity {
            Identity::Cgroup => "known by their control groups",
            Identity::Env => "known by their environment, which they can change",
        }
    );
    match preload::named_libraries()?.as_slice() {
        [] => say!("library:   not loaded; 'softmig install --hook' changes that"),
        paths => say!("library:   {} is in {}", paths.join(", "), preload::PATH),
    }
    for path in preload::missing_libraries()? {
        say!(
            "           {path} is not there, and every process complains: 'softmig install --hook' puts it back, \
             'softmig uninstall --hook' takes it out of the list"
        );
    }
    if monitor::runs() {
        let version = monitor::running_version().unwrap_or_default();
        let what = match mode {
            NodeMode::Observe => "would divide each GPU's time among its jobs if the node enforced",
            _ => "divides each GPU's time among its jobs",
        };
        say!("monitor:   {version}runs, and {what}");
        if monitor::process().is_some_and(|process| process.replaced) {
            say!(
                "           it is from before an upgrade: 'systemctl restart softmig-monitor' starts the new one"
            );
        }
    } else {
        say!(
            "monitor:   does not run, so each job keeps its own cap on a GPU's time: {}",
            monitor::START
        );
    }
    if let Ok(told) = usage_socket::ask(&NodeFolders::this_machine())
        && let Some(ending) = told.ending
    {
        say!("           {ending}");
    }
    if softmig_gate::is_set_up(&NodeFolders::this_machine().gate) {
        say!("gate:      in jobs with slices only programs with the library can open a GPU");
    }
    show_gpus();
    if mode == NodeMode::Observe {
        crate::output::say::text(format_args!(
            "{}",
            Refusals::count(&NodeFolders::this_machine(), settings.since)
        ));
        say!(
            "jobs without a log and processes outside jobs report to the system's: 'journalctl -t softmig'"
        );
    }
    Ok(())
}

/// Tells how jobs share each GPU.
fn show_gpus() {
    let node = NodeFolders::this_machine();
    let mut cards = installed(&node.gpus);
    cards.sort_by_key(|card| card.minor);
    for card in cards {
        let how = scheduler::shared(&scheduler::kept(&node, &card));
        let gpu = format!("GPU {}:", card.minor);
        say!("{gpu:<10} {}, shared {how}", card.model);
    }
}

/// The mode is written by now, so nothing that is wrong with the list makes this a failure.
fn tell_whether_loaded() {
    match preload::named_libraries() {
        Ok(named) if named.is_empty() => {
            say!("the library is not loaded here yet: 'softmig install --hook'");
        }
        Ok(_) => {}
        Err(error) => {
            eprintln!("softmig node: whether the library is loaded is not known: {error:#}")
        }
    }
}

/// Sees to it that jobs keep their GPUs in this mode. Asks slurmctld, which may take long: so never under the lock, for
/// which switching the node off would have to wait.
pub(crate) fn prepare(mode: NodeMode, anyway: bool) -> anyhow::Result<()> {
    match mode {
        NodeMode::Enforce => report(&jobs::give_confs(&NodeFolders::this_machine())?, anyway),
        NodeMode::Observe | NodeMode::Off => Ok(()),
    }
}

/// Changes the mode.
pub(crate) fn switch(etc: &Etc, mode: NodeMode) -> anyhow::Result<()> {
    write(etc, mode)?;
    if mode != NodeMode::Enforce {
        let folder = NodeFolders::this_machine().gate;
        let taken = softmig_gate::remove(&folder);
        if taken.with_context(|| format!("removing the device gate, {}", folder.display()))? {
            say!("the device gate is gone");
        }
    }
    Ok(())
}

fn write(etc: &Etc, mode: NodeMode) -> anyhow::Result<()> {
    let before = Settings::read_in(&etc.dir)?.and_then(|settings| settings.conf().ok());
    // Left as it is, its time goes on saying since when.
    if before.is_some_and(|conf| conf.mode == mode) {
        say!("{NODE_CONF}: the mode was {mode} already");
        return Ok(());
    }
    for line in settings::set(etc, mode)? {
        eprintln!("softmig node: {line}");
    }
    say!("{NODE_CONF}: the mode is {mode}, for processes started from now on");
    Ok(())
}

/// Says what jobs without a conf got, and stops when that would take away GPUs unasked.
fn report(survey: &Survey, anyway: bool) -> anyhow::Result<()> {
    for (id, what) in &survey.given {
        say!("job {id} ran without a conf; it has one now: {what}");
    }
    for id in &survey.named {
        say!("job {id} ran without its SLUID for a name of its conf; it has that now");
    }
    if survey.unknown.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = survey.unknown.iter().map(JobId::to_string).collect();
    let ids = ids.join(", ");
    let why = survey.silence.as_deref().unwrap_or("unknown");
    let consequence = format!(
        "these jobs run here without a conf, and what they may take cannot be found out ({why}): {ids}; \
         where enforced, those among them that have GPUs would see none in the processes that they start"
    );
    anyhow::ensure!(
        anyway,
        "{consequence}; the mode stays as it is: try again when slurmctld answers, or when these jobs have ended, \
         or with --anyway"
    );
    eprintln!(
        "softmig node: {consequence}; 'softmig node enforce' gives them one when slurmctld answers"
    );
    Ok(())
}
