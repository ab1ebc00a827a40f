//! Links the library under the name of the real one.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its own functions stay its own, whatever is preloaded: the real driver's cuGetProcAddress answers with its own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Tests copy it into many a machine: without what only a debugger reads, a tenth.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-debug");
}
