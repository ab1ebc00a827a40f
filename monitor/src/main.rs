//! softmig-monitor: the daemon of a GPU node, started by systemd; with `--once` a look at the node.

#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use clap::Parser;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use softmig_monitor::Cli;
use softmig_monitor::arbiter::{self, Arbiter, Jobs, Settings};
use softmig_monitor::enforce::tally::Tally;
use softmig_monitor::gate::{self, Keeper};
use softmig_monitor::measure::{Measure, report::Report, table};
use softmig_monitor::notify;
use softmig_monitor::packs;
use softmig_monitor::usage::{Shared, socket};
use softmig_monitor::watch::Watch;
use softmig_node::dir::Dir;
use softmig_node::node::Node;
use softmig_node::report as log;
use softmig_node::usage_socket;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tracing::{error, info};

/// The group whose members are told it.
const GROUP: &str = "softmig";

/// How long the end waits for a look that is under way: a GPU that is lost can keep it for ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// A round of the thread that measures takes far less, and one begins each second.
const LATE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let node = Node::this_machine();
    if let Some(user) = cli.prove_load {
        softmig_proof::load(user);
    }
    let done = if let Some(folder) = cli.pack {
        log::start(c"softmig-monitor", None);
        let done = packs::supervise(&node, &folder).context("having an MPS server");
        log::finish();
        done.map(|()| ExitCode::SUCCESS)
    } else if cli.borrow {
        let done = arbiter::borrow().context("borrowing files");
        done.map(|()| ExitCode::SUCCESS)
    } else if let Some(uuid) = cli.prove {
        be_outside().and_then(|()| prove(|program| softmig_proof::prove(&uuid, program)))
    } else if let Some(folder) = cli.prove_pack {
        be_outside().and_then(|()| prove(|program| packs::prove(&folder, program)))
    } else if cli.once {
        be_outside().and_then(|()| once(node, cli.json))
    } else {
        be_outside().and_then(|()| daemon(node))
    };
    done.unwrap_or_else(|error| {
        eprintln!("softmig-monitor: {error:#}");
        ExitCode::FAILURE
    })
}

/// Fails where it would be shown less than there is: the library is in this process too, and the control groups of
/// processes are told as they look from here.
fn be_outside() -> anyhow::Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root is shown all processes; try it with sudo"
    );
    Ok(softmig_node::whole_node::whole_node()?)
}

/// Measures something, in a process that does nothing else.
fn prove<T: Serialize>(
    measure: impl FnOnce(&Path) -> Result<T, softmig_proof::Trouble>,
) -> anyhow::Result<ExitCode> {
    softmig_proof::confine().context("giving up rights")?;
    let outcome = measure(Path::new(arbiter::OWN_PROGRAM));
    let outcome = outcome.map_err(|trouble| trouble.to_string());
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(ExitCode::SUCCESS)
}

/// Looks and tells.
fn once(node: Node, json: bool) -> anyhow::Result<ExitCode> {
    let usage = usage_socket::ask(&node);
    let mut report = Measure::new(node).report();
    match usage {
        Ok(usage) => report.usage = Some(usage),
        Err(error) => report.usage_error = Some(error.to_string()),
    }
    let text = if json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        table::text(&report)
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("writing to standard output")?;
    Ok(status(&report))
}

