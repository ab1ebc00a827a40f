//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // No constructors, not even the compiler's empty ones.
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    for argument in [
        "-soname,libsoftmig.so",
        // Two segments fewer to map in every process of the node.
        "-z,noseparate-code",
        "--hash-style=gnu",
        "--build-id=sha1",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
