//! Errors in policy.toml as an administrator reads them.

use crate::Policy;
use crate::config::error::AT_THE_TOP;

const GPUS: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";

fn error(text: &str) -> String {
    Policy::parse(text).unwrap_err().to_string()
}

/// Each slip above two right lines, and what an administrator reads of it.
#[test]
fn errors_read_like_a_colleague() {
    let slips = [
        "plain_types = \"a\"",
        "limit_notice = \"yes\"",
        "raw_shards = 1",
        "raw_shards = \"allows\"",
        "placement = \"spread\"",
        "zzz = 1",
        "[mesages]\nany = \"a\"",
        "[messages]\nany = \"a",
        "[messages]\nany = \"a\"\ndefault_class = \"x\"\n[classes.x]\nwhole_gpus = 0",
        "[[gate]] # of [course]\nwhat = \"slice\"\nreservation = \"x\"",
        "[[route]]\npartition = [\"a\"]",
        "[[reservable]]\nend = \"2027-01-01\"",
        "[classes]\nshards = 1",
        "[classes.a]\nmembers = \"x\"",
        "[classes.a]\nmembers = { users = [\"a\"], accounts = \"b\" }",
        "[classes.a]\nmembers = { groups = [\"staff\"] }",
        "[classes.a]\n[classes.a.member]\nusers = [\"x\"]",
        "[defaults]\nshards = -1",
        "[defaults]\nshards = 99999999999999999999",
        "[defaults]\nshards = unlimited",
        "[defaults]\nshards = \"many\"",
        "[defaults]\nshards = 45G",
        "[defaults]\nshards = \u{201c}2\u{201d}",
        "[defaults]\nshards = 2,",
        "[defaults]\nshards == 2",
        "[defaults]\nshards = 2\nshards = 3",
        "[defaults]\nshards",
        "[defaults]\nmig = 4",
        "[defaults]\nmig = { 1g.10gb = 4 }",
        "[defaults]\nwall_time = 24",
        "[defaults]\nwall_time = 02:00:00",
        "[gpu.a]\nshards = 2.5",
        "[gpu.a]\nmemory_mib = \"46068\"",
        "[gpu.a]\nmode = 1",
        "[gpu.a]\nmode = \"fair\"",
        "[gpu.a]\nreserved_mb = 1",
        "[gpu.a]\nmemory_mib = 46068",
        "[gpu.1g.10gb]\nmemory_mib = 9856",
        "[gpu.l40s]\nmemory_mib = 9856",
        "[nodes]\nnames = \"a\"",
        "[nodes]\nnames = \"a\"\n[[nodes]]",
        "[[node]]\nnames = \"a\"",
        "[[legacy.mps]]\ntype = \"l40s\"",
    ];
    let page = slips.map(|slip| format!("{slip}\n=> {}\n", error(&format!("{slip}\n{GPUS}"))));
    insta::assert_snapshot!(page.join("\n"));
}

#[test]
fn the_keys_at_the_top_are_those_of_the_file() {
    for key in AT_THE_TOP {
        // The key is known, whatever the kind of its value.
        let told = Policy::parse(&format!("{key} = 1\n{GPUS}")).unwrap_err();
        assert!(!told.message.contains("unknown key"), "{told}");
    }
    let all = error(&format!("zzz = 1\n{GPUS}"));
    let known = all.split_once("known here are ").unwrap().1;
    // A key at the top is one that is not a table in conf/policy.toml.
    let documented = include_str!("../../../../conf/policy.toml");
    for key in known.split(", ") {
        let is_table = documented.lines().any(|line| {
            let line = line.trim_start_matches('#');
            line.starts_with(&format!("[{key}")) || line.starts_with(&format!("[[{key}"))
        });
        assert_ne!(is_table, AT_THE_TOP.contains(&key), "{key}");
    }
}

#[test]
fn a_number_or_text_means_the_same_in_each_form_of_toml() {
    let plain = Policy::parse(GPUS).unwrap();
    let forms = [
        ("46068", "46_068"),
        ("46068", "0xB3F4"),
        ("604", "0o1134"),
        ("604", "0b1001011100"),
        ("604", "+604"),
        ("[gpu.l40s]", "[ gpu . \"l40s\" ]"),
        ("[gpu.l40s]", "[gpu.'\u{6c}40s']"),
    ];
    for (written, form) in forms {
        let policy = Policy::parse(&GPUS.replace(written, form));
        let limits = |policy: &Policy| policy.gpu("l40s").unwrap().limits(1).unwrap();
        assert_eq!(limits(&policy.unwrap()), limits(&plain), "{form}");
    }
    for number in [
        "-1",
        "1.0",
        "1e3",
        "9223372036854775808",
        "0x1_0000_0000_0000_0000",
    ] {
        let told = error(&GPUS.replace("604", number));
        assert!(
            told.starts_with("line 3: [gpu.l40s] reserved_mib: "),
            "{told}"
        );
    }
}
