//! One test function becomes one test for each version of Slurm.

use std::cell::RefCell;

/// What a behaviour test may return: nothing, or a result.
pub trait Outcome {
    /// Fails the test when the outcome is an error.
    fn check(self);
}

impl Outcome for () {
    fn check(self) {
        LOGS.take();
    }
}

impl Outcome for anyhow::Result<()> {
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

/// Keeps a cluster's last words until it is known whether the test failed.
pub(crate) fn keep_logs(logs: &str) {
    LOGS.with_borrow_mut(|kept| kept.push_str(logs));
}

/// Makes `slurm_22_05::x` and `slurm_24_11::x` of a function `fn x(slurm: Slurm)`.
///
/// ```ignore
/// on_each_slurm!(jobs_run);
///
/// fn jobs_run(slurm: Slurm) -> anyhow::Result<()> { ... }
/// ```
///
/// A function that is left out of the list is unused, and the compiler says so.
#[macro_export]
macro_rules! on_each_slurm {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        $crate::on_each_slurm!(@ slurm_22_05 V22_05 $($(#[$attribute])* $name),+);
        $crate::on_each_slurm!(@ slurm_24_11 V24_11 $($(#[$attribute])* $name),+);
    };
    (@ $module:ident $version:ident $($(#[$attribute:meta])* $name:ident),+) => {
        mod $module {
            $(
                $(#[$attribute])*
                #[test]
                fn $name() {
                    $crate::each_slurm::Outcome::check(super::$name($crate::Slurm::$version));
                }
            )+
        }
    };
}
