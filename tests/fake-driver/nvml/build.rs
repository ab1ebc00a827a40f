//! Links the library under the name of the real one.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // Its own functions stay its own, whatever is preloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
