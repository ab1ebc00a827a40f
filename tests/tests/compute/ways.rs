//! One process, each way to launch, kernels of each length.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::compute::stand::{Running, Stand, end, in_some_try, run, share};

/// How much more than its share a client may be seen to have, in points.
const ABOVE: f64 = 1.5;

/// A client of `paced`.
struct Paced<'a> {
    way: &'a str,
    streams: &'a str,
    /// Of a kernel.
    nanoseconds: &'a str,
    reach: &'a str,
    milliseconds: &'a str,
    /// Each launch waits for its kernel.
    is_blocking: bool,
}

impl<'a> Paced<'a> {
    /// Launches in this way: kernels of 100 us.
    fn by(way: &'a str) -> Self {
        Self {
            way,
            streams: "1",
            nanoseconds: "100000",
            reach: "linked",
            milliseconds: "500",
            is_blocking: false,
        }
    }

    fn words(&self) -> [&'a str; 5] {
        [
            "paced",
            self.nanoseconds,
            self.milliseconds,
            self.way,
            self.streams,
        ]
    }

    fn name(&self) -> String {
        format!(
            "{} of {} ns in {} streams, {}",
            self.way, self.nanoseconds, self.streams, self.reach
        )
    }

    /// Has this share and not much more, and would have had more without it.
    fn is_held(&self, percent: &str) -> Result<()> {
        self.is_held_within(percent, ABOVE)
    }

    fn is_held_within(&self, percent: &str, above: f64) -> Result<()> {
        let stand = Stand::new()?;
        let asked: f64 = percent.parse()?;
        let with = |mut command: Command| {
            command.env("REACH", self.reach);
            if self.is_blocking {
                command.env("CUDA_LAUNCH_BLOCKING", "1");
            }
            share(command)
        };
        let free = in_some_try(
            &format!("{} without a limit", self.name()),
            || with(stand.unlimited(&self.words())),
            |got| got > 1.5 * asked,
        )?;
        let got = in_some_try(
            &format!("{} at {percent} %", self.name()),
            || with(stand.limited(percent, &self.words())),
            |got| got <= asked + above && got > asked / 3.0,
        )?;
        println!("{}: {got:.2} of {percent} %, {free:.2} %", self.name());
        Ok(())
    }
}

fn are_held(ways: &[&str]) -> Result<()> {
    ways.iter().try_for_each(|way| Paced::by(way).is_held("25"))
}

#[test]
fn kernels_are_held_by_whichever_function_they_are_launched() -> Result<()> {
    are_held(&[
        "async",
        "ex",
        "cooperative",
        "multi_device",
        "launch",
        "grid",
        "grid_async",
    ])
}

#[test]
fn kernels_are_held_in_default_streams_and_those_of_threads() -> Result<()> {
    are_held(&["ptsz", "ex_ptsz", "cooperative_ptsz", "own", "legacy"])
}

#[test]
fn kernels_in_graphs_are_held() -> Result<()> {
    are_held(&["graph", "graph_ptsz", "captured"])
}

#[test]
fn copies_and_fills_within_the_gpu_are_held() -> Result<()> {
    are_held(&["fill", "copy"])
}

#[test]
fn kernels_are_held_through_all_ways_to_the_driver() -> Result<()> {
    ["dlsym", "cuGetProcAddress", "cuGetProcAddress_v2"]
        .iter()
        .try_for_each(|reach| {
            let client = Paced {
                reach,
                ..Paced::by("async")
            };
            client.is_held("25")
        })
}

#[test]
fn kernels_in_several_streams_are_held_together() -> Result<()> {
    ["2", "8"].iter().try_for_each(|streams| {
        let client = Paced {
            streams,
            ..Paced::by("async")
        };
        client.is_held("25")
    })
}

/// Work in flight counts as long as it takes together: with eight streams the GPU has as much before it as with one, on
/// which each launch seems to take eight times as long.
#[test]
fn several_streams_keep_the_gpu_as_busy_as_one() -> Result<()> {
    ["async", "mixed"].iter().try_for_each(|way| {
        let part = in_some_try(
            &format!("what eight streams have in flight, as a part of what one has: {way}"),
            || Ok(queued(way, "8")? / queued(way, "1")?),
            |part| part > 0.5 && part < 2.0,
        );
        println!("{way}: {:.2} times as much", part?);
        Ok(())
    })
}

/// How much the GPU has before it where it has anything, in nanoseconds on average.
fn queued(way: &str, streams: &str) -> Result<f64> {
    let stand = Stand::new()?;
    let words = ["paced", "100000", "400", way, streams];
    let client = Running::start(stand.limited("75", &words))?;
    stand.wait_for_work(client.pid())?;
    // It is known by then how long a launch takes.
    std::thread::sleep(Duration::from_millis(150));
    let mut seen = Vec::new();
    for _ in 0..1000 {
        let queued = stand.gpus.busy_until(0).saturating_sub(stand.gpus.now());
        seen.extend((queued > 0).then_some(queued as f64));
        std::thread::sleep(Duration::from_micros(100));
    }
    end(client)?;
    Ok(seen.iter().sum::<f64>() / seen.len() as f64)
}