fn status(report: &Report) -> ExitCode {
    if report.error.is_some() {
        ExitCode::FAILURE
    } else if report.findings().next().is_some() {
        ExitCode::from(3)
    } else if report.is_incomplete() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Runs until a signal says that it is enough.
fn daemon(node: Node) -> anyhow::Result<ExitCode> {
    softmig_node::node::set_umask();
    // Before any thread, so that none is ended by them.
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("asking for signals")?;
    let policy = node.policy().ok();
    let log_file = policy.and_then(|policy| policy.log_file);
    log::start(c"softmig-monitor", log_file.as_deref());

    let socket = node.arbiter_socket();
    let gate = Keeper::new(node.clone());
    // Before the first process asks.
    gate.round();
    let arbiter = Arc::new(arbiter(&node, gate.clone())?);
    let tally = Arc::new(Tally::default());
    let shared = Arc::new(Shared::default());
    let told = node.run.join(usage_socket::NAME);
    let group = uzers::get_group_by_name(GROUP).map(|group| group.gid());
    let listening = || format!("listening at {}", told.display());
    socket::serve(&told, group, Arc::clone(&shared)).with_context(listening)?;
    let watch = Watch::new(node, Arc::downgrade(&arbiter), tally, shared);
    let (end, until) = channel();
    let (ended, all) = channel::<()>();
    let (measured, each) = channel();
    let thread = std::thread::Builder::new().name("measure".into());
    thread
        .spawn(move || {
            go_on(watch, &until, &measured);
            drop(ended);
        })
        .context("starting to measure")?;
    keep_gate(gate)?;
    say_if_nothing_is_measured(each)?;
    info!("giving seats, and measuring jobs from outside");
    notify::ready();
    feed_watchdog(socket)?;

    let signal = signals.forever().next();
    notify::stopping();
    info!("ends, by signal {}", signal.unwrap_or_default());
    drop(end);
    let _ = std::fs::remove_file(told);
    // Jobs learn it now, and go on with their own caps.
    drop(arbiter);
    if all.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        error!("the driver still has not answered");
    }
    log::finish();
    Ok(ExitCode::SUCCESS)
}

/// Looks after the device gate until this process ends.
fn keep_gate(gate: Keeper) -> anyhow::Result<()> {
    let keep = move || {
        loop {
            std::thread::sleep(gate::INTERVAL);
            gate.round();
        }
    };
    let thread = std::thread::Builder::new().name("gate".into());
    thread
        .spawn(keep)
        .context("starting to look after the device gate")?;
    Ok(())
}

/// Says when the thread that measures has not ended a round for long: the driver can keep it.
fn say_if_nothing_is_measured(each: Receiver<()>) -> anyhow::Result<()> {
    let say = move || {
        let mut is_late = false;
        loop {
            let told = each.recv_timeout(LATE);
            match (told, is_late) {
                (Err(RecvTimeoutError::Disconnected), _) => return,
                (Err(RecvTimeoutError::Timeout), false) => error!(
                    "jobs were not measured for {} s, and no process is ended meanwhile: the driver does not answer",
                    LATE.as_secs()
                ),
                (Ok(()), true) => info!("jobs are measured again"),
                (Err(RecvTimeoutError::Timeout), true) | (Ok(()), false) => {}
            }
            is_late = told.is_err();
        }
    };
    let thread = std::thread::Builder::new().name("late".into());
    thread.spawn(say).context("starting to look at the time")?;
    Ok(())
}

/// Tells systemd again and again that processes get answers, where it asks.
fn feed_watchdog(socket: PathBuf) -> anyhow::Result<()> {
    let Some(limit) = notify::watchdog() else {
        return Ok(());
    };
    let feed = move || {
        loop {
            match arbiter::check(&socket, limit / 8) {
                Ok(()) => {
                    notify::alive();
                    std::thread::sleep(limit / 4);
                }
                Err(error) => {
                    error!("processes get no answer: {error}");
                    std::thread::sleep(limit / 16);
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("watchdog".into());
    thread
        .spawn(feed)
        .context("starting to feed the watchdog")?;
    Ok(())
}

/// Starts to give seats.
fn arbiter(node: &Node, gate: Keeper) -> anyhow::Result<Arbiter> {
    Dir::make(&node.run, node.owner)?;
    let settings = Settings {
        socket: node.arbiter_socket(),
        node: Some(node.clone()),
        gate: Some(gate),
        ..Settings::default()
    };
    let jobs = Jobs::new(node.clone(), "/proc".into());
    let starting = || format!("starting to give seats at {}", settings.socket.display());
    Arbiter::start(settings.clone(), jobs).with_context(starting)
}

/// Looks until the other end is dropped, and tells of each round.
fn go_on(mut watch: Watch, until: &Receiver<()>, measured: &Sender<()>) {
    let mut wait = Duration::ZERO;
    while until.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        wait = watch.round();
        let _ = measured.send(());
    }
}
