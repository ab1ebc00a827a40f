//! Programs with other rights than their user's: any user can make one, and is still held. The
//! library says nothing in them, whatever the level, so their silence shows that they are what they should be.

use anyhow::Result;
use softmig_tests::{Slurm, on_each_slurm};

use crate::identity::answer::Answer;
use crate::identity::place::NO_CONF;
use crate::identity::site::{outside, site, step};

on_each_slurm!(
    a_set_gid_copy_is_held_to_its_jobs_slice,
    a_set_uid_copy_is_held_to_the_slice_of_who_runs_it,
    a_set_uid_copy_gets_no_gpu_where_its_job_has_none,
    a_set_uid_copy_outside_jobs_hears_nothing_of_the_environment,
    root_inside_a_slice_is_held_to_it,
);

fn a_set_gid_copy_is_held_to_its_jobs_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let copy = "copy=$(mktemp -d)/whose; cp /opt/programs/whose $copy\n\
        chgrp project $copy; chmod g+s $copy\n$copy; CUDA_DEVICE_MEMORY_LIMIT=90G env -i $copy";
    let silent = Answer::limited_silently();
    assert_eq!(site.step(site.quarter, copy)?, [silent.clone(), silent]);
    let refused = Answer::refused_silently();
    assert_eq!(site.step(site.none, copy)?, [refused.clone(), refused]);
    // A copy under a group that its user has anyway is an ordinary program.
    site.assert_known(&copy.replace("project", "alice").replace("env -i ", ""))
}

/// A copy of the client that runs as its owner, even if another user starts it.
fn set_uid(owner: &str) -> String {
    format!("/tmp/whose-{owner}")
}

/// Makes it, as its owner could.
fn make_set_uid(node: &softmig_tests::Node, owner: &str) -> Result<String> {
    let copy = set_uid(owner);
    // By rename: another test may run it.
    let make =
        format!("cp /opt/programs/whose {copy}.$$ && chmod 4755 {copy}.$$ && mv {copy}.$$ {copy}");
    outside(node, owner, &make)?;
    Ok(copy)
}

fn a_set_uid_copy_is_held_to_the_slice_of_who_runs_it(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let bobs = make_set_uid(site.crowded(), "bob")?;
    let alices = make_set_uid(site.crowded(), "alice")?;
    let silent = [Answer::limited_silently()];
    assert_eq!(site.step(site.quarter, &bobs)?, silent);
    assert_eq!(step(&site.cluster, "bob", site.bobs, &alices)?, silent);
    assert_eq!(site.step(site.whole, &bobs)?, [Answer::passive()]);
    // Outside jobs too it is who runs it that counts: bob has no slice on the second node, where alice has one.
    assert_eq!(outside(site.crowded(), "alice", &bobs)?, silent);
    let job = site.job("gpu:l40s.2:1")?;
    let alices = make_set_uid(site.empty(), "alice")?;
    let said = outside(site.empty(), "bob", &alices)?;
    assert_eq!(said, [Answer::passive()]);
    site.end(job)
}

fn a_set_uid_copy_gets_no_gpu_where_its_job_has_none(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let bobs = make_set_uid(site.crowded(), "bob")?;
    let said = site.step(site.none, &format!("{bobs}; whose"))?;
    let refused = Answer::refused(site.none, NO_CONF);
    assert_eq!(said, [Answer::refused_silently(), refused]);
    Ok(())
}

fn a_set_uid_copy_outside_jobs_hears_nothing_of_the_environment(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let alices = make_set_uid(site.empty(), "alice")?;
    let script = format!("export CUDA_DEVICE_MEMORY_LIMIT=1g\n{alices}; whose");
    assert_eq!(
        outside(site.empty(), "bob", &script)?,
        [Answer::passive(), Answer::limited_by_itself()]
    );
    Ok(())
}

/// As by sudo. Root can do anything else, but not by accident.
fn root_inside_a_slice_is_held_to_it(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let adopted = crate::identity::elsewhere::adopt(site, site.half, "whose");
    assert_eq!(
        outside(site.crowded(), "root", &adopted)?,
        [site.half_answer()]
    );
    Ok(())
}
