//! The beginning: `cuInit`, versions, and the names of errors.

use std::ffi::{CStr, c_char};
use std::os::fd::IntoRawFd;
use std::path::Path;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::ServerNotReady;

use crate::Out;
use crate::export::exports;
use crate::{Outcome, channels, entry, errors, visible};

exports! {
    static SYMBOLS;

    /// Finds the devices that the program has.
    fn cuInit [cuInit 2000] (flags: u32) => init(flags);

    /// The CUDA version that the driver knows. Needs nothing before it.
    fn cuDriverGetVersion [cuDriverGetVersion 2020] (out: Out<i32>) => out.set(version());

    /// An error's description.
    fn cuGetErrorString [cuGetErrorString 6000] (error: CUresult, out: Out<*const c_char>) =>
        text(out, errors::description(error));

    /// An error's name.
    fn cuGetErrorName [cuGetErrorName 6000] (error: CUresult, out: Out<*const c_char>) =>
        text(out, errors::name(error));
}

fn init(flags: u32) -> Outcome {
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    entry::initialize(|process| {
        let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY");
        if let Some(folder) = folder.filter(|it| !it.is_empty()) {
            match process.enter_server(Path::new(&folder)) {
                Ok(Some(file)) => {
                    // Open as long as this process lives.
                    let _ = file.into_raw_fd();
                    channels::open(process);
                }
                Ok(None) => {}
                Err(ServerNotReady) => return Err(CUDA_ERROR_MPS_SERVER_NOT_READY),
            }
        }
        let node = process.description();
        // Not a text is not set: no entry of the list could be read.
        let chosen = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        visible::choose(node, &node.open_gpus(), chosen.as_deref())
    })
}

/// The driver's CUDA version. Without a node it is 13.0, since the library is still there.
pub(crate) fn version() -> i32 {
    let known = entry::process().map(|process| process.description().cuda);
    known
        .ok()
        .and_then(|version| i32::try_from(version).ok())
        .unwrap_or(13_000)
}

fn text(out: Out<*const c_char>, text: Option<&'static CStr>) -> Outcome {
    match text {
        Some(text) => out.set(text.as_ptr()),
        None => {
            out.set_if_wanted(std::ptr::null());
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }
}
