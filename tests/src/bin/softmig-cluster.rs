//! The program behind a test cluster: its supervisor, its process 1, and the holder of each node.

fn main() -> std::process::ExitCode {
    softmig_tests::supervisor::main()
}
