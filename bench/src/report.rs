//! Says what came out: one table on the terminal, the same in `results/README.md`, all of it in `results/latest.json`.

use crate::figure::{Figure, Target};
use crate::host::Host;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The notes of a person on the figures.
const NOTES: &str = include_str!("../notes.md");

#[derive(Serialize)]
struct Run<'a> {
    host: &'a Host,
    figures: &'a [Figure],
}

/// Prints and writes it.
pub(crate) fn report(host: &Host, figures: &[Figure]) -> Result<()> {
    let table = table(figures);
    println!("\n{table}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    fs::create_dir_all(&folder).context("making bench/results")?;
    let json = serde_json::to_string_pretty(&Run { host, figures })?;
    fs::write(folder.join("latest.json"), json + "\n").context("writing the results")?;
    fs::write(folder.join("README.md"), markdown(host, &table)).context("writing the results")?;
    println!("Written to bench/results.");
    Ok(())
}

fn markdown(host: &Host, table: &str) -> String {
    format!(
        "# What softmig costs\n\n\
         Written by `cargo xtask bench`; do not edit. The notes are those of bench/notes.md.\n\n\
         {date}, Linux {kernel}, {cores} cores of {processor}, load {load}; {slurm}.\n\n\
         The ways of a line were measured in turns within one run, and each is the median of all rounds. The result \
         is made within each round, of which again the median counts: trust the results more than the ways.\n\n\
         {table}\n{NOTES}",
        date = host.date,
        kernel = host.kernel,
        cores = host.cores,
        processor = host.processor,
        load = host.load,
        slurm = host.slurm.join(", "),
    )
}

/// A table that can be read as it is and as Markdown.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut rows = vec![["What", "Measured", "Result", "Target", "Met"].map(str::to_owned)];
    rows.extend(figures.iter().map(row));
    let widths: [usize; 5] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = widths.map(|width| "-".repeat(width));
    let mut text = line(&rows[0]) + &line(&rule);
    text.extend(rows[1..].iter().map(line));
    text
}

fn row(figure: &Figure) -> [String; 5] {
    let ways: Vec<String> = figure
        .ways
        .iter()
        .map(|way| format!("{} {}", way.name, number(way.median)))
        .collect();
    let unit = figure.result_unit;
    [
        figure.what.clone(),
        format!("{} ({})", ways.join(", "), figure.unit),
        format!("{} {unit}", number(figure.result)),
        match figure.target {
            Some(Target::Under(limit)) => format!("under {limit} {unit}"),
            Some(Target::AtLeast(limit)) => format!("at least {limit} {unit}"),
            None => String::new(),
        },
        match figure.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        }
        .to_owned(),
    ]
}

/// Three digits that count, and no more.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Question;

    #[test]
    fn a_missed_target_stands_out() {
        let figure = Question {
            what: "x".into(),
            unit: "ms",
            result_unit: "ms",
            target: Some(Target::Under(0.7)),
        }
        .answer(&[("a", &[1.0]), ("b", &[12.345])], |values| {
            values[1] - values[0]
        });
        let table = table(&[figure]);
        assert_eq!(
            table.lines().last(),
            Some("| x    | a 1.00, b 12.3 (ms) | 11.3 ms | under 0.7 ms | **no** |")
        );
        assert_eq!(number(1234.5), "1234");
    }
}
