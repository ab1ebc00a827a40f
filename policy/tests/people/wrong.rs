//! Policies that say too little, or contradict themselves.

use super::*;

#[test]
fn an_incomplete_or_contradictory_policy_is_refused() {
    for (text, expected) in [
        (
            "[classes.a]\nmembers = { users = [\"x\"] }",
            "line 1: [classes.a]: shards is set neither here nor in [defaults]; write a number, or shards = \"unlimited\"",
        ),
        (
            "[classes.a]\nshards = 1",
            "line 1: [classes.a]: whole_gpus is set neither here nor in [defaults]",
        ),
        (
            "[classes.a]\nshards = 1\nwhole_gpus = 1",
            "line 1: [classes.a]: mig is set neither here nor in [defaults]",
        ),
        (
            "[classes.a]\nshards = 1\nwhole_gpus = 1\nmig = {}",
            "[defaults], which holds for people in no class: shards is set neither here nor in [defaults]; write a number, or shards = \"unlimited\"; or name a default_class",
        ),
        (
            "[defaults]\nshards = -1",
            "line 2: [defaults] shards: -1 is not a number from 0 up, or \"unlimited\"",
        ),
        (
            "[defaults]\nshards = \"lots\"",
            "line 2: [defaults] shards: \"lots\" is not a number",
        ),
        (
            "[defaults]\nshards = 1.5",
            "line 2: [defaults] shards: 1.5 is not a number",
        ),
        (
            "[defaults]\nwall_time = \"4h\"",
            "line 2: [defaults] wall_time: \"4h\" is no time; write for example \"4:00:00\" or \"7-00:00:00\", or \"unlimited\"",
        ),
        (
            "[defaults]\nwall_time = \"24\"",
            "line 2: [defaults] wall_time: \"24\" would be 00:24:00, which is hours, minutes and seconds",
        ),
        (
            "[[route]]\npartition = \"quick\"\nmax_time = \"2:00\"",
            "line 3: [[route]] max_time: \"2:00\" would be 00:02:00",
        ),
        (
            "[defaults]\nmig = { l40s = 1 }\n",
            "line 1: [defaults]: mig names l40s, and [gpu.\"l40s\"] does not say mig = true",
        ),
        (
            "[defaults]\nshard = 1",
            "line 2: [defaults]: unknown key shard; did you mean shards?",
        ),
        (
            "[defaults]\ncpus_per_shard = 0",
            "line 1: [defaults]: cpus_per_shard = 0 would give a job nothing; omit it",
        ),
        (
            "[defaults]\nmax_cpus_per_shard = 0\n",
            "line 1: [defaults]: max_cpus_per_shard = 0 would give a job nothing; omit it",
        ),
        (
            "[defaults]\nmax_host_memory_mib_per_shard = 0\n",
            "line 1: [defaults]: max_host_memory_mib_per_shard = 0 would give a job nothing; omit it",
        ),
        (
            "[defaults]\nhost_memory_mib = 63\n",
            "line 1: [defaults]: host_memory_mib = 63 is less than any job needs: it counts MiB; for 63 GiB write 64512",
        ),
        (
            "[defaults]\nhost_memory_mib_per_shard = 63\n",
            "line 1: [defaults]: host_memory_mib_per_shard = 63 is less than any job needs: it counts MiB; for 63 GiB write 64512",
        ),
        (
            "[defaults]\nmax_host_memory_mib_per_shard = 63\n",
            "line 1: [defaults]: max_host_memory_mib_per_shard = 63 is less than any job needs: it counts MiB; for 63 GiB write 64512",
        ),
        (
            "[defaults]\nshards_of = { l40 = 1 }",
            "line 1: [defaults]: shards_of names l40; [gpu.*] tables are h100_1g.10gb, h200, l40s, titanrtx",
        ),
        (
            "default_class = \"studnet\"\n[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.student]",
            "line 1: default_class: class studnet does not exist; did you mean student?",
        ),
        (
            "[classes.Student]\n",
            "line 1: [classes.Student]: \"Student\" cannot be the name of a class and QOS",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { users = [\"x\"] }\n[classes.b]\nmembers = { users = [\"x\"] }",
            "line 7: [classes.b]: user x is already in class a",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { accounts = [\"x\"] }\n[classes.b]\nmembers = { accounts = [\"X\"] }",
            "line 7: [classes.b]: account X is already in class a",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { groups = [1, 1] }",
            "line 5: [classes.a]: group 1 is already in class a",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = [\"x\"]",
            "line 6: [classes.a] members: \"x\" is not a list",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { groups = [\"students\"] }",
            "line 6: [classes.a] groups: \"students\" is not a group's number, which 'getent group \"students\"' shows",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { users = [\"x\"] }\n[classes.b]\n[users.x]\nclass = \"b\"",
            "line 8: [users.x]: class differs from class a, which has this user in members",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\n[classes.b]\nqos = \"a\"",
            "QOS a would be used by class a and by class b; give one of them another with qos = \"NAME\"",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\n",
            "line 1: [[gate]]: reservation is missing",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = []",
            "line 1: [[gate]]: reservation is empty, so no job could pass; name at least one",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a(\"]",
            "line 1: [[gate]]: reservation = \"a(\" is not a valid regular expression: unclosed group",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a)|(.*\"]",
            "is not a valid regular expression: unopened group",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"(a{1000}){1000}\"]",
            "it is too large",
        ),
        (
            "[defaults]\ncpus_per_shard = 8\nmax_cpus_per_shard = 4\n",
            "line 1: [defaults]: cpus_per_shard = 8 is more than max_cpus_per_shard = 4, so no slice could get it",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 0\nmig = {}\ncpus_per_shard = 8\n[classes.a]\ncpus = 4\n",
            "line 6: [classes.a]: cpus_per_shard = 8 is more than cpus = 4",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 0\nmig = {}\nhost_memory_mib = 100\n[users.bob]\nhost_memory_mib_per_shard = 101\n",
            "[users.bob]: host_memory_mib_per_shard = 101 is more than host_memory_mib = 100",
        ),
        (
            "[[gate]]\nwhat = \"slices\"\nreservation = [\"a\"]",
            "line 1: [[gate]]: what = \"slices\" is not valid; did you mean \"slice\"?",
        ),
        (
            "[[gate]]\nwhat = \"Whole\"\nreservation = [\"a\"]",
            "did you mean \"whole\"?",
        ),
        (
            "[[gate]]\nwhat = \"gpus\"\nreservation = [\"a\"]",
            "what = \"gpus\" is ambiguous: write \"slice\" for parts of GPUs, \"whole\" for whole ones",
        ),
        (
            "[[gate]]\nwhat = \"gpu\"\nreservation = [\"a\"]",
            "what = \"gpu\" is ambiguous",
        ),
        (
            "[[gate]]\nwhat = \"shard\"\nreservation = [\"a\"]",
            "what = \"shard\" is ambiguous",
        ),
        (
            "[[gate]]\nwhat = \"l40s\"\nreservation = [\"a\"]",
            "line 1: [[gate]]: what = \"l40s\" is a GPU type, but a gate applies to all types",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"course_*\"]",
            "for any ending write \"course_.*\"",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a\"]\naccounts = [\"a b\"]",
            "account = \"a b\" is not a valid name; write one account, as 'sacctmgr show account' lists it",
        ),
        (
            "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"Prof. Kim\"\nend = 2199-01-01T00:00:00\nreason = \"x\"",
            "user = \"Prof. Kim\" is not a valid name; write the login name, as 'id -un' shows it",
        ),
        (
            "[[gate]]\nwhat = \"gres/mps\"\nreservation = [\"a\"]",
            "line 1: [[gate]]: what = \"gres/mps\" is neither \"slice\" nor \"whole\" nor the name of a GRES",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a\"]\npartitions = []",
            "partitions = [] matches no job",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a\"]\nexempt_classes = [\"x\"]",
            "exempt_classes: class x does not exist; none is known here",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"[a\", \"b]\"]",
            "reservation = \"[a\" is not a valid regular expression: unclosed character class",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"(?x)a # b\"]",
            "has a #, which names of reservations cannot have",
        ),
        (
            "[[gate]]\nwhat = \"mps\"\nreservation = [\"a\"]\n[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 320",
            "what = \"mps\" has no effect",
        ),
        (
            "default_class = \"normal\"\n[classes.normal]\nshards = 1\nwhole_gpus = 1\nmig = {}",
            "[classes.normal]: \"normal\" is Slurm's default QOS",
        ),
        (
            "[gate]\nwhat = \"slice\"",
            "line 1: [gate]: this table can be written several times: write its name in double brackets",
        ),
        (
            "[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 0",
            "line 1: [legacy.mps]: units_per_gpu = 0 is not valid",
        ),
        (
            "[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 100",
            "units_per_gpu = 100 is not divisible by 8, which slices of [gpu.titanrtx] has",
        ),
        (
            "[legacy.mps]\ntype = \"x\"\nunits_per_gpu = 100",
            "type = \"x\" has no [gpu.*] table",
        ),
        (
            "[[route]]\npartition = \"\"",
            "line 1: [[route]]: partition = \"\" is not a valid partition name",
        ),
        (
            "[[route]]\npartition = \"a\"\ntypes = [\"x\"]",
            "types has x, which has no [gpu.*] table",
        ),
        (
            "[[route]]\npartition = \"a\"\njobs = \"all\"",
            "unknown word \"all\"; known here are batch, interactive",
        ),
        (
            "[[nodes]]\nnames = \"n1 n2\"\ngpus = [\"l40s:1\"]",
            "line 1: [[nodes]]: names = \"n1 n2\" is not a valid host list",
        ),
        (
            "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s\"]",
            "gpus has \"l40s\"; write TYPE:COUNT",
        ),
        (
            "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s:0\"]",
            "gpus has \"l40s:0\"; write TYPE:COUNT",
        ),
        (
            "[[nodes]]\nnames = \"n1\"\ngpus = [\"v100:4\"]",
            "gpus has v100, which has no [gpu.*] table",
        ),
        (
            "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s:1\"]\nslurm = \"a\\nPartitionName=x\"",
            "is not one line of plain words",
        ),
    ] {
        let error = wrong(text);
        assert!(error.contains(expected), "{text}\n{error}\n{expected}");
    }
    for (from, to, expected) in [
        (
            "end = 2026-11-28T08:00:00",
            "end = 2026-11-21T08:00:00",
            "start is not before end",
        ),
        ("end = 2026-11-28T08:00:00\n", "", "end is missing"),
        (
            "end = 2026-11-28T08:00:00",
            "end = \"tomorrow\"",
            "line 6: ",
        ),
        (
            "end = 2026-11-28T08:00:00",
            "end = 08:00:00",
            "end = 08:00:00 is not a valid time",
        ),
        (
            "user = \"alice\"\n",
            "",
            "the holder is missing; write user = \"NAME\" or account = \"NAME\"",
        ),
        (
            "user = \"alice\"\n",
            "user = \"a\"\naccount = \"b\"\n",
            "user and account are both set; write one",
        ),
        (
            "\"l40s_r\"",
            "\"h200\"",
            "type = \"h200\" also has a table [gpu.h200]",
        ),
        (
            "of = \"l40s\"",
            "of = \"x\"",
            "of = \"x\" has no [gpu.*] table",
        ),
        (
            "reason = \"paper deadline\"",
            "reason = \"\"",
            "reason is not one line of plain ASCII",
        ),
        ("reason = \"paper deadline\"\n", "", "reason is missing"),
    ] {
        let text = RESERVED.replace(from, to);
        assert_ne!(text, RESERVED);
        let error = wrong(&text);
        assert!(error.contains(expected), "{error}\n{expected}");
    }
    let twice = wrong(&format!("{RESERVED}{RESERVED}"));
    assert!(
        twice.contains(
            "line 8: [[reservable]]: type l40s_r is already reserved for user alice until 2026-11-28T08:00:00"
        ),
        "{twice}"
    );
    // Since ever, and one after the other.
    policy(&RESERVED.replace("start = 2026-11-21T08:00:00\n", ""));
    let next = RESERVED.replace("11-28", "12-05").replace("11-21", "11-28");
    policy(&format!("{RESERVED}{next}"));
}
