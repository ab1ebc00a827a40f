//! Links the library under the name of the real one.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // Its own functions stay its own, whatever is preloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Tests copy it into many a machine: without what only a debugger reads, a tenth.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-debug");
}
