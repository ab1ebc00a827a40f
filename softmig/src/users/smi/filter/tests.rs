//! tests/smi holds what nvidia-smi of several drivers prints, once with the processes of all and once with those of
//! one job alone: the filter must make the second of the first, byte for byte.

use super::*;
use proptest::prelude::*;

/// The output of one driver.
struct Recorded {
    driver: &'static str,
    text: &'static str,
    /// Which processes the parts are about.
    own: &'static [(&'static str, &'static [u32])],
}

/// Recorded on libraries that say what NVML would of two GPUs, and the last on a GPU.
const RECORDED: [Recorded; 7] = [
    on_two("418", include_str!("../../../../tests/smi/418.txt")),
    on_two("450", include_str!("../../../../tests/smi/450.txt")),
    on_two("525", include_str!("../../../../tests/smi/525.txt")),
    on_two("535", include_str!("../../../../tests/smi/535.txt")),
    on_two("550", include_str!("../../../../tests/smi/550.txt")),
    on_two("580", include_str!("../../../../tests/smi/580.txt")),
    Recorded {
        driver: "580 on an H200",
        text: include_str!("../../../../tests/smi/580-h200.txt"),
        own: &[("all", &[430, 431]), ("first", &[430]), ("none", &[])],
    },
];

const fn on_two(driver: &'static str, text: &'static str) -> Recorded {
    Recorded {
        driver,
        text,
        own: &[
            ("all", &[1411, 20877, 3000123]),
            ("first", &[1411]),
            ("second", &[20877]),
            ("none", &[]),
        ],
    }
}

fn form(name: &str) -> Form {
    match name {
        "table" | "list" | "longlist" | "xml" => Form::Report,
        "pmon" | "pmon-dated" => Form::Pmon,
        _ => Form::Apps,
    }
}

/// The parts of a recording: form, whose processes are in it, text.
fn parts(recording: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    recording
        .split("==> ")
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (title, text) = part.split_once(" <==\n").unwrap();
            let (form, whose) = title.split_once(' ').unwrap();
            (form, whose, text)
        })
}

/// The output when the input comes in pieces of at most this length.
fn filtered(form: Form, own: &[u32], text: &[u8], piece: usize) -> Vec<u8> {
    let own = own.to_vec();
    let mut filter = Filter::new(form, move |pid| own.contains(&pid)).unwrap();
    let mut out = Vec::new();
    for piece in text.chunks(piece) {
        filter.feed(piece, &mut out);
    }
    filter.end(&mut out);
    out
}

fn filtered_text(form: Form, own: &[u32], text: &str) -> String {
    String::from_utf8(filtered(form, own, text.as_bytes(), usize::MAX)).unwrap()
}

/// The part with this form and these processes.
fn part<'a>(recorded: &'a Recorded, form: &str, whose: &str) -> &'a str {
    let mut parts = parts(recorded.text);
    parts
        .find(|part| (part.0, part.1) == (form, whose))
        .unwrap()
        .2
}

#[test]
fn each_recording_becomes_that_of_the_job_alone() {
    for recorded in &RECORDED {
        let mut compared = 0;
        for (name, _, all) in parts(recorded.text).filter(|(_, whose, _)| *whose == "all") {
            for (whose, own) in &recorded.own[1..] {
                assert_eq!(
                    filtered_text(form(name), own, all),
                    part(recorded, name, whose),
                    "driver {}, {name}, {whose}",
                    recorded.driver
                );
                compared += 1;
            }
        }
        assert!(compared >= 15, "{}", recorded.driver);
    }
}

#[test]
fn how_the_bytes_are_cut_makes_no_difference() {
    for recorded in &RECORDED {
        for (name, _, text) in parts(recorded.text) {
            for (_, own) in recorded.own {
                let whole = filtered(form(name), own, text.as_bytes(), usize::MAX);
                for piece in [1, 7, 4096] {
                    assert_eq!(filtered(form(name), own, text.as_bytes(), piece), whole);
                }
            }
        }
    }
}

