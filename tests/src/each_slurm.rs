//! One test function becomes one test for each version of Slurm.

use std::cell::RefCell;
use std::sync::OnceLock;

use anyhow::{Result, anyhow};

use crate::Slurm;

/// A value that a behaviour test may return: nothing, or a result.
pub trait Outcome {
    /// Fails the test when the outcome is an error.
    fn check(self);
}

impl Outcome for () {
    fn check(self) {
        LOGS.take();
    }
}

impl Outcome for Result<()> {
    fn check(self) {
        let logs = LOGS.take();
        match self.map_err(|error| format!("{error:#}")) {
            Ok(()) => {}
            // Some errors bring the logs along.
            Err(error) if error.contains("--- slurmctld") => panic!("{error}"),
            Err(error) => panic!("{error}\n{logs}"),
        }
    }
}

thread_local! {
    /// The logs of the clusters that this thread's test had.
    static LOGS: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the last lines of a cluster's logs until it is known whether the test failed.
pub(crate) fn keep_logs(logs: &str) {
    LOGS.with_borrow_mut(|kept| kept.push_str(logs));
}

/// One value for each version of Slurm, such as a cluster, that all tests share. It is made when a test first needs it.
pub struct PerSlurm<T> {
    make: fn(Slurm) -> Result<T>,
    made: [OnceLock<Result<T>>; Slurm::ALL.len()],
}

impl<T> PerSlurm<T> {
    /// Values that `make` makes.
    pub const fn new(make: fn(Slurm) -> Result<T>) -> PerSlurm<T> {
        PerSlurm {
            make,
            made: [const { OnceLock::new() }; Slurm::ALL.len()],
        }
    }

    /// The value of this version.
    ///
    /// # Errors
    /// The one with which making it failed, for each test.
    pub fn get(&self, slurm: Slurm) -> Result<&T> {
        let made = self.made[slurm as usize].get_or_init(|| (self.make)(slurm));
        made.as_ref().map_err(|error| anyhow!("{error:#}"))
    }
}

/// Makes `slurm_22_05::x`, `slurm_24_11::x` and `slurm_26_05::x` of a function `fn x(slurm: Slurm)`.
///
/// ```ignore
/// on_each_slurm!(jobs_run);
///
/// fn jobs_run(slurm: Slurm) -> anyhow::Result<()> { ... }
/// ```
///
/// Each change is tested on 24.11, and on the other releases with the tests that a list names behind `seams:`, those of what
/// softmig does differently on different releases (policy/src/slurm/release.rs). `cargo xtask test --full` runs all.
///
/// A function that is left out of the list is unused, and the compiler says so.
#[macro_export]
macro_rules! on_each_slurm {
    ($($name:ident),+ $(,)?) => { $crate::on_each_slurm!([] [$($name),+]); };
    (seams: $($seam:ident),+ $(,)?) => { $crate::on_each_slurm!([$($seam),+] []); };
    (seams: $($seam:ident),+; others: $($name:ident),+ $(,)?) => {
        $crate::on_each_slurm!([$($seam),+] [$($name),+]);
    };
    ([$($seam:ident),*] [$($name:ident),*]) => {
        $crate::on_each_slurm!(@ slurm_22_05 V22_05 [$($seam)*] [$($name)*]);
        $crate::on_each_slurm!(@ slurm_24_11 V24_11 [$($seam)* $($name)*] []);
        $crate::on_each_slurm!(@ slurm_26_05 V26_05 [$($seam)*] [$($name)*]);
    };
    (@ $module:ident $version:ident [$($always:ident)*] [$($seldom:ident)*]) => {
        mod $module {
            use $crate::each_slurm::Outcome;

            $(
                #[test]
                fn $always() {
                    Outcome::check(super::$always($crate::Slurm::$version));
                }
            )*
            $(
                #[test]
                #[cfg_attr(not(feature = "full"), ignore = "cargo xtask test --full runs it")]
                fn $seldom() {
                    Outcome::check(super::$seldom($crate::Slurm::$version));
                }
            )*
        }
    };
}
