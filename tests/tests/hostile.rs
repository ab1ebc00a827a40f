//! Hostile users, one after the other, each for a minute, beside a neighbour: its share, how soon it gets a seat, whether
//! what is past the library is still ended, and what it costs the monitor. The same is measured before, without any.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use softmig_fake_node::KERNEL_DRIVER;

use crate::compute::site::{MONITOR, QUARTER, Site};
use crate::compute::stand::share_in;
use crate::monitor::ending::{escaped, policy};

const HALF: &str = "gpu:l40s.2:1";
const BUSY: &str = "1000000 1000000 async";
const MINUTE: Duration = Duration::from_secs(60);

/// A user's name, the words of what she does, where `UUID` is the GPU's, and so many processes by name and state that show that she is
/// at it.
struct Way {
    name: &'static str,
    words: String,
    processes: (usize, &'static str, &'static str),
}

fn ways() -> Vec<Way> {
    let hostile = |words: &str| format!("./hostile UUID {words}");
    // Each is ended, and comes again, until the whole job is ended.
    let bursts = escaped("./views bursts 14000");
    let shows = escaped(&format!("./show UUID ./paced {BUSY}"));
    let way = |name, words, processes| Way {
        name,
        words,
        processes,
    };
    vec![
        way("connections", hostile("connects"), (8, "hostile", "")),
        way("lists", hostile("lists 64"), (64, "hostile", "")),
        way("descriptors", hostile("descriptors"), (4, "hostile", "")),
        // One is served by the other.
        way("file", hostile("file"), (2, "hostile", "")),
        // Those that wait, which have no other name yet, and who serves them.
        way("exec", hostile("exec"), (9, "hostile", "")),
        way("bursts", format!("while :; do {bursts}; done"), (0, "", "")),
        way("seats", format!("while :; do {shows}; done"), (0, "", "")),
    ]
}

/// What a neighbour has for a minute.
struct Had {
    /// Its part of the GPU's time, in percent.
    share: f64,
    /// Its requests for a seat that were refused, and the longest time of one.
    refused: u32,
    most_ms: f64,
    /// After how long a program past the library was ended.
    ended: Duration,
    /// All of it, with what the monitor and its helpers used.
    words: String,
}

struct Stand {
    site: Site,
    uuid: String,
    neighbour: u32,
}

impl Stand {
    fn start() -> Result<Self> {
        let start = format!("echo $$; LD_PRELOAD={KERNEL_DRIVER} exec {MONITOR}");
        let site = Site::start(
            1,
            |builder| {
                let policy = policy("end = \"all\"\ngrace_seconds = 0").unwrap_or_default();
                builder.file("/etc/softmig/policy.toml", policy)
            },
            |_, description| description.scheduler(),
            &["sh", "-c", &start],
        )?;
        let node = site.cluster.node(0);
        let fuse = "[ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229";
        node.run_as_root(&["sh", "-c", fuse])?.ok()?;
        let uuid = node.gpus()[0].uuid.replace('-', "");
        let uuid = uuid.strip_prefix("GPU").context("no UUID")?.to_owned();
        let (_, neighbour) = site.start_launching("bob", 0, HALF, &format!("./paced {BUSY}"))?;
        Ok(Self {
            site,
            uuid,
            neighbour,
        })
    }

    /// The seconds of a core that the monitor and its helpers have used.
    fn monitors_time(&self) -> Result<f64> {
        let times = "cat $(grep -lsx softmig-monitor /proc/[0-9]*/comm | sed s/comm/stat/) | awk '{ s += $14 + $15 } END { print s }'";
        let node = self.site.cluster.node(0);
        let said = node.run_as_root(&["bash", "-c", times])?.ok()?;
        Ok(said.trim().parse::<f64>()? / 100.0)
    }

    /// Alice's processes: their states and names.
    fn hers(&self) -> Result<Vec<(String, String)>> {
        let node = self.site.cluster.node(0);
        let said = node
            .run_as_root(&["ps", "-U", "2001", "-o", "stat=,comm="])?
            .stdout;
        let words = said.lines().filter_map(|line| line.trim().split_once(' '));
        let hers = words.map(|(state, name)| (name.trim().to_owned(), state.to_owned()));
        Ok(hers.collect())
    }

    /// What the neighbour has in a minute in which another of her jobs asks for seats, and a program of it is past the library.
    fn measure(&self) -> Result<Had> {
        let (site, seconds) = (&self.site, MINUTE.as_secs());
        let past = escaped("./views hold 20000");
        let script = format!(
            "begin=$(date +%s%3N); {past}\necho \"ended after $(( $(date +%s%3N) - begin )) ms\"\n./hostile {} asks {seconds}\n",
            self.uuid
        );
        let (begun, before) = (Instant::now(), self.monitors_time()?);
        let asks = site.start_job("carol", 0, QUARTER, &script)?;
        let share = share_in(&site.drivers[0], 0, Some(self.neighbour), MINUTE)?;
        let said = site.end_of("carol", asks)?;
        let monitor = 100.0 * (self.monitors_time()? - before) / begun.elapsed().as_secs_f64();
        let of = |prefix: &str| {
            let line = said.lines().find(|line| line.starts_with(prefix));
            line.with_context(|| format!("no {prefix}: {said}"))
        };
        let (ended, asked) = (of("ended after ")?, of("asked: ")?);
        let number = |line: &str, word: usize| -> Result<f64> {
            let word = line.split_whitespace().nth(word).context("no figure")?;
            word.parse().with_context(|| line.to_owned())
        };
        Ok(Had {
            share,
            refused: number(asked, 3)? as u32,
            most_ms: number(asked, 9)?,
            ended: Duration::from_millis(number(ended, 2)? as u64),
            words: format!("{share:.1} % of the GPU; {asked}; {ended}; monitor {monitor:.1} %"),
        })
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "cargo xtask test --full runs it")]
fn hostile_users_take_nothing_from_a_neighbour() -> Result<()> {
    let stand = Stand::start()?;
    let alone = stand.measure()?;
    println!("without any: {}", alone.words);
    let mut worse = Vec::new();
    for Way {
        name,
        words,
        processes: (count, program, state),
    } in ways()
    {
        let words = words.replace("UUID", &stand.uuid);
        let job = stand.site.start_job("alice", 0, QUARTER, &words)?;
        let had = stand.measure()?;
        let hers = stand.hers()?;
        let is_it = |(name, is): &&(String, String)| name == program && is.starts_with(state);
        let said = stand.site.cluster.user("alice").job_output(job)?;
        let is_at_it = hers.iter().filter(is_it).count() >= count;
        ensure!(is_at_it, "{name}: {hers:?}\n{said}");
        println!("{name}: {}", had.words);
        // Whatever is stuck ends with its job.
        stand.site.cancel(job)?;
        // The machine may be busy: a seat that takes a second is late for other reasons than a user's.
        let is_fine = had.share > 0.8 * alone.share
            && had.refused <= alone.refused
            && had.most_ms < 1000.0
            && had.ended < 5 * alone.ended.max(Duration::from_secs(2));
        if !is_fine {
            worse.push(format!("{name}: {}\n{said}", had.words));
        }
    }
    ensure!(worse.is_empty(), "{}", worse.join("\n"));
    Ok(())
}