/// More than the library tells apart: all of them, and one that comes late.
#[test]
fn kernels_in_hundreds_of_streams_are_held() -> Result<()> {
    ["async", "last"].iter().try_for_each(|way| {
        let client = Paced {
            streams: "300",
            ..Paced::by(way)
        };
        client.is_held("25")
    })
}

#[test]
fn kernels_of_mixed_lengths_are_held() -> Result<()> {
    Paced::by("mixed").is_held("25")
}

/// At lengths where waiting for each is not what holds them back.
#[test]
fn a_job_that_waits_for_each_kernel_is_held() -> Result<()> {
    let client = Paced {
        nanoseconds: "400000",
        ..Paced::by("sync")
    };
    client.is_held("25")
}

/// Asking for other events takes as long as a short kernel, whose end the library would then miss.
#[test]
fn a_launch_that_is_measured_has_its_event_at_once() -> Result<()> {
    let stand = Stand::new()?;
    let client = Paced {
        nanoseconds: "20000",
        ..Paced::by("sync")
    };
    run(stand.limited("50", &client.words()))?;
    let all = stand.gpus.all_calls("cuEventRecord");
    let late = stand
        .gpus
        .all_calls("cuEventRecord after asking for another event");
    ensure!(all > 50, "only {all} events were recorded");
    // Not those of work that comes behind other work.
    ensure!(late < all / 10, "{late} of {all} events were late");
    Ok(())
}

/// One of them is a point of the time that is measured.
#[test]
fn long_kernels_are_held() -> Result<()> {
    let client = Paced {
        nanoseconds: "20000000",
        milliseconds: "1500",
        ..Paced::by("async")
    };
    client.is_held_within("25", ABOVE + 1.5)
}

#[test]
fn short_kernels_are_held() -> Result<()> {
    let client = Paced {
        nanoseconds: "20000",
        ..Paced::by("async")
    };
    // They end while a thread that samples waits for a processor.
    client.is_held_within("25", 5.0)
}

/// As debuggers have it. The host's time for a launch has the kernel in it then.
#[test]
fn kernels_whose_launches_wait_for_them_are_held() -> Result<()> {
    for nanoseconds in ["500000", "10000000"] {
        let client = Paced {
            nanoseconds,
            is_blocking: true,
            ..Paced::by("async")
        };
        client.is_held("25")?;
    }
    Ok(())
}

#[test]
fn shares_are_exact_to_a_tenth_of_a_percent() -> Result<()> {
    Paced::by("async").is_held("12.5")
}

/// A client below its share loses nothing.
#[test]
fn a_job_that_is_mostly_idle_keeps_its_own_pace() -> Result<()> {
    let stand = Stand::new()?;
    let client = Paced {
        nanoseconds: "1000000",
        ..Paced::by("idle")
    };
    in_some_try(
        "idle at 25 %, of what it has without a limit",
        || {
            let free = share(stand.unlimited(&client.words()))?;
            Ok(share(stand.limited("25", &client.words()))? / free)
        },
        |got| got > 0.9,
    )?;
    Ok(())
}

#[test]
fn a_gpu_has_the_share_of_its_number() -> Result<()> {
    let stand = Stand::new()?;
    let words = Paced::by("async").words();
    in_some_try(
        "a limit of 25 % for the GPU, 50 % for all, and 75 % for another",
        || {
            let mut command = stand.limited("50", &words);
            command
                .env("CUDA_DEVICE_SM_LIMIT_0", "25")
                .env("CUDA_DEVICE_SM_LIMIT_1", "75");
            share(command)
        },
        |got| got <= 25.0 + ABOVE && got > 25.0 / 3.0,
    )?;
    in_some_try(
        "a limit of 25 % for another GPU alone",
        || {
            let mut command = stand.limited("25", &words);
            command
                .env_remove("CUDA_DEVICE_SM_LIMIT")
                .env("CUDA_DEVICE_SM_LIMIT_1", "25");
            share(command)
        },
        |got| got > 50.0,
    )?;
    Ok(())
}

/// With all of a GPU as the share, the driver hears the program's calls and no others.
#[test]
fn all_of_a_gpu_sets_no_limit() -> Result<()> {
    let words = ["launches", "1024"];
    let calls = |make: &dyn Fn(&Stand) -> Command| -> Result<_> {
        let stand = Stand::new()?;
        let said = run(make(&stand))?;
        let participants = stand.gpus.participants()?;
        let mut calls: Vec<_> = participants.into_iter().flat_map(|one| one.calls).collect();
        calls.retain(|(_, count)| *count > 0);
        calls.sort();
        ensure!(!calls.is_empty(), "the driver heard no call: {said}");
        // The first line says whether the library is there.
        let said: Vec<String> = said.lines().skip(1).map(String::from).collect();
        Ok((said, calls))
    };
    let bare = calls(&|stand| stand.unlimited(&words))?;
    for percent in ["0", "100"] {
        let free = calls(&|stand| stand.limited(percent, &words))?;
        ensure!(free == bare, "{percent}: {free:#?}\n{bare:#?}");
    }
    let held = calls(&|stand| stand.limited("25", &words))?;
    ensure!(held.0 == bare.0 && held.1 != bare.1, "{held:#?}");
    Ok(())
}
