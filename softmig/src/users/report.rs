//! `softmig report`: what slices were asked for, and what was used of them.

mod rows;

use crate::ask::sacct;
use crate::files::policy_file;
use crate::output::say;
use crate::output::table::{self, whole};
use crate::users::whose::{self, Whose};
use anyhow::bail;
use clap::Args;
use rows::{By, Report as Rows, Row};
use softmig_policy::Policy;
use std::path::PathBuf;

/// Shows what users, accounts and classes asked for, and what they used of it.
///
/// Counts your own jobs; root's report counts all jobs. It reads Slurm's accounting. What a job used is in its AdminComment, if
/// policy.toml has admin_comment under [report].
#[derive(Args)]
pub(crate) struct Report {
    /// From when on, as sacct's --starttime takes it
    #[arg(
        long,
        value_name = "TIME",
        default_value = "now-30days",
        conflicts_with = "file"
    )]
    since: String,
    #[command(flatten)]
    whose: Whose,
    /// A file with what sacct printed, instead of asking it; all its jobs count
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "all"])]
    file: Option<PathBuf>,
    /// By what to add up
    #[arg(
        long,
        value_name = "KEY",
        value_delimiter = ',',
        default_value = "user,account,class"
    )]
    by: Vec<By>,
    /// The policy with the slices and classes
    #[arg(long, value_name = "FILE", default_value = Policy::PATH)]
    policy: PathBuf,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a line with commas for each row
    #[arg(long)]
    csv: bool,
}

impl Report {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let policy = match policy_file::read(&self.policy) {
            Ok(file) => Some(file.policy),
            Err(error) => {
                say::error_line(&format!(
                    "softmig report: {error:#}; without it classes are named by their QOS, and smaller slices are not known"
                ));
                None
            }
        };
        let user = self.user()?;
        let history = match &self.file {
            Some(file) => sacct::of_file(file)?,
            None => sacct::of_slurm(&self.since, user.as_deref())?,
        };
        let report = rows::report(&history, policy.as_ref(), &self.by);
        let text = match (self.json, self.csv) {
            (true, _) => format!("{}\n", serde_json::to_string_pretty(&report)?),
            (_, true) => csv(&report)?,
            _ => self.plain(&report, user.as_deref()),
        };
        say::text(format_args!("{text}"));
        Ok(())
    }

    /// The user whose jobs count; `None` for those of all users.
    fn user(&self) -> anyhow::Result<Option<String>> {
        if self.file.is_some() {
            return Ok(None);
        }
        // sacct takes a number as well, of a user who has left.
        if let Some(name) = &self.whose.user
            && name.parse::<u32>().is_err()
            && uzers::get_user_by_name(name).is_none()
        {
            bail!("--user={name}: the user does not exist");
        }
        let uid = uzers::get_current_uid();
        let own = whose::name(uid).unwrap_or_else(|| uid.to_string());
        Ok(self.whose.listed(uid, Some(own)))
    }

    fn plain(&self, report: &Rows, user: Option<&str>) -> String {
        let keys = [
            (By::User, "USER"),
            (By::Account, "ACCOUNT"),
            (By::Class, "CLASS"),
        ]
        .into_iter()
        .filter(|(by, _)| self.by.contains(by));
        let mut titles: Vec<String> = keys.clone().map(|(_, title)| title.to_string()).collect();
        let names = titles.len();
        let figures = [
            "JOBS",
            "GPU HOURS",
            "MEMORY",
            "TIME",
            "WAITED",
            "IDLE",
            "SMALLER",
            "SAVES",
        ];
        titles.extend(figures.map(str::to_string));
        let mut table = vec![titles];
        for row in &report.rows {
            let mut cells: Vec<String> = keys
                .clone()
                .map(|(by, _)| match by {
                    By::User => row.user.clone(),
                    By::Account => row.account.clone(),
                    By::Class => row.class.clone(),
                })
                .collect();
            cells.extend(cells_of(row));
            table.push(cells);
        }
        if report.rows.len() > 1 {
            let mut cells = vec![String::new(); names];
            cells[0] = "all".to_string();
            cells.extend(cells_of(&report.all));
            table.push(cells);
        }
        let mut text = match (report.rows.is_empty(), user) {
            (true, None) => "There are no jobs with slices that ended.\n".to_string(),
            (true, Some(user)) => format!(
                "sacct shows no jobs of {user} with slices that ended; --all counts the jobs of all users.\n"
            ),
            (false, _) => table::text(&table, names),
        };
        let all = &report.all;
        for (count, what, which) in [
            (
                all.unknown_jobs,
                "job",
                "without a summary: only JOBS and GPU HOURS count them",
            ),
            (
                report.whole_gpu_jobs,
                "job",
                "with whole GPUs: see softmig advise",
            ),
            (report.running, "job", "not ended yet"),
            (report.unreadable_lines, "line", "that could not be read"),
        ] {
            if count > 0 {
                let end = if count == 1 { "" } else { "s" };
                text += &format!("{} {what}{end} {which}\n", whole(count as f64));
            }
        }
        text
    }
}

fn cells_of(row: &Row) -> [String; 8] {
    let percent = |part: Option<f64>| match part {
        Some(part) => format!("{:.0} %", part * 100.0),
        None => "-".to_string(),
    };
    // Short ones matter to a single user.
    let hours = |hours: f64| match hours {
        ..100.0 => format!("{hours:.1}"),
        _ => whole(hours),
    };
    [
        whole(row.jobs as f64),
        hours(row.gpu_hours),
        percent(row.memory),
        percent(row.time),
        percent(row.waited),
        hours(row.idle_gpu_hours),
        whole(row.smaller_jobs as f64),
        hours(row.smaller_saves_gpu_hours),
    ]
}

fn csv(report: &Rows) -> anyhow::Result<String> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    for row in &report.rows {
        lines.serialize(row)?;
    }
    Ok(String::from_utf8(lines.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn command(words: &[&str]) -> Result<Report, clap::Error> {
        let command = Report::augment_args(clap::Command::new("report").no_binary_name(true));
        Report::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn all_jobs_of_a_file_count_and_else_those_of_a_user_who_exists() {
        let user = |words: &[&str]| command(words).unwrap().user();
        assert_eq!(user(&["--file", "jobs"]).unwrap(), None);
        assert_eq!(user(&["--all"]).unwrap(), None);
        assert_eq!(user(&["--user=games"]).unwrap().as_deref(), Some("games"));
        assert_eq!(user(&["--user=4711"]).unwrap().as_deref(), Some("4711"));
        let error = user(&["--user=alice,games"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--user=alice,games: the user does not exist"
        );
        for other in ["--all", "--user=games"] {
            assert!(command(&["--file", "jobs", other]).is_err());
        }
    }

    #[test]
    fn a_user_without_jobs_learns_of_the_option_for_all() {
        let history = sacct::History::default();
        let report = rows::report(&history, None, &[By::User]);
        let plain = |user| command(&[]).unwrap().plain(&report, user);
        assert_eq!(
            plain(Some("dave")),
            "sacct shows no jobs of dave with slices that ended; --all counts the jobs of all users.\n"
        );
        assert_eq!(plain(None), "There are no jobs with slices that ended.\n");
    }
}
