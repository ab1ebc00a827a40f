//! The needs of a machine's roles, step by step.

use super::image::Image;
use super::library::Library;
use super::place::{PlacedFile, TakeAway};
use super::record::{Record, Written};
use super::role::Role;
use super::script::{SCRIPTS, Script};
use super::step::{Step, Steps};
use super::tree::Tree;
use super::units::{Monitor, Reload};
use crate::files::config_lock::Etc;
use crate::files::policy_file;
use crate::machine::node::Mode;
use crate::output::say::say;
use anyhow::ensure;
use softmig_policy::Policy;
use std::path::{Path, PathBuf};

/// How to install.
#[derive(Debug)]
pub(crate) struct Options {
    /// The tree to install from, unless it is the command's own.
    pub(crate) from: Option<PathBuf>,
    /// The image to install into.
    pub(crate) root: Option<PathBuf>,
    /// The mode of a new node.
    pub(crate) mode: Mode,
    /// Whether to say only.
    pub(crate) dry_run: bool,
}

/// Installs what these roles need.
pub(crate) fn install(roles: &[Role], options: &Options) -> anyhow::Result<()> {
    let tree = Tree::find(options.from.as_deref())?;
    if let Some(root) = &options.root {
        let mode = mode_word(options.mode);
        return Image::at(root)?.run(&tree, &words("install", roles, &["--mode", mode], options));
    }
    let before = Record::read()?;
    let mut all = before.roles.clone();
    all.extend(roles);
    all.sort();
    all.dedup();
    run(&tree, &all, &before, options)
}

/// Brings another release to what is installed.
pub(crate) fn upgrade(roles: &[Role], options: &Options) -> anyhow::Result<()> {
    let tree = Tree::find(options.from.as_deref())?;
    if let Some(root) = &options.root {
        return Image::at(root)?.run(&tree, &words("upgrade", roles, &[], options));
    }
    let before = Record::read()?;
    let roles = match roles {
        [] => before.roles.clone(),
        named => named.to_vec(),
    };
    ensure!(
        !roles.is_empty(),
        "'softmig install' has written down no role of this machine; name its roles: 'softmig upgrade gpu-node' \
         (or controller, submit-host)"
    );
    run(&tree, &roles, &before, options)
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => "off",
    }
}

/// The words of the same command in an image.
fn words(command: &str, roles: &[Role], more: &[&str], options: &Options) -> Vec<String> {
    let roles = roles.iter().map(|role| role.as_str());
    let dry_run = options.dry_run.then_some("--dry-run");
    let words = [command]
        .into_iter()
        .chain(roles)
        .chain(more.iter().copied())
        .chain(dry_run);
    words.map(str::to_string).collect()
}

fn run(tree: &Tree, roles: &[Role], before: &Record, options: &Options) -> anyhow::Result<()> {
    let is_node = roles.contains(&Role::GpuNode);
    let files = tree.files(roles)?;
    let _lock = if options.dry_run {
        None
    } else {
        Some(Etc::lock_for_setup()?)
    };
    let mut steps: Vec<Box<dyn Step>> = Vec::new();
    if is_node {
        // Undone last: by then the old files are back.
        steps.push(Box::new(Reload));
    }
    let mut own = Vec::new();
    if tree.is_apart() {
        for file in &files {
            steps.push(Box::new(PlacedFile::new(&tree.path(file), file)?));
        }
        let gone = before.files.iter().filter(|file| !files.contains(file));
        steps.extend(gone.map(|file| Box::new(TakeAway::new(file)) as Box<dyn Step>));
        own = files;
    }
    let folder = super::script::folder();
    for script in &SCRIPTS {
        if script.role.is_none_or(|role| roles.contains(&role)) {
            steps.push(Box::new(Script::new(tree, script, &folder)));
        }
    }
    if is_node {
        steps.push(Box::new(Library::new(tree, options.mode)));
        steps.push(Box::new(Monitor::default()));
    }
    steps.push(Box::new(Written::new(Record {
        roles: roles.to_vec(),
        files: own,
    })));
    Steps::new(steps).run(options.dry_run)?;
    next(roles, &folder);
    Ok(())
}

/// The administrator's next step.
fn next(roles: &[Role], slurm: &Path) {
    let policy = Path::new(Policy::PATH);
    let missing = !policy.exists();
    if missing {
        say!(
            "next: {} is not there: copy the site's, the same on all machines; 'softmig probe --toml' on a GPU node begins one",
            policy.display()
        );
    } else if let Err(error) = policy_file::read(policy) {
        say!("next: mend {error:#}");
    }
    if roles.contains(&Role::Controller) && !slurm.join("softmig.conf").exists() {
        say!(
            "next: 'softmig config --write {}' makes Slurm's configuration of policy.toml",
            slurm.display()
        );
    }
    say!("next: 'softmig doctor' says whether all is well here, and what to type if it is not");
}
