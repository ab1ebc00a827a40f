//! Errors in policy.toml as an administrator reads them.

use crate::Policy;
use crate::config::error::words::AT_THE_TOP;

const GPUS: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";

fn error(text: &str) -> String {
    Policy::parse(text).unwrap_err().to_string()
}

#[test]
fn a_value_of_another_kind_is_told_with_what_belongs_there() {
    let above = |text: &str| error(&format!("{text}\n{GPUS}"));
    for (text, expected) in [
        (
            "plain_types = \"a\"",
            "line 1: plain_types: \"a\" is not a list: write plain_types = [\"a\"]",
        ),
        (
            "limit_notice = \"yes\"",
            "line 1: limit_notice: \"yes\" is not true or false, without quotes",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = \"x\"",
            "line 3: [[gate]] reservation: \"x\" is not a list: write reservation = [\"x\"]",
        ),
        (
            "[[route]]\npartition = [\"a\"]",
            "line 2: [[route]] partition: a list is not a text in quotes",
        ),
        (
            "[classes]\nshards = 1",
            "line 2: [classes] shards: 1 is not a table",
        ),
        (
            "[classes.a]\nmembers = \"x\"",
            "line 2: [classes.a] members: \"x\" is not a table of lists: write { users = [\"NAME\"] }, or accounts or groups",
        ),
        (
            "placement = \"spread\"",
            "line 1: placement: \"spread\" is not a table",
        ),
        (
            "[placement]\nshards = \"sprad\"",
            "line 2: [placement] shards: unknown word \"sprad\"; did you mean spread?",
        ),
        (
            "[[reservable]]\nend = \"2027-01-01\"",
            "line 2: [[reservable]] end: \"2027-01-01\" is not a time without quotes: 2027-01-31T08:00:00",
        ),
    ] {
        assert_eq!(above(text), expected);
    }
    let no_value = "this is not a valid value: a text needs straight quotes";
    for value in [
        "unlimited",
        "null",
        "45G",
        "\u{201c}2\u{201d}",
        "12/07/2026",
    ] {
        let told = above(&format!("[defaults]\nshards = {value}"));
        assert!(
            told.starts_with("line 2: [defaults] shards: ")
                && (told.contains(no_value) || told.contains("there is text after the value")),
            "{value}: {told}"
        );
    }
    for (line, expected) in [
        ("shards = 2,", "there is text after the value"),
        ("mig = 4", "mig: 4 is not a table by type: { \"TYPE\" = 1 }"),
        ("mig = { 1g.10gb = 4 }", "a name with a dot needs quotes"),
        (
            "wall_time = 24",
            "wall_time: write as for sbatch --time, in quotes",
        ),
        (
            "wall_time = 02:00:00",
            "wall_time: write as for sbatch --time, in quotes",
        ),
        (
            "[classes.a]\nmembers = { users = [\"a\"], accounts = \"b\" }",
            "accounts: \"b\" is not a list: write accounts = [\"b\"]",
        ),
    ] {
        let told = above(&format!("[defaults]\n{line}"));
        assert!(told.contains(expected), "{line}: {told}");
    }
    assert_eq!(
        error("[gpu.l40s]\nmemory_mib = \"46068\"\n"),
        "line 2: [gpu.l40s] memory_mib: \"46068\" is not a whole number from 0 to 4294967295"
    );
}

#[test]
fn a_slip_is_told_in_words_of_our_own() {
    for (text, expected) in [
        (
            "[gpu.a]\nshards = 2.5",
            "line 2: [gpu.a] shards: 2.5 is not a whole number from 1 to 100",
        ),
        (
            "[defaults]\nshards = 99999999999999999999",
            "line 2: [defaults] shards: 99999999999999999999 is not a number from 0 up, or \"unlimited\"",
        ),
        (
            "raw_shards = 1",
            "line 1: raw_shards: write one of \"refuse\", \"allow\", in quotes",
        ),
        (
            "[gpu.a]\nmode = 1",
            "line 2: [gpu.a] mode: write one of \"hard\", \"soft\", in quotes",
        ),
        (
            "[messages]\nany = \"a",
            "line 2: [messages] any: the quotes of this text are not closed on its line",
        ),
        (
            "[defaults]\nshards == 2",
            "line 2: [defaults] shards: there is a second = here: a line has one key and one value",
        ),
        (
            "[messages]\nany = \"a\"\ndefault_class = \"x\"\n[classes.x]\nwhole_gpus = 0",
            "line 3: [messages]: default_class belongs at the top of the file, above the first table",
        ),
    ] {
        assert_eq!(error(&format!("{text}\n{GPUS}")), expected);
    }
}

#[test]
fn a_key_or_table_in_the_wrong_place_is_told_where_it_belongs() {
    assert_eq!(
        error(&format!("{GPUS}default_class = \"x\"\n")),
        "line 5: [gpu.l40s]: default_class belongs at the top of the file, above the first table"
    );
    for (text, expected) in [
        (
            "[nodes]\nnames = \"a\"\n[[nodes]]\n",
            "line 3: [[nodes]]: is above in single brackets; write double brackets there too",
        ),
        (
            "[[node]]\nnames = \"a\"",
            "line 1: [[node]]: did you mean [[nodes]]? Or [node], in single brackets",
        ),
        (
            "[[legacy.mps]]\ntype = \"l40s\"",
            "line 1: [[legacy.mps]]: this table can be written only once: write its name in single brackets, [legacy.mps]",
        ),
        (
            "[gpu.1g.10gb]\nmemory_mib = 9856",
            "line 1: [gpu.1g.10gb]: a name with a dot needs quotes, as in [gpu.\"1g.10gb\"]",
        ),
    ] {
        assert_eq!(error(&format!("{text}\n{GPUS}")), expected);
    }
    // Comments and blanks do not belong to a name.
    for header in ["[[gate]] # of [course]", "[[ gate ]]"] {
        let told = error(&format!(
            "{header}\nwhat = \"slice\"\nreservation = \"x\"\n{GPUS}"
        ));
        assert!(
            told.ends_with("reservation: \"x\" is not a list: write reservation = [\"x\"]"),
            "{told}"
        );
    }
    let below = error(&format!(
        "[classes.a]\n[classes.a.member]\nusers = [\"x\"]\n{GPUS}"
    ));
    assert!(
        below.ends_with("unknown table member; did you mean members?"),
        "{below}"
    );
    assert_eq!(
        error(&format!("{GPUS}{GPUS}")),
        "line 5: [gpu.l40s]: already in line 1"
    );
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
