//! A step of an installation, and what runs several of them.

use crate::output::say::say;
use anyhow::bail;

/// A step: said, done, checked, and undone if a later one fails.
pub(crate) trait Step {
    /// The change to make here, as an order; `None` where all is as it should be.
    fn needed(&mut self) -> anyhow::Result<Option<String>>;

    /// Does it. `undo` also undoes one that fails half-way.
    fn take(&mut self) -> anyhow::Result<()>;

    /// Fails unless it has its effect now.
    fn check(&self) -> anyhow::Result<()>;

    /// Makes all as it was before.
    fn undo(&mut self) -> anyhow::Result<()>;

    /// Removes what undoing would have needed.
    fn keep(&mut self) {}

    /// Whether it is worth a line. Steps without one only help others.
    fn is_told(&self) -> bool {
        true
    }
}

/// The steps of an installation, in their order.
pub(crate) struct Steps(Vec<Box<dyn Step>>);

impl Steps {
    pub(crate) fn new(steps: Vec<Box<dyn Step>>) -> Self {
        Self(steps)
    }

    /// Takes all of them, or none.
    pub(crate) fn run(self, dry_run: bool) -> anyhow::Result<()> {
        let mut taken: Vec<Box<dyn Step>> = Vec::new();
        let mut unchanged = 0_usize;
        for mut step in self.0 {
            let what = match step.needed() {
                Ok(Some(what)) => what,
                Ok(None) => {
                    unchanged += 1;
                    continue;
                }
                Err(error) => return back(taken, error),
            };
            if dry_run {
                if step.is_told() {
                    say!("would {what}");
                }
                continue;
            }
            let done = step.take().and_then(|()| step.check());
            if done.is_ok() && step.is_told() {
                say!("{what}: done");
            }
            taken.push(step);
            if let Err(error) = done {
                return back(taken, error.context(what));
            }
        }
        for step in &mut taken {
            step.keep();
        }
        if unchanged > 0 {
            say!("{unchanged} other steps: nothing to do, all is as it should be");
        }
        Ok(())
    }
}

/// Undoes the steps, the last one first.
fn back(taken: Vec<Box<dyn Step>>, why: anyhow::Error) -> anyhow::Result<()> {
    let mut left = Vec::new();
    for mut step in taken.into_iter().rev() {
        if let Err(error) = step.undo() {
            left.push(format!("{error:#}"));
        }
    }
    if left.is_empty() {
        return Err(why.context("all is as it was before"));
    }
    bail!(
        "{why:#}; and not all could be undone: {}; mend that, then do this again",
        left.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    type Log = Rc<RefCell<Vec<String>>>;

    struct Noted {
        name: &'static str,
        log: Log,
        fails: &'static str,
    }

    impl Noted {
        fn note(&self, what: &str) -> anyhow::Result<()> {
            self.log.borrow_mut().push(format!("{what} {}", self.name));
            if self.fails == what {
                bail!("{what} {} fails", self.name)
            } else {
                Ok(())
            }
        }
    }

    impl Step for Noted {
        fn needed(&mut self) -> anyhow::Result<Option<String>> {
            match self.fails {
                "needless" => Ok(None),
                "unknown" => bail!("unknown"),
                _ => Ok(Some(format!("take {}", self.name))),
            }
        }
        fn take(&mut self) -> anyhow::Result<()> {
            self.note("take")
        }
        fn check(&self) -> anyhow::Result<()> {
            self.note("check")
        }
        fn undo(&mut self) -> anyhow::Result<()> {
            self.note("undo")
        }
        fn keep(&mut self) {
            let _ = self.note("keep");
        }
    }

    fn run(third: &'static str, dry_run: bool) -> (Vec<String>, Option<String>) {
        let log = Log::default();
        let step = |name, fails| {
            let log = log.clone();
            Box::new(Noted { name, log, fails }) as Box<dyn Step>
        };
        let steps = vec![step("a", ""), step("b", "needless"), step("c", third)];
        let done = Steps::new(steps).run(dry_run);
        let error = done.err().map(|error| format!("{error:#}"));
        (log.take(), error)
    }

    #[test]
    fn all_are_taken_and_checked() {
        let (log, error) = run("", false);
        assert_eq!(error, None);
        assert_eq!(
            log,
            ["take a", "check a", "take c", "check c", "keep a", "keep c"]
        );
        assert_eq!(run("", true), (Vec::new(), None));
    }

    #[test]
    fn one_that_fails_takes_all_back() {
        for (fails, expected) in [
            (
                "take",
                &["take a", "check a", "take c", "undo c", "undo a"][..],
            ),
            (
                "check",
                &["take a", "check a", "take c", "check c", "undo c", "undo a"],
            ),
            ("unknown", &["take a", "check a", "undo a"]),
        ] {
            let (log, error) = run(fails, false);
            assert_eq!(log, expected, "{fails}");
            assert!(error.unwrap().starts_with("all is as it was before"));
        }
    }
}
