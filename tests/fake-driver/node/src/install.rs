//! Putting the fake driver into a tree that looks like a machine's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::error::NodeError;

/// Where Debian has the driver's libraries on x86-64; its loader finds them there without a cache.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Where the fake kernel driver is in such a tree, to be preloaded into what calls the kernel driver.
pub const KERNEL_DRIVER: &str = "/usr/lib/x86_64-linux-gnu/libfake-rm.so.1";

/// Installs the libraries that `cargo build -p softmig-fake-cuda -p softmig-fake-nvml -p softmig-fake-rm` left in `built` (such
/// as `target/debug`) below `root`, under the names that programs load and, for `cc -lcuda -lnvidia-ml`, link with.
///
/// # Errors
/// The system's, where a file cannot be copied.
pub fn install(built: &Path, root: &Path) -> Result<(), NodeError> {
    let dir = root.join(LIBRARIES);
    fs::create_dir_all(&dir).map_err(NodeError::os(&dir, "making the folder"))?;
    for (library, soname, link) in [
        ("libsoftmig_fake_cuda.so", "libcuda.so.1", "libcuda.so"),
        (
            "libsoftmig_fake_nvml.so",
            "libnvidia-ml.so.1",
            "libnvidia-ml.so",
        ),
        ("libsoftmig_fake_rm.so", "libfake-rm.so.1", "libfake-rm.so"),
    ] {
        let (from, to) = (built.join(library), dir.join(soname));
        // By rename: a program that runs keeps the library that it has.
        let new = dir.join(format!("{soname}.new"));
        fs::copy(&from, &new).map_err(NodeError::os(&from, "copying the library"))?;
        fs::rename(&new, &to).map_err(NodeError::os(&to, "putting the library in place"))?;
        let link = dir.join(link);
        if !link.exists() {
            symlink(soname, &link).map_err(NodeError::os(&link, "linking the library"))?;
        }
    }
    Ok(())
}
