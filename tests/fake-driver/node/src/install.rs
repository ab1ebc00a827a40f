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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_come_under_the_names_of_the_real_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (built, root) = (dir.path().join("built"), dir.path().join("root"));
        fs::create_dir(&built).unwrap();
        assert!(install(&built, &root).is_err());
        for content in ["first", "second"] {
            fs::write(built.join("libsoftmig_fake_cuda.so"), content).unwrap();
            fs::write(built.join("libsoftmig_fake_nvml.so"), content).unwrap();
            fs::write(built.join("libsoftmig_fake_rm.so"), content).unwrap();
            install(&built, &root).unwrap();
            for name in [
                "libcuda.so.1",
                "libcuda.so",
                "libnvidia-ml.so.1",
                "libnvidia-ml.so",
                "libfake-rm.so.1",
            ] {
                let installed = fs::read_to_string(root.join(LIBRARIES).join(name));
                assert_eq!(installed.unwrap(), content, "{name}");
            }
        }
        assert_eq!(fs::read_dir(root.join(LIBRARIES)).unwrap().count(), 6);
    }
}
