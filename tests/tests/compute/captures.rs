//! Streams that capture: the library puts nothing into them, whatever is under way there and beside, and what was captured is
//! charged when it runs. See `tests/programs/captures.c`.

use std::cell::RefCell;

use anyhow::{Result, bail, ensure};

use crate::compute::stand::{Stand, in_some_try, number, run};

/// A client's words on its captures, how often an event was recorded in one, and its share in percent.
fn captures(mode: &str, percent: Option<&str>) -> Result<(String, u64, f64)> {
    let stand = Stand::new()?;
    let words = ["captures", mode];
    let said = run(match percent {
        Some(percent) => stand.limited(percent, &words),
        None => stand.unlimited(&words),
    })?;
    let recorded = stand.gpus.all_calls("cuEventRecord in a capture");
    let (captured, share) = said.split_once("share").unwrap_or((&said, ""));
    let share = number(&format!("share{share}"), "share")? / 100.0;
    Ok((captured.to_owned(), recorded, share))
}

/// Captures are the same with a limit, and held to it.
fn are_left_alone(mode: &str) -> Result<()> {
    let (said, recorded, free) = captures(mode, None)?;
    ensure!(said.lines().count() == 7 && recorded == 2, "{said}");
    let wrong = RefCell::new(None);
    let held = in_some_try(
        "graphs that were captured, at 25 %",
        || {
            let (with, recorded_with, share) = captures(mode, Some("25"))?;
            if (&with, recorded_with) != (&said, recorded) {
                wrong.replace(Some(format!("{with}{recorded_with} events recorded")));
            }
            Ok(share)
        },
        |got| got < 26.5 && got > 25.0 / 3.0,
    );
    if let Some(wrong) = wrong.take() {
        bail!("{wrong}\ninstead of {said}{recorded}");
    }
    println!("{:.1} of 25 %, {free:.1} % without a limit", held?);
    Ok(())
}

#[test]
fn captures_are_left_alone() -> Result<()> {
    are_left_alone("0")
}

#[test]
fn captures_of_a_thread_are_left_alone() -> Result<()> {
    are_left_alone("1")
}

#[test]
fn relaxed_captures_are_left_alone() -> Result<()> {
    are_left_alone("2")
}
