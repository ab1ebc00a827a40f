//! The `softmig` command.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    softmig::main()
}
