//! Slurm's accounting of jobs, as `sacct --parsable2` prints it: the one place that knows its columns.

use crate::job::JobId;
use crate::slurmctld::{AskError, Commands};
use std::collections::HashMap;

/// The columns about all jobs and their steps. The last may hold the separator.
pub const HISTORY: &str = "JobIDRaw,User,Account,Partition,QOS,Submit,Eligible,Start,End,AllocTRES,\
     TRESUsageInMax,TRESUsageInTot,AdminComment";

/// The columns about one job. The last may hold the separator.
const ONE: &str = "JobIDRaw,JobID,User,State,NodeList,Start,End,AllocTRES,AdminComment";

/// How sacct writes a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// `2026-11-23T21:16:05`, where the machine is.
    Local,
    /// In seconds since 1970.
    Seconds,
}

/// Asks about one job. sacct shows what this user may see.
pub fn ask(commands: &Commands, id: JobId, times: Times) -> Result<String, AskError> {
    answer(commands, &id.to_string(), times)
}

fn answer(commands: &Commands, job: &str, times: Times) -> Result<String, AskError> {
    let (which, columns) = (format!("--jobs={job}"), format!("--format={ONE}"));
    let words = ["--allocations", "--parsable2", &which, &columns];
    match times {
        Times::Local => commands.answer("sacct", &words),
        Times::Seconds => commands.answer_in_seconds("sacct", &words),
    }
}

/// The number of a job that is known to people as a task of an array, `6_2`, or a component, `6+1`.
pub fn id_of(commands: &Commands, name: &str) -> Result<Option<JobId>, AskError> {
    Ok(named(&answer(commands, name, Times::Local)?, name))
}

fn named(answer: &str, name: &str) -> Option<JobId> {
    JobId::parse(find(answer, |row| row.name == name)?.id)
}

/// The job's own line of an answer with a header: the number of an array's last task names the array, too.
pub fn row_of(answer: &str, id: JobId) -> Option<Row<'_>> {
    let own = id.to_string();
    find(answer, |row| row.id == own)
}

/// A line of an answer with a header.
fn find<'a>(answer: &'a str, is_it: impl Fn(&Row<'a>) -> bool) -> Option<Row<'a>> {
    let mut lines = answer.lines();
    let columns = Columns::parse(lines.next()?);
    lines.filter_map(|line| columns.row(line)).find(is_it)
}

/// Where the columns are, by a header.
#[derive(Debug)]
pub struct Columns {
    count: usize,
    at: HashMap<String, usize>,
}

/// A line, of a job or of a step. A column that the header does not have is empty.
#[derive(Debug)]
pub struct Row<'a> {
    /// `7` of a job, `7.0` of a step.
    pub id: &'a str,
    /// The same as people know it: `6_2`.
    pub name: &'a str,
    /// Its user.
    pub user: &'a str,
    /// Its account.
    pub account: &'a str,
    /// Its partition.
    pub partition: &'a str,
    /// Its QOS.
    pub qos: &'a str,
    /// Slurm's words for its state.
    pub state: &'a str,
    /// A list of its nodes.
    pub nodes: &'a str,
    /// When it was submitted.
    pub submit: &'a str,
    /// From when on it could have run.
    pub eligible: &'a str,
    /// When it started.
    pub start: &'a str,
    /// When it ended.
    pub end: &'a str,
    /// The TRES that it had.
    pub tres: &'a str,
    /// The use of its tasks: the highest, and the sum.
    pub used: [&'a str; 2],
    /// Its AdminComment.
    pub comment: &'a str,
}

impl Columns {
    /// Reads a header.
    pub fn parse(header: &str) -> Self {
        let names = header.split('|').map(str::to_string);
        let at: HashMap<String, usize> = names.enumerate().map(|(at, name)| (name, at)).collect();
        Self {
            count: header.split('|').count(),
            at,
        }
    }

    /// Whether there is a column of this name.
    pub fn has(&self, name: &str) -> bool {
        self.at.contains_key(name)
    }

    /// Reads a line; `None` if it has too few columns, or is not about a job.
    pub fn row<'a>(&self, line: &'a str) -> Option<Row<'a>> {
        let cells: Vec<&str> = line.splitn(self.count, '|').collect();
        if cells.len() != self.count {
            return None;
        }
        let cell = |name: &str| {
            let at = self.at.get(name);
            at.and_then(|&at| cells.get(at)).copied().unwrap_or("")
        };
        let id = cell("JobIDRaw");
        id.starts_with(|first: char| first.is_ascii_digit())
            .then(|| Row {
                id,
                name: cell("JobID"),
                user: cell("User"),
                account: cell("Account"),
                partition: cell("Partition"),
                qos: cell("QOS"),
                state: cell("State"),
                nodes: cell("NodeList"),
                submit: cell("Submit"),
                eligible: cell("Eligible"),
                start: cell("Start"),
                end: cell("End"),
                tres: cell("AllocTRES"),
                used: ["TRESUsageInMax", "TRESUsageInTot"].map(cell),
                comment: cell("AdminComment"),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_found_by_its_name() {
        let answer = "JobIDRaw|JobID\n6|6_7\n8|6_1\n9|6_2\n";
        let found = |name| named(answer, name).map(|id| id.to_string());
        assert_eq!(found("6_2").as_deref(), Some("9"));
        assert_eq!(found("6_7").as_deref(), Some("6"));
        assert_eq!(found("6_3"), None);
    }

    #[test]
    fn a_line_is_read_by_its_header() {
        let columns = Columns::parse("End|JobIDRaw|AdminComment");
        assert!(columns.has("End") && !columns.has("Start"));
        let row = columns.row("60|7.0|a|b").unwrap();
        assert_eq!(
            (row.id, row.start, row.end, row.comment),
            ("7.0", "", "60", "a|b")
        );
        for other in ["60|7", "60|x|", ""] {
            assert!(columns.row(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_line_of_the_job_itself_is_found() {
        let answer = format!(
            "{}\n6|5_3|bob|RUNNING|n1|1|Unknown||\n7|5_[4]|bob|PENDING||Unknown|Unknown||x|y\n",
            ONE.replace(',', "|")
        );
        let id = |text: &str| JobId::parse(text).unwrap();
        let row = row_of(&answer, id("7")).unwrap();
        assert_eq!((row.name, row.comment), ("5_[4]", "x|y"));
        assert!(row_of(&answer, id("5")).is_none());
        assert!(row_of("", id("7")).is_none());
    }
}
