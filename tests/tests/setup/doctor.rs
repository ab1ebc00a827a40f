//! `softmig doctor` on a machine that is broken in one way after the other: each is found, with what to type, and gone again
//! once that is mended.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use softmig_tests::softmig::stage;
use softmig_tests::{Machine, Root, Slurm};

use crate::setup::shell;

/// A way to break the machine, and to mend it again; what is found, and what is in the line that says what to type.
struct Broken {
    by: &'static str,
    mended_by: &'static str,
    code: &'static str,
    types: &'static str,
}

const fn broken(
    by: &'static str,
    mended_by: &'static str,
    code: &'static str,
    types: &'static str,
) -> Broken {
    Broken {
        by,
        mended_by,
        code,
        types,
    }
}

const LUA: &str = "/usr/lib/softmig/lua/5.1/softmig_cli_filter.so";

const ALL: &[Broken] = &[
    broken(
        "cp -p L /root/kept; cp /usr/lib/softmig/lua/5.4/softmig_cli_filter.so L.new; mv L.new L",
        "mv /root/kept L",
        "LUA_VERSION",
        "put the module for Lua 5.1 there",
    ),
    broken(
        "mv L /root/kept",
        "mv /root/kept L",
        "LUA_MODULE",
        "install softmig's modules",
    ),
    broken(
        "mv L /root/kept; echo text > L",
        "mv /root/kept L",
        "LUA_MODULE",
        "install it anew",
    ),
    broken(
        "cp -p L /root/kept; sed 's/GLIBC_2\\.1[0-9]/GLIBC_2.99/' L > L.new; mv L.new L",
        "mv /root/kept L",
        "LUA_GLIBC",
        "which need glibc 2.17",
    ),
    broken(
        "mv /etc/slurm/cli_filter.lua /root/kept",
        "mv /root/kept /etc/slurm/cli_filter.lua",
        "CLI_FILTER_SCRIPT",
        "/usr/share/softmig/examples/cli_filter.lua",
    ),
    broken(
        "mv /etc/slurm/cli_filter.lua /root/kept; echo 'return slurm.SUCCESS' > /etc/slurm/cli_filter.lua",
        "mv /root/kept /etc/slurm/cli_filter.lua",
        "CLI_FILTER",
        "/usr/share/softmig/examples/cli_filter.lua",
    ),
    broken(
        "mv /etc/slurm/job_submit.lua /root/kept",
        "mv /root/kept /etc/slurm/job_submit.lua",
        "JOB_SUBMIT",
        "/usr/share/softmig/examples/job_submit.lua",
    ),
    broken(
        "sed -i.kept '/^JobSubmitPlugins/d' C",
        "mv C.kept C",
        "JOB_SUBMIT",
        "JobSubmitPlugins=lua",
    ),
    broken(
        "sed -i.kept '/^Prolog=/d' C",
        "mv C.kept C",
        "PROLOG",
        "Prolog=/usr/libexec/softmig-prolog",
    ),
    broken(
        "sed -i.kept '/^Epilog=/d' C",
        "mv C.kept C",
        "EPILOG",
        "Epilog=/usr/libexec/softmig-epilog",
    ),
    broken(
        "sed -i.kept 's/,shard:l40s:16//' C",
        "mv C.kept C",
        "SHARDS_MISSING",
        "shard:l40s:16",
    ),
    broken(
        "chmod a-x /usr/libexec/softmig-prolog",
        "chmod a+x /usr/libexec/softmig-prolog",
        "NODE_PROGRAMS",
        "install the package softmig-node",
    ),
    broken(
        "mv /usr/libexec/softmig-epilog /root/kept",
        "mv /root/kept /usr/libexec/softmig-epilog",
        "NODE_PROGRAMS",
        "install the package softmig-node",
    ),
    broken(
        "mv /etc/ld.so.preload /root/kept",
        "mv /root/kept /etc/ld.so.preload",
        "PRELOAD",
        "softmig install --hook",
    ),
    broken(
        "mv S /root/kept",
        "mv /root/kept S",
        "PRELOAD_BROKEN",
        "softmig uninstall --hook",
    ),
    broken(
        "cp -p S /root/kept; cp S S.new; echo >> S.new; mv S.new S",
        "mv /root/kept S",
        "LIBRARY_OLD",
        "softmig install --hook",
    ),
    broken(
        "chmod 775 S",
        "chmod 755 S",
        "LIBRARY_OPEN",
        "softmig install --hook",
    ),
    broken(
        "mv N /root/kept",
        "mv /root/kept N",
        "NODE_CONF",
        "softmig install --hook",
    ),
    broken(
        "cp -p N /root/kept; echo SOFTMIG_NODE=perhaps > N",
        "mv /root/kept N",
        "NODE_CONF",
        "softmig node MODE",
    ),
    broken(
        "cp -p N /root/kept; softmig node off",
        "mv /root/kept N",
        "NODE_MODE",
        "softmig node enforce",
    ),
    broken(
        "mv P /root/kept",
        "mv /root/kept P",
        "POLICY_MISSING",
        "/etc/softmig/policy.toml with mode 0644",
    ),
    broken(
        "cp -p P /root/kept; echo nonsense >> P",
        "mv /root/kept P",
        "POLICY_MISSING",
        "line ",
    ),
    broken(
        "chmod 600 P",
        "chmod 644 P",
        "POLICY_UNREADABLE",
        "chmod 644 /etc/softmig/policy.toml",
    ),
    broken(
        "chmod 700 /etc/softmig",
        "chmod 755 /etc/softmig",
        "POLICY_UNREADABLE",
        "chmod 755 /etc/softmig",
    ),
    broken(
        "echo '# older' > /var/spool/softmig-policy.toml",
        "rm /var/spool/softmig-policy.toml",
        "POLICY_IN_FORCE",
        "its log says why",
    ),
    broken(
        "mount -t tmpfs -o size=16k none /run/softmig; head -c 16384 /dev/zero > /run/softmig/full",
        "umount /run/softmig",
        "RUN_FULL",
        "du -a /var/run/softmig",
    ),
];

