//! Arbitrary and damaged input for the parsers. The tests in `fuzz/tests` say what has to hold: no parser panics, and
//! what is printed is read back as the same.
//!
//! With Cargo's other tests they take a few seconds. They run as long as you like with
//! `PROPTEST_CASES=1000000 cargo test --release -p softmig-fuzz`.
//!
//! Parsers that other crates cannot call are fuzzed by their own tests: `softmig/src/users/smi/filter/tests.rs`,
//! `hook/region/src/tests/garbage.rs`, `monitor/src/arbiter/switch_log.rs`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

/// Text on which parsers fail most often.
const ODD: [&str; 16] = [
    "",
    "0",
    "00",
    "-1",
    "1.5",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999",
    " ",
    "\n",
    "\0",
    "\r",
    "\u{e9}",
    "[",
    "\"",
];

/// Runs the test on many inputs: arbitrary bytes, and valid ones that were damaged.
///
/// # Panics
///
/// Where the test does, with the smallest input that makes it panic.
pub fn bytes(cases: u32, valid: &[&str], test: impl Fn(&[u8])) {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config.failure_persistence = None;
    let outcome = TestRunner::new(config).run(&input(valid), |input| {
        test(&input);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// The same, of text.
///
/// # Panics
///
/// Where the test does.
pub fn text(cases: u32, valid: &[&str], test: impl Fn(&str)) {
    bytes(cases, valid, |bytes| {
        test(&String::from_utf8_lossy(bytes));
    });
}

/// One damage. A place is anywhere in the input.
#[derive(Clone, Debug)]
enum Damage {
    /// Another byte in the place of one.
    Set(Index, u8),
    /// More bytes.
    Insert(Index, Vec<u8>),
    /// Fewer bytes.
    Remove(Index, usize),
    /// The same bytes twice.
    Repeat(Index, usize),
    /// Nothing after this.
    Cut(Index),
}

impl Damage {
    fn apply(self, input: &mut Vec<u8>) {
        let place = |index: Index| index.index(input.len() + 1);
        match self {
            Damage::Set(index, byte) => {
                let at = place(index);
                input.splice(at..(at + 1).min(input.len()).max(at), [byte]);
            }
            Damage::Insert(index, piece) => {
                let at = place(index);
                input.splice(at..at, piece);
            }
            Damage::Remove(index, length) => {
                let at = place(index);
                input.drain(at..(at + length).min(input.len()));
            }
            Damage::Repeat(index, length) => {
                let at = place(index);
                let piece = input[at..(at + length).min(input.len())].to_vec();
                input.splice(at..at, piece);
            }
            Damage::Cut(index) => input.truncate(place(index)),
        }
    }
}

fn input(valid: &[&str]) -> impl Strategy<Value = Vec<u8>> {
    let whole: Vec<Vec<u8>> = valid.iter().map(|text| text.as_bytes().to_vec()).collect();
    let damaged = (select(whole), vec(damage(valid), 0..6)).prop_map(|(mut input, damages)| {
        for damage in damages {
            damage.apply(&mut input);
        }
        input
    });
    prop_oneof![1 => vec(any::<u8>(), 0..200), 7 => damaged]
}

fn damage(valid: &[&str]) -> impl Strategy<Value = Damage> + use<> {
    let words = valid
        .iter()
        .flat_map(|text| text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()));
    let pieces: Vec<Vec<u8>> = words.chain(ODD).map(|piece| piece.into()).collect();
    let place = any::<Index>;
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (place(), select(pieces)).prop_map(|(at, piece)| Damage::Insert(at, piece)),
        (place(), 1..20_usize).prop_map(|(at, length)| Damage::Remove(at, length)),
        (place(), 1..60_usize).prop_map(|(at, length)| Damage::Repeat(at, length)),
        place().prop_map(Damage::Cut),
    ]
}
