//! The symbols of the daemon that libraries in it find before the C library's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use object::{Object, ObjectSymbol};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_softmig-monitor");

#[test]
fn libraries_find_its_ioctl() {
    let bytes = std::fs::read(PROGRAM).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let is_it = |symbol: &object::Symbol<'_, '_>| symbol.name() == Ok("ioctl");
    let found = file.dynamic_symbols().find(is_it).unwrap();
    assert!(found.is_definition(), "libcuda would call the C library's");
}

#[test]
fn the_load_says_that_there_is_no_driver() {
    let mut command = Command::new(PROGRAM);
    command.args(["--prove-load", "0"]).stdin(Stdio::null());
    // Where there is a driver, it sees no GPU.
    let output = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("{\"Error\":\""), "{said}");
}