fn in_full(script: &str) -> String {
    let words: [(&str, &str); 5] = [
        ("L", LUA),
        ("C", "/etc/slurm/slurm.conf"),
        ("S", "/usr/lib/softmig/libsoftmig.so"),
        ("N", "/etc/softmig/node.conf"),
        ("P", "/etc/softmig/policy.toml"),
    ];
    let word = |word: &str| {
        let ended = word.trim_end_matches(';');
        let (name, rest) = ended.split_at(ended.find('.').unwrap_or(ended.len()));
        let path = words.iter().find(|(short, _)| *short == name);
        path.map_or(word.to_string(), |(_, path)| {
            format!("{path}{rest}{}", &word[ended.len()..])
        })
    };
    script.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Code and remedy of all that is found.
fn doctor(machine: &Machine) -> Result<BTreeSet<(String, String)>> {
    let output = machine
        .command("root", &["softmig", "doctor", "--json"])
        .output()?;
    let json: Value = serde_json::from_str(&output.stdout).with_context(|| output.to_string())?;
    let findings = json["check"]["findings"]
        .as_array()
        .context("no findings")?;
    let errors = json["check"]["errors"].as_u64();
    ensure!(
        output.status.code() == Some(if errors == Some(0) { 0 } else { 3 }),
        "{output}"
    );
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_string();
    Ok(findings
        .iter()
        .map(|finding| {
            let code = text(finding, "code");
            (
                code,
                format!("{}; {}", text(finding, "what"), text(finding, "remedy")),
            )
        })
        .collect())
}

/// Without slurmctld, scontrol would wait for it.
const WITHOUT_SLURMCTLD: &str = "mv /usr/bin/scontrol /root";

fn machine() -> Result<Machine> {
    let machine = Root::new(Slurm::V22_05).layer(stage()).start()?;
    machine.write(
        "/etc/softmig/policy.toml",
        include_str!("../../../conf/policy.toml"),
    )?;
    shell(&machine, WITHOUT_SLURMCTLD)?;
    shell(
        &machine,
        "mkdir -p /etc/slurm /run/softmig; chmod 755 /etc/softmig; \
         for file in slurm gres cgroup; do cp /usr/share/softmig/examples/$file.conf /etc/slurm; done; \
         sed -i \"s/^SlurmctldHost=.*/SlurmctldHost=$(hostname -s)\\nSlurmUser=slurm\\nStateSaveLocation=\\/var\\/spool/\" \
             /etc/slurm/slurm.conf; \
         cp /usr/share/softmig/examples/*.lua /etc/slurm; softmig install --hook --mode enforce",
    )?;
    Ok(machine)
}

#[test]
fn each_broken_state_is_found_with_what_to_type() -> Result<()> {
    let machine = machine()?;
    let well = doctor(&machine)?;
    for state in ALL {
        let by = in_full(state.by);
        shell(&machine, &by)?;
        let found = doctor(&machine)?;
        let new: Vec<_> = found
            .difference(&well)
            .filter(|(code, _)| code == state.code)
            .collect();
        ensure!(
            new.iter().any(|(_, said)| said.contains(state.types)),
            "{by}: {} with {:?} is not in {found:#?}",
            state.code,
            state.types
        );
        shell(&machine, &in_full(state.mended_by))?;
        let mended = doctor(&machine)?;
        ensure!(
            mended == well,
            "{by}: after it was mended: {mended:#?}, before: {well:#?}"
        );
    }
    assert!(ALL.len() >= 20);
    Ok(())
}

#[test]
fn a_monitor_that_does_not_run_or_is_older_is_found() -> Result<()> {
    const MONITOR: &str = "/usr/libexec/softmig-monitor";
    let machine = machine()?;
    let has = |code: &str| -> Result<bool> {
        Ok(doctor(&machine)?.iter().any(|(found, _)| found == code))
    };
    assert!(has("MONITOR")? && !has("MONITOR_OLD")?);
    let mut daemon = machine.command("root", &[MONITOR]).spawn()?;
    let runs = || -> Result<bool> {
        for _ in 0..200 {
            if !has("MONITOR")? {
                return Ok(true);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(false)
    };
    assert!(runs()? && !has("MONITOR_OLD")?);
    shell(
        &machine,
        &format!("cp -p {MONITOR} {MONITOR}.new; mv {MONITOR}.new {MONITOR}"),
    )?;
    assert!(has("MONITOR_OLD")?);
    let said = machine
        .command("root", &["softmig", "node"])
        .output()?
        .ok()?;
    assert!(said.contains("it is from before an upgrade"), "{said}");
    daemon.kill()?;
    Ok(())
}

#[test]
fn a_machine_without_softmig_is_told_what_to_type() -> Result<()> {
    let machine = Root::new(Slurm::V22_05).layer(stage()).start()?;
    shell(&machine, WITHOUT_SLURMCTLD)?;
    let said = machine.command("root", &["softmig", "doctor"]).output()?;
    for part in [
        "\nlibrary   not installed, loaded into none\n",
        "\nERROR POLICY_MISSING policy.toml: ",
        "\nERROR NODE_CONF /etc/softmig/node.conf: the file does not exist, so softmig does nothing here; run 'softmig install",
        "\nsoftmig doctor: 3 errors",
    ] {
        assert!(said.stdout.contains(part), "{part}: {said}");
    }
    assert_eq!(said.status.code(), Some(3));
    Ok(())
}
