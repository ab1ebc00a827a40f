//! The time after which a job that does not use its GPU is idle.

use super::*;
use std::time::Duration;

const PEOPLE: &str = "[defaults]\nshards = 1\nwhole_gpus = 0\nmig = {}\nidle_minutes = 60\n\
    [classes.student]\nmembers = { accounts = [\"Teaching\"] }\nidle_minutes = 30\n\
    [classes.guest]\nmembers = { groups = [3001] }\nidle_minutes = 5\n\
    [classes.admin]\nmembers = { users = [\"carol\"] }\nidle_minutes = \"unlimited\"\n\
    [users.dave]\nclass = \"student\"\nidle_minutes = 10\n";

#[test]
fn each_user_has_the_time_of_their_class_or_of_their_own() {
    let policy = policy(PEOPLE);
    let minutes = |user, account, group| {
        let after = policy.idle_after(Some(user), account, group);
        after.map(|after: Duration| after.as_secs() / 60)
    };
    assert_eq!(minutes("alice", None, Some(2001)), Some(60));
    // She may be a guest.
    assert_eq!(minutes("alice", None, None), None);
    assert_eq!(minutes("alice", Some("teaching"), Some(3001)), Some(30));
    assert_eq!(minutes("alice", None, Some(3001)), Some(5));
    assert_eq!(minutes("carol", Some("teaching"), None), None);
    assert_eq!(minutes("dave", None, None), Some(10));
    let none = self::policy("");
    assert_eq!(none.idle_after(Some("alice"), None, None), None);
}

#[test]
fn a_time_that_cannot_be_meant_is_an_error() {
    for minutes in [0, 10_081] {
        let said = wrong(&format!("[defaults]\nidle_minutes = {minutes}\n"));
        let expected = format!("idle_minutes = {minutes} is not from 1 to 10080");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_time_alone_needs_no_qos_and_limits_nothing() {
    let policy = policy("[defaults]\nidle_minutes = 60\n");
    assert!(!policy.looks_at_people());
    assert_eq!(passed(ask(&policy, "gpu:l40s.4:1", alice())).qos, None);
}
