//! Making room: before the driver gives up, it takes back the unused memory of pools and graphs (seen on an H200).

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::driver::Driver;
use crate::{graph_memory, pools};

/// Tries again with more room where there was none.
pub(crate) fn with_room<T>(
    driver: &mut Driver,
    take: impl Fn(&mut Driver) -> Outcome<T>,
) -> Outcome<T> {
    match take(driver) {
        Err(CUDA_ERROR_OUT_OF_MEMORY) => {
            pools::shrink_all(driver);
            graph_memory::trim_all(driver);
            take(driver)
        }
        taken => taken,
    }
}