#[test]
fn where_all_processes_are_the_jobs_own_nothing_is_changed() {
    for recorded in &RECORDED {
        for (name, _, text) in parts(recorded.text).filter(|(name, ..)| form(name) != Form::Apps) {
            let out = filtered_text(form(name), recorded.own[0].1, text);
            assert_eq!(out, text, "driver {}, {name}", recorded.driver);
        }
    }
}

#[test]
fn samples_that_follow_each_other_are_filtered_one_by_one() {
    for recorded in &RECORDED {
        for (name, own) in [("table", 1), ("list", 2), ("xml", 1)] {
            let (whose, own) = recorded.own[own];
            assert_eq!(
                filtered_text(form(name), own, &part(recorded, name, "all").repeat(3)),
                part(recorded, name, whose).repeat(3),
                "{name}"
            );
        }
    }
}

#[test]
fn a_table_whose_process_ids_are_hidden_stays_as_it_is() {
    // In a container without the host's processes, and where the card does not tell.
    for rows in [
        "",
        "|    0                    Not Supported                                       |\n",
        "|    0   N/A  N/A      N/A      C   [Insufficient Permissions]            N/A |\n",
    ] {
        let text = format!(
            "| Processes:                                                                  |\n\
             |  GPU   GI   CI        PID   Type   Process name                  GPU Memory |\n\
             |        ID   ID                                                   Usage      |\n\
             |=============================================================================|\n\
             {rows}\
             +-----------------------------------------------------------------------------+\n"
        );
        assert_eq!(filtered_text(Form::Report, &[], &text), text);
    }
}

#[test]
fn a_list_cut_off_within_a_process_is_not_the_jobs() {
    let text = "    Processes\n        Process ID    : 7\n            Type      : C\n";
    assert_eq!(
        filtered_text(Form::Report, &[], text),
        "    Processes         : None\n"
    );
    assert_eq!(filtered_text(Form::Report, &[7], text), text);
    // Nothing says whose these are.
    for text in [
        "    Processes\n",
        "    Processes\n        Type : C",
        "    Processes: 1\n",
    ] {
        assert_eq!(filtered_text(Form::Report, &[], text), text);
    }
}

#[test]
fn accounted_processes_are_filtered_too() {
    let entry = |pid| {
        let id = format!("        Process ID                        : {pid}\n");
        id + "        GPU Utilization                   : 12 %\n"
    };
    let title = "    Accounted Processes\n";
    let text = format!("{title}{}{}    Next : 1\n", entry(7), entry(8));
    assert_eq!(
        filtered_text(Form::Report, &[8], &text),
        format!("{title}{}    Next : 1\n", entry(8))
    );
    assert_eq!(
        filtered_text(Form::Report, &[], &text),
        "    Accounted Processes                   : None\n    Next : 1\n"
    );
    let element = |pid| {
        format!("\t<accounted_process_info>\n\t\t<pid>{pid}</pid>\n\t</accounted_process_info>\n")
    };
    assert_eq!(
        filtered_text(Form::Report, &[8], &(element(7) + &element(8))),
        element(8)
    );
}

#[test]
fn a_query_that_answers_with_something_else_is_passed_on() {
    for (line, out) in [
        ("No devices were found\n", "No devices were found\n"),
        (
            "Field \"x, y\" is not a valid field to query.\n",
            "Field \"x, y\" is not a valid field to query.\n",
        ),
        ("[N/A], [N/A]\n", "[N/A]\n"),
        ("pid, name\r\n", "name\r\n"),
        ("7, a, b\r\n", "a, b\r\n"),
        ("7, a", "a"),
        ("8, a\n", ""),
        ("99999999999, a\n", "99999999999, a\n"),
        ("7\n", "7\n"),
        ("\n", "\n"),
    ] {
        assert_eq!(filtered_text(Form::Apps, &[7], line), out, "{line:?}");
    }
}

/// The output of pmon for one GPU, with the rows that are given.
fn pmon(rows: &str) -> String {
    format!("# gpu    pid  type    sm   command\n# Idx      #   C/G     %   name\n{rows}")
}

