//! Checks that slurmctld goes by policy.toml.

use crate::site::check::facts::InForce;
use crate::site::check::finding::{Code, Finding};
use softmig_policy::Policy;

pub(crate) fn check(in_force: &InForce) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(closed) = &in_force.closed {
        let closed = closed.display();
        let (may, remedy) = if closed.to_string() == Policy::PATH {
            ("read", format!("'chmod 644 {closed}'"))
        } else {
            ("look into", format!("'chmod 755 {closed}'"))
        };
        let decides = match &in_force.last_good {
            Some(path) => format!("the last good one decides, {}", path.display()),
            None => "the last good one decides, or slices are refused if there never was one"
                .to_string(),
        };
        found.push(Finding::new(
            Code::PolicyUnreadable,
            closed.to_string(),
            format!(
                "slurmctld runs as {}, which may not {may} it: {decides}",
                in_force.user
            ),
            remedy,
        ));
    } else if let Some(path) = &in_force.last_good {
        found.push(Finding::new(
            Code::PolicyInForce,
            Policy::PATH,
            format!("slurmctld went by another one at the last submission, {}", path.display()),
            "it takes the new one at the next submission; if this stays, its log says why it cannot",
        ));
    }
    found
}
