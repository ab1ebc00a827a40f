//! How the library is linked: every process of the node pays for each segment and each relocation.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in [
        // No constructors of the compiler's: the only one is hook/src/exports/load.rs.
        "-nostartfiles",
        // The linker that goes with every C compiler; the others name these options differently.
        "-fuse-ld=bfd",
        "-Wl,-soname,libsoftmig.so",
        // Our own exports are found without a search, and are ours also where a program has one of the same name. Not
        // -Bsymbolic: glibc would then look for everything that this library asks for in it first.
        "-Wl,-Bsymbolic-functions",
        // One segment for code and constants, one for data.
        "-Wl,-z,noseparate-code",
        // Write protection of addresses costs a system call and a mapping in each process, and would protect nothing:
        // where the driver's functions are is found later, and stays writable.
        "-Wl,-z,norelro",
        // Keeps shadow stacks on in every process, where glibc has them on: no object may lack this mark.
        "-Wl,-z,shstk",
        "-Wl,--hash-style=gnu",
        "-Wl,--build-id=sha1",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