#[test]
fn a_process_that_comes_again_begins_a_sample() {
    let foreign = "    0      8     C    97   theirs    \n";
    let graphics = "    0      8     G     -   theirs    \n";
    let own = "    0      7     C     3   mine      \n";
    let idle = "    0      -     -     -   -         \n";
    for (rows, out) in [
        ([foreign, foreign, own].concat(), [idle, own].concat()),
        ([foreign, graphics, own].concat(), own.to_owned()),
        ([own, own].concat(), [own, own].concat()),
        ([own, foreign, foreign].concat(), [own, idle].concat()),
        ([foreign, idle, own].concat(), [idle, idle, own].concat()),
    ] {
        assert_eq!(
            filtered_text(Form::Pmon, &[7], &pmon(&rows)),
            pmon(&out),
            "{rows}"
        );
    }
}

#[test]
fn an_idle_row_does_not_wait_for_the_next_sample() {
    let mut filter = Filter::new(Form::Pmon, |_| false).unwrap();
    let mut out = Vec::new();
    filter.feed(
        pmon("    0      8     C    97   theirs    \n").as_bytes(),
        &mut out,
    );
    assert_eq!(out, pmon("").as_bytes());
    assert!(filter.waits());
    filter.pause(&mut out);
    assert!(!filter.waits());
    assert_eq!(
        out,
        pmon("    0      -     -     -   -         \n").as_bytes()
    );
}

#[test]
fn a_question_goes_on_before_its_line_ends_and_a_row_does_not() {
    for (form, start, goes_on) in [
        (Form::Report, "Continue? (y/n) ", true),
        (Form::Report, "|    0   N/A  N/A         8  ", false),
        (Form::Report, "        Process ID   : ", false),
        (Form::Report, "\t\t<pid>", false),
        (Form::Apps, "Warning: ", true),
        (Form::Apps, "12", false),
        (Form::Pmon, "Not supported", true),
        (Form::Pmon, "    0   ", false),
    ] {
        let mut filter = Filter::new(form, |_| false).unwrap();
        let mut out = Vec::new();
        filter.feed(start.as_bytes(), &mut out);
        assert_eq!((filter.waits(), out.as_slice()), (goes_on, &b""[..]));
        filter.pause(&mut out);
        let shown: &str = if goes_on { start } else { "" };
        assert_eq!(out, shown.as_bytes(), "{start}");
        assert!(!filter.waits());
        filter.feed(b"rest\nnext\n", &mut out);
        filter.end(&mut out);
        assert_eq!(out, format!("{start}rest\nnext\n").as_bytes());
    }
}

/// The filter of a user to whom all processes belong.
fn unchanged(form: Form, text: &[u8], piece: usize) -> Vec<u8> {
    let mut filter = Filter::new(form, |_| true).unwrap();
    let mut out = Vec::new();
    for piece in text.chunks(piece) {
        filter.feed(piece, &mut out);
        filter.pause(&mut out);
    }
    filter.end(&mut out);
    out
}

proptest! {
    #[test]
    fn any_bytes_pass_whole_where_no_process_is_anothers(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        piece in 1_usize..50,
    ) {
        for form in [Form::Report, Form::Pmon] {
            prop_assert_eq!(unchanged(form, &bytes, piece), bytes.as_slice());
        }
        filtered(Form::Apps, &[], &bytes, piece);
    }

    #[test]
    fn lines_in_any_order_pass_whole_where_no_process_is_anothers(
        picks in proptest::collection::vec((0..RECORDED.len(), any::<prop::sample::Index>()), 0..60),
        piece in 1_usize..200,
    ) {
        let lines: String = picks
            .iter()
            .map(|(recording, line)| {
                let lines: Vec<&str> = RECORDED[*recording].text.split_inclusive('\n').collect();
                *line.get(&lines)
            })
            .collect();
        for form in [Form::Report, Form::Pmon] {
            prop_assert_eq!(unchanged(form, lines.as_bytes(), piece), lines.as_bytes());
            filtered(form, &[1411], lines.as_bytes(), piece);
        }
    }
}
