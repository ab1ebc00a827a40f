//! Sizes as administrators and users write them: `16g`, `12GiB`, `11517.0M`, `1073741824`.

use core::fmt;

/// Bytes in one MiB, the unit of every GPU memory figure in softmig.
pub const MIB: u64 = 1 << 20;

/// Why a size was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// Nothing was written.
    Empty,
    /// Not digits, optionally a decimal part, optionally a unit.
    Form,
    /// A leading zero, which some programs read as octal.
    Octal,
    /// The unit is not K, M or G (with or without B or iB).
    Unit,
    /// More than 2^64 - 1 bytes.
    Overflow,
    /// The size is zero, or rounds down to zero.
    Zero,
    /// Less than any GPU memory.
    Small,
}

impl core::error::Error for SizeError {}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no size given",
            Self::Form => "not a size; write for example 12288M or 12G",
            Self::Octal => "a leading zero is not accepted",
            Self::Unit => "unknown unit; use K, M or G (powers of 1024)",
            Self::Overflow => "too large",
            Self::Zero => "zero, or less than the smallest unit",
            Self::Small => "less than 1 MiB; write for example 512m or 4g",
        })
    }
}

/// A number of bytes, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(u64);

impl Bytes {
    /// The bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole MiB, rounded down; `None` below one.
    pub const fn mib(self) -> Option<u64> {
        match self.0 / MIB {
            0 => None,
            mib => Some(mib),
        }
    }

    /// Whether so many MiB are as much, or more.
    pub const fn is_in(self, mib: u32) -> bool {
        self.0 <= mib as u64 * MIB
    }

    /// Reads `16g 24G 1024m 12288M 12GB 12GiB 1048576k 1073741824 11517.0M`.
    ///
    /// K, M and G are powers of 1024 in upper or lower case, with or without `B` or `iB`; no unit means bytes.
    /// A decimal part needs a unit, and what is left of a byte is dropped.
    ///
    /// ```
    /// use softmig_policy::node::size::{Bytes, SizeError};
    /// assert_eq!(Bytes::parse("11366M").map(Bytes::get), Ok(11366 << 20));
    /// assert_eq!(Bytes::parse("1.5GiB").map(Bytes::get), Ok(3 << 29));
    /// assert_eq!(Bytes::parse("-1G"), Err(SizeError::Form));
    /// assert_eq!(Bytes::parse("010M"), Err(SizeError::Octal));
    /// ```
    pub fn parse(text: &str) -> Result<Self, SizeError> {
        if text.is_empty() {
            return Err(SizeError::Empty);
        }
        let (whole, rest) = split_digits(text);
        if whole.is_empty() {
            return Err(SizeError::Form);
        }
        if whole.len() > 1 && whole.starts_with('0') {
            return Err(SizeError::Octal);
        }
        let (fraction, unit) = match rest.strip_prefix(".") {
            None => ("", rest),
            Some(rest) => {
                let (fraction, unit) = split_digits(rest);
                // "1." and "1.5" without a unit: half a byte is a typing error, not a size.
                if fraction.is_empty() || unit.is_empty() {
                    return Err(SizeError::Form);
                }
                (fraction, unit)
            }
        };
        let factor = unit_factor(unit)?;
        let whole: u64 = whole.parse().map_err(|_| SizeError::Overflow)?;
        let bytes = whole
            .checked_mul(factor)
            .and_then(|bytes| bytes.checked_add(fraction_of(fraction, factor)))
            .ok_or(SizeError::Overflow)?;
        match bytes {
            0 => Err(SizeError::Zero),
            bytes => Ok(Self(bytes)),
        }
    }

    /// The same for GPU memory, of which nobody asks for less than 1 MiB: `12` is a typing error.
    pub fn parse_memory(text: &str) -> Result<Self, SizeError> {
        let size = Self::parse(text)?;
        size.mib().map(|_| size).ok_or(SizeError::Small)
    }
}

/// `text` split after its leading decimal digits.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn unit_factor(unit: &str) -> Result<u64, SizeError> {
    let mut letters = unit.chars();
    let factor = match letters.next() {
        None => return Ok(1),
        Some('k' | 'K') => 1 << 10,
        Some('m' | 'M') => 1 << 20,
        Some('g' | 'G') => 1 << 30,
        Some(letter) if letter.is_ascii_alphabetic() => return Err(SizeError::Unit),
        Some(_) => return Err(SizeError::Form),
    };
    let suffix = letters.as_str();
    if suffix.is_empty() || suffix.eq_ignore_ascii_case("b") || suffix.eq_ignore_ascii_case("ib") {
        Ok(factor)
    } else {
        Err(SizeError::Unit)
    }
}

/// `0.DIGITS x factor`, rounded down. Digits beyond what a factor of 2^30 can tell apart change nothing.
fn fraction_of(digits: &str, factor: u64) -> u64 {
    let mut numerator: u64 = 0;
    let mut denominator: u64 = 1;
    // 9 digits: 10^9 x 2^30 still fits in 64 bits.
    for digit in digits.bytes().take(9) {
        numerator = numerator * 10 + u64::from(digit - b'0');
        denominator *= 10;
    }
    // Never 0: the compiler cannot tell, and the hook must not be able to panic.
    (numerator * factor).checked_div(denominator).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_forms_are_read() {
        for (text, bytes) in [
            ("16g", 16 << 30),
            ("24G", 24 << 30),
            ("1024m", 1 << 30),
            ("12288M", 12 << 30),
            ("12GB", 12 << 30),
            ("12GiB", 12 << 30),
            ("12gib", 12 << 30),
            ("1048576k", 1 << 30),
            ("1073741824", 1 << 30),
            ("11517.0M", 11517 << 20),
            ("0.5k", 512),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(Bytes::parse(text).map(Bytes::get), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn everything_else_is_an_error() {
        use SizeError::*;
        for (text, error) in [
            ("", Empty),
            (" 1G", Form),
            ("1 G", Form),
            ("+1G", Form),
            ("-1G", Form),
            ("G", Form),
            ("0x10", Unit),
            ("010", Octal),
            ("00.5G", Octal),
            ("1.G", Form),
            (".5G", Form),
            ("1.5", Form),
            ("1,5G", Form),
            ("1T", Unit),
            ("1GG", Unit),
            ("1MiBs", Unit),
            ("1.5.5G", Form),
            ("0", Zero),
            ("0G", Zero),
            ("0.0001k", Zero),
            ("18446744073709551616", Overflow),
            ("17179869184G", Overflow),
            ("1\u{0661}G", Form),
        ] {
            assert_eq!(Bytes::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_mib_is_never_rounded_up() {
        assert_eq!(Bytes::parse("2097151").unwrap().mib(), Some(1));
        assert_eq!(Bytes::parse("1048575").unwrap().mib(), None);
    }
}
