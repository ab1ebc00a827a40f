//! Each subcommand has a manual page and completions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "its main")]
#[path = "../examples/manual.rs"]
mod manual;

use std::fs;

#[test]
fn each_subcommand_has_a_manual_page_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    manual::write(folder.path()).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let files = [
        "bash-completion/completions/softmig",
        "zsh/site-functions/_softmig",
        "fish/vendor_completions.d/softmig.fish",
    ];
    let completions = files.map(read);
    let command = softmig::command();
    let shown = command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set());
    let mut count = 0;
    for subcommand in shown {
        count += 1;
        let name = subcommand.get_name();
        let page = read(&format!("man/man1/softmig-{name}.1"));
        assert!(page.contains("SYNOPSIS"), "{name}: {page}");
        for (file, text) in files.iter().zip(&completions) {
            assert!(text.contains(name), "{file} does not complete {name}");
        }
    }
    let pages = fs::read_dir(folder.path().join("man/man1")).unwrap();
    // One more: the command's own.
    assert_eq!(pages.count(), count + 1);
    assert!(read("man/man1/softmig.1").contains("softmig\\-explain(1)"));
    assert!(read("man/man8/softmig-monitor.8").contains("once"));
    assert!(read("man/man8/softmig-exporter.8").contains("listen"));
    for (daemon, option) in [("monitor", "once"), ("exporter", "listen")] {
        for file in files {
            let file = file.replace("softmig", &format!("softmig-{daemon}"));
            assert!(read(&file).contains(option), "{file}");
        }
    }
}
