//! Writes the manual pages and the completions of shells. `cargo xtask stage` runs it with usr/share of its tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

/// Where each shell looks for completions, below usr/share.
pub const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

fn main() -> anyhow::Result<()> {
    let share = std::env::args_os().nth(1).context("usage: manual FOLDER")?;
    write(Path::new(&share))
}

/// Writes all into the folder.
pub fn write(share: &Path) -> anyhow::Result<()> {
    let pages = folder(share, "man/man1")?;
    clap_mangen::generate_to(softmig::command(), &pages)?;
    let daemons = [
        softmig_monitor::Cli::command(),
        softmig_exporter::cli::Cli::command(),
    ];
    let pages = folder(share, "man/man8")?;
    for daemon in daemons.clone() {
        Man::new(daemon).section("8").generate_to(&pages)?;
    }
    for (shell, place) in COMPLETIONS {
        let folder = folder(share, place)?;
        for mut command in [softmig::command()].into_iter().chain(daemons.clone()) {
            let name = command.get_name().to_string();
            let file = generate_to(shell, &mut command, &name, &folder)?;
            // Bash looks for a file of the command's name.
            if shell == Shell::Bash {
                fs::rename(file, folder.join(name))?;
            }
        }
    }
    Ok(())
}

fn folder(share: &Path, place: &str) -> anyhow::Result<PathBuf> {
    let folder = share.join(place);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}
