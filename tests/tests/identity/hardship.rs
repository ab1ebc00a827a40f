//! Processes with few resources, such as no open files or a small stack: their limits still hold, and the library never
//! ends them.

use anyhow::Result;
use softmig_tests::{Slurm, on_each_slurm};

use crate::identity::answer::Answer;
use crate::identity::site::{site, step};

on_each_slurm!(
    a_process_that_can_open_no_file_gets_no_gpu_until_it_can,
    a_limit_on_the_size_of_files_ends_no_program,
    a_closed_standard_error_changes_no_limit,
    a_small_stack_is_enough,
    a_log_that_cannot_be_written_keeps_the_limits,
);

fn a_process_that_can_open_no_file_gets_no_gpu_until_it_can(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let too_many_open_files = "a file of softmig's cannot be read: error 24";
    let refused = Answer::refused_outside(too_many_open_files);
    assert_eq!(
        site.step(site.quarter, "whose without-files")?,
        [refused.clone(), site.quarter_answer().after_two_refusals()]
    );
    assert_eq!(
        site.step(site.whole, "whose without-files")?,
        [refused, Answer::passive()]
    );
    Ok(())
}

/// Writing beyond the limit would end the program: neither the job's log nor a file as standard error is worth that.
fn a_limit_on_the_size_of_files_ends_no_program(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    for blocks in [0, 1] {
        let script =
            format!("(ulimit -f {blocks}; whose 2>$(mktemp)) | cat; exit ${{PIPESTATUS[0]}}");
        let said = site.step(site.quarter, &script)?;
        assert_eq!(said, [Answer::limited_silently()]);
        let said = site.step(site.none, &script)?;
        assert_eq!(said, [Answer::refused_silently()]);
    }
    let job = site.job("gpu:l40s.2:1")?;
    let conf = format!("/var/run/softmig/{job}.conf");
    site.empty().run_as_root(&["rm", &conf])?.ok()?;
    let script = "(ulimit -f 0; whose 2>/dev/null) | cat; exit ${PIPESTATUS[0]}";
    assert_eq!(site.step(job, script)?, [Answer::refused_silently()]);
    site.end(job)
}

fn a_closed_standard_error_changes_no_limit(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    // A file that the library opens gets the number of the closed one.
    let said = site.step(
        site.quarter,
        "whose 2>&-; whose 2>&- <&-; whose 2</dev/null",
    )?;
    let silent = Answer::limited_silently();
    assert_eq!(said, [silent.clone(), silent.clone(), silent]);
    Ok(())
}

fn a_small_stack_is_enough(slurm: Slurm) -> Result<()> {
    site(slurm)?.assert_known("(ulimit -s 160; whose)")
}

/// The log belongs to the user, who may fill it, lock it and take its permissions away.
fn a_log_that_cannot_be_written_keeps_the_limits(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let spoil = "log=/var/run/softmig/jobs/$SLURM_JOB_ID/log\nchmod 000 $log; whose; chmod 600 $log\n\
        flock $log whose; dd if=/dev/zero of=$log bs=1M status=none 2>/dev/null; whose; : >$log\nwhose";
    let bobs = [site.bobs(), site.bobs(), site.bobs(), site.bobs()];
    assert_eq!(step(&site.cluster, "bob", site.bobs, spoil)?, bobs);
    Ok(())
}
