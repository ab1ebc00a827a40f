//! The modules in each real Lua interpreter that Slurm may be built with, against a stub of Slurm's own functions.

use anyhow::Result;
use softmig_tests::softmig::stage;
use softmig_tests::{Root, Slurm};

/// Runs a script after the stub, in that interpreter; what it printed, but for the line about a policy that is read first.
fn lua(version: &str, script: &str) -> Result<String> {
    let said = all_of(version, script)?;
    let lines = said.split_inclusive('\n');
    Ok(lines.filter(|line| !line.contains(IN_FORCE)).collect())
}

const IN_FORCE: &str = "log_info: softmig: /etc/softmig/policy.toml is in force: 4 [gpu.*], ";

fn all_of(version: &str, script: &str) -> Result<String> {
    Root::new(Slurm::V22_05)
        .stage(stage())
        .file("/stub.lua", include_str!("../src/stub.lua"))
        .file("/test.lua", script)
        .file("/etc/slurm/slurm.conf", "")
        .run(&[
            "bash",
            "-c",
            &format!("lua{version} -e 'dofile(\"/stub.lua\")' /test.lua 2>&1"),
        ])?
        .ok()
}

macro_rules! in_each_lua {
    ($($name:ident),+ $(,)?) => {
        in_each_lua!(@ lua_5_1 "5.1" $($name),+);
        in_each_lua!(@ lua_5_3 "5.3" $($name),+);
        in_each_lua!(@ lua_5_4 "5.4" $($name),+);
    };
    (@ $module:ident $version:literal $($name:ident),+) => {
        mod $module {
            $(#[test] fn $name() -> anyhow::Result<()> { super::$name($version) })+
        }
    };
}

in_each_lua!(
    the_policy_that_is_in_force_is_told_once,
    a_slice_is_granted,
    a_refusal_reaches_the_user_word_for_word,
    a_job_without_a_slice_is_not_touched,
    an_error_of_slurms_refuses_a_slice_and_passes_the_rest,
    a_field_that_raises_an_error_counts_as_not_set,
    text_that_is_not_utf8_does_no_harm,
    a_client_is_given_the_translation,
    a_client_without_a_module_lets_all_pass,
);

const JOB_SUBMIT: &str = "dofile('/etc/slurm/job_submit.lua')\n";
const CLI_FILTER: &str = "dofile('/etc/slurm/cli_filter.lua')\n";

fn the_policy_that_is_in_force_is_told_once(version: &str) -> Result<()> {
    let submit = "slurm_job_submit(record{ tres_per_node = 'gres/gpu:l40s.4:1' }, {}, 2001.0)\n";
    let said = all_of(version, &format!("{JOB_SUBMIT}{submit}{submit}"))?;
    assert_eq!(said.matches(IN_FORCE).count(), 1, "{said}");
    Ok(())
}

fn a_slice_is_granted(version: &str) -> Result<()> {
    let said = lua(
        version,
        &format!(
            "{JOB_SUBMIT}print(slurm_job_submit(record{{ tres_per_job = 'gres/gpu:l40s.4:1', comment = '100%' }}, {{}}, 2001.0))"
        ),
    )?;
    assert_eq!(
        said,
        "tres_per_node = gres/shard:l40s:1\ntres_per_job = \nmin_nodes = 1\nmax_nodes = 1\n\
         extra = softmig=1:l40s:1/4:11366:hard\n\
         log_info: softmig: job_submit: uid=2001: gpu:l40s.4:1: granted as gres/shard:l40s:1: 11366 MiB, 25 % of the time, hard\n0\n"
    );
    Ok(())
}

fn a_refusal_reaches_the_user_word_for_word(version: &str) -> Result<()> {
    let said = lua(
        version,
        &format!(
            "{JOB_SUBMIT}print(slurm_job_submit(record{{ tres_per_node = 'gres:gpu:l40s.3:1' }}, {{}}, 2001))"
        ),
    )?;
    // The percent signs are text, not a format.
    assert_eq!(
        said,
        "log_user: softmig: gpu:l40s.3:1: GPUs of type l40s are divided into 2 or 4 slices [SLICE_SIZE]\n\
         log_user: softmig: use --gres=gpu:l40s.2:1 (22732 MiB, 50 % of the GPU's time) or --gres=gpu:l40s.4:1 (11366 MiB, 25 % of the GPU's time)\n\
         log_info: softmig: job_submit: uid=2001: refused: gpu:l40s.3:1: GPUs of type l40s are divided into 2 or 4 slices [SLICE_SIZE]\n2072\n"
    );
    Ok(())
}

fn a_job_without_a_slice_is_not_touched(version: &str) -> Result<()> {
    let said = lua(
        version,
        &format!(
            "{JOB_SUBMIT}print(slurm_job_submit(record{{ comment = 'mine', num_tasks = 4 }}, {{}}, 2001))\n\
             print(slurm_job_submit(record{{ tres_per_node = 'gres/gpu:l40s:2,gres/license:x:1' }}, {{}}, 2001))\n\
             print(slurm_job_modify(record{{ priority = 0 }}, record{{ extra = 'softmig=1:whole' }}, {{}}, 2001))"
        ),
    )?;
    assert_eq!(
        said,
        "0\nextra = softmig=1:whole\nlog_info: softmig: job_submit: uid=2001: whole GPUs: unchanged\n0\n0\n"
    );
    Ok(())
}

fn an_error_of_slurms_refuses_a_slice_and_passes_the_rest(version: &str) -> Result<()> {
    let said = lua(
        version,
        &format!(
            "{JOB_SUBMIT}local function broken(fields)\n\
             return setmetatable({{}}, {{ __index = fields, __newindex = function() error('no room') end }})\nend\n\
             print(slurm_job_submit(broken{{ tres_per_node = 'gres/gpu:l40s.4:1' }}, {{}}, 1))\n\
             print(slurm_job_submit(broken{{ tres_per_node = 'gres/gpu:l40s:1' }}, {{}}, 1))\n\
             print(slurm_job_submit(broken{{}}, {{}}, 1))"
        ),
    )?;
    let codes: Vec<&str> = said
        .lines()
        .filter(|line| line.parse::<i32>().is_ok())
        .collect();
    assert_eq!(codes, ["2072", "0", "0"], "{said}");
    assert!(said.contains("log_error: softmig: no decision:"), "{said}");
    assert!(said.contains("no room"), "{said}");
    assert!(
        said.contains("log_user: softmig: softmig could not process"),
        "{said}"
    );
    Ok(())
}

fn a_field_that_raises_an_error_counts_as_not_set(version: &str) -> Result<()> {
    let said = lua(
        version,
        &format!(
            "{JOB_SUBMIT}local fields = {{ tres_per_node = 'gres/gpu:l40s.4:1' }}\n\
             local job = setmetatable({{}}, {{ __newindex = fields, __index = function(_, name)\n\
             if name == 'qos' or name == 'tres_bind' then error('no such field') end\n\
             return fields[name]\nend }})\n\
             print(slurm_job_submit(job, {{}}, 1), fields.tres_per_node)"
        ),
    )?;
    assert!(said.ends_with("0\tgres/shard:l40s:1\n"), "{said}");
    Ok(())
}

fn text_that_is_not_utf8_does_no_harm(version: &str) -> Result<()> {
    let said = lua(
        version,
        &format!(
            "{JOB_SUBMIT}print(slurm_job_submit(record{{ tres_per_node = 'gres/gpu:l40s.4:\\255', comment = '\\254' }}, {{}}, 1))\n\
             print(slurm_job_submit(record{{ tres_per_node = 'gres/license:\\255', comment = '\\254' }}, {{}}, 1))"
        ),
    )?;
    assert!(said.is_ascii(), "{said}");
    assert!(said.contains("[MALFORMED]"), "{said}");
    assert!(said.ends_with("\n2072\n0\n"), "{said}");
    Ok(())
}

fn a_client_is_given_the_translation(version: &str) -> Result<()> {
    let said = lua(
        version,
        &format!(
            "{CLI_FILTER}print(slurm_cli_pre_submit(options{{ type = 'sbatch', gpus = 'l40s.4:1', ntasks = '1' }}, 0))\n\
             print(slurm_cli_pre_submit(options{{ type = 'srun', gres = 'gres/gpu:l40s.3:1' }}, 0))\n\
             print(slurm_cli_pre_submit(options{{ type = 'salloc', gres = 'gres/gpu:l40s:1' }}, 0))\n\
             print(slurm_cli_setup_defaults({{}}, false), slurm_cli_post_submit(0, 1, 0))"
        ),
    )?;
    assert!(
        said.starts_with(
            "gres = shard:l40s:1\ngpus = \ncomment = softmig=typed:gpu:l40s.4:1\n0\n\
             log_error: softmig: gpu:l40s.3:1:"
        ),
        "{said}"
    );
    assert!(said.ends_with("\n-1\n0\n0\t0\n"), "{said}");
    Ok(())
}

fn a_client_without_a_module_lets_all_pass(version: &str) -> Result<()> {
    let module = format!("/usr/lib/softmig/lua/{version}/softmig_cli_filter.so");
    // None, no library at all, and the library of something else.
    for broken in [
        format!("os.remove('{module}')"),
        format!("local file = io.open('{module}', 'w') file:write('rubbish') file:close()"),
        format!("os.execute('cp /usr/lib/softmig/lua/{version}/softmig_job_submit.so {module}')"),
    ] {
        let said = lua(
            version,
            &format!(
                "{broken}\n{CLI_FILTER}\
                 print(slurm_cli_setup_defaults({{}}, false), slurm_cli_post_submit(0, 1, 0))\n\
                 print(slurm_cli_pre_submit(options{{ type = 'srun', gres = 'gpu:l40s.4:1' }}, 0))"
            ),
        )?;
        let why = "log_verbose: softmig: cli_filter does nothing here: ";
        assert!(said.starts_with(why) && said.contains("\n0\t0\n"), "{said}");
        assert!(said.ends_with("\n0\n"), "{said}");
    }
    // The site's own script counts then.
    let said = lua(
        version,
        &format!(
            "os.remove('{module}')\nfunction slurm_cli_pre_submit() return 7 end\n{CLI_FILTER}\
             print(slurm_cli_pre_submit(options{{}}, 0))"
        ),
    )?;
    assert_eq!(said, "7\n");
    Ok(())
}

/// Times of an exclusive job, in milliseconds, by the number of nodes of its partition, and how often it is named.
const EXCLUSIVE: &str = "\
dofile('/etc/slurm/job_submit.lua')
for _, nodes in ipairs({ 100, 1000 }) do
    local partitions = { cpu = { nodes = 'n[1-' .. nodes .. ']' } }
    for _, times in ipairs({ 1, 64, 1000, 5000 }) do
        local named = string.rep('cpu,', times - 1) .. 'cpu'
        local job = record{ shared = 0, partition = named }
        local took = {}
        for round = 1, 9 do
            local start = os.clock()
            assert(slurm_job_submit(job, partitions, 2001) == 0)
            took[round] = (os.clock() - start) * 1000
        end
        local first = took[1]
        table.sort(took)
        print(string.format('| %d | %d | %.2f ms | %.2f ms |', nodes, times, first, took[5]))
    end
end
";

/// A policy that has to know whether an exclusive job gets GPUs.
const GATED: &str = "\
[gpu.l40s]
memory_mib = 46068
reserved_mib = 604
shards = 4
[[nodes]]
names = \"gpu[1-4]\"
gpus = [\"l40s:4\"]
[[gate]]
what = \"whole\"
reservation = [\"course\"]
";

#[test]
#[ignore = "a measurement; bench/results/exclusive.md has a run"]
fn what_an_exclusive_job_costs_slurmctld() -> Result<()> {
    let root = Root::new(Slurm::V22_05)
        .stage(stage())
        .file("/etc/softmig/policy.toml", GATED)
        .file("/stub.lua", include_str!("../src/stub.lua"))
        .file("/test.lua", EXCLUSIVE)
        .file("/etc/slurm/slurm.conf", "");
    let said = root
        .run(&["lua5.3", "-e", "dofile('/stub.lua')", "/test.lua"])?
        .ok()?;
    let rows = said.lines().filter(|line| line.starts_with('|'));
    rows.for_each(|row| println!("{row}"));
    Ok(())
}
