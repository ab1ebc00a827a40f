//! Contexts that several parts of a program hold, as programs of old did: the last to let go ends them.

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::contexts::{self, Origin};
use crate::entry::locked;
use crate::export::exports;
use crate::primary;
use softmig_fake_node::edge::handle;

exports! {
    static SYMBOLS;

    /// Holds this thread's context once more.
    fn cuCtxAttach [cuCtxAttach 2000] (out: Out<CUcontext>, flags: u32) => locked(|driver| {
        if flags != 0 || !out.is_wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (number, _) = driver.contexts.current()?;
        driver.contexts.get_mut(number)?.holders += 1;
        out.set(handle(number))
    });

    /// Lets go of this thread's context.
    fn cuCtxDetach [cuCtxDetach 2000] (context: CUcontext) => locked(|driver| {
        let (number, current) = driver.contexts.current()?;
        if number != context as usize {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if current.holders > 1 {
            driver.contexts.get_mut(number)?.holders -= 1;
            return Ok(());
        }
        match current.origin {
            Origin::Primary => primary::release(driver, current.device),
            _ => contexts::destroy(driver, number),
        }
    });
}
