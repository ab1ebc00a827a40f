//! The answers of other nodes about themselves.

use crate::site::check::facts::{Answer, NodeFinding};
use crate::site::check::finding::{Code, Finding, Level};
use softmig_policy::slurm::hostlist::compress;

/// The findings of nodes; nodes with the same finding share one line.
pub(crate) fn answers(answers: &[Answer]) -> Vec<Finding> {
    let mut said: Vec<(NodeFinding, Vec<&str>)> = Vec::new();
    let mut found = Vec::new();
    for answer in answers {
        match &answer.told {
            Err(why) => found.push(Finding::skip(&answer.node, why)),
            Ok(findings) => {
                for told in findings {
                    match said.iter_mut().find(|(known, _)| known == told) {
                        Some((_, nodes)) => nodes.push(&answer.node),
                        None => said.push((told.clone(), vec![&answer.node])),
                    }
                }
            }
        }
    }
    for (told, nodes) in said {
        let place = format!("{}: {}", compress(nodes), told.r#where);
        found.push(match Code::named(&told.code) {
            // This machine has told such a finding about the policy already.
            Some(code) if code.level() == Level::Info => continue,
            Some(Code::ReservableOver) => continue,
            Some(code) => Finding::new(code, place, told.what, told.remedy),
            None => Finding::skip(
                place,
                format!(
                    "its softmig is another version, and says {} {}: {}",
                    told.level, told.code, told.what
                ),
            ),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(level: &str, code: &str) -> NodeFinding {
        NodeFinding {
            level: level.into(),
            code: code.into(),
            r#where: "policy.toml".into(),
            what: "what".into(),
            remedy: "remedy".into(),
        }
    }

    #[test]
    fn nodes_that_say_the_same_are_put_together() {
        let answer = |node: &str, told| Answer {
            node: node.into(),
            told,
        };
        let differs = || {
            vec![
                told("error", "POLICY_DIFFERS"),
                told("info", "RESERVABLE_WINDOW"),
            ]
        };
        let found = answers(&[
            answer("gpu1", Ok(differs())),
            answer("gpu2", Ok(differs())),
            answer("gpu3", Ok(vec![told("error", "FROM_THE_FUTURE")])),
            answer("gpu4", Err("no answer within 60 s".into())),
        ]);
        let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert_eq!(
            lines,
            [
                "SKIP  NOT_LOOKED_AT gpu4: no answer within 60 s",
                "ERROR POLICY_DIFFERS gpu[1-2]: policy.toml: what; remedy",
                "SKIP  NOT_LOOKED_AT gpu3: policy.toml: its softmig is another version, and says error FROM_THE_FUTURE: what",
            ]
        );
    }
}
