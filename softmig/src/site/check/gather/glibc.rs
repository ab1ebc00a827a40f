//! The C library that a file needs, and the one of this machine, by the versions of their symbols.

use crate::site::check::facts::Version;
use object::Endianness;
use object::read::elf::ElfFile64;
use std::path::PathBuf;
use std::str::from_utf8;

/// The newest glibc of which a library needs a symbol; `None` if it needs no glibc.
pub(super) fn needed(bytes: &[u8]) -> Option<Version> {
    let elf = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let (endian, sections) = (elf.endian(), elf.elf_section_table());
    let (libraries, link) = sections.gnu_verneed(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, link).ok()?;
    libraries
        .flatten()
        .flat_map(|(_, versions)| versions.flatten())
        .filter_map(|version| version_in(version.name(endian, strings).ok()?))
        .max()
}

/// The glibc of this machine: the newest version of which its libc.so.6 has symbols. This process runs with the same
/// one as Slurm's processes.
pub(super) fn here() -> Option<Version> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5).map(PathBuf::from))
        .find(|path| path.file_name().is_some_and(|name| name == "libc.so.6"))?;
    defined(&std::fs::read(path).ok()?)
}

fn defined(bytes: &[u8]) -> Option<Version> {
    let elf = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let (endian, sections) = (elf.endian(), elf.elf_section_table());
    let (versions, link) = sections.gnu_verdef(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, link).ok()?;
    versions
        .flatten()
        .flat_map(|(_, names)| names.flatten())
        .filter_map(|name| version_in(name.name(endian, strings).ok()?))
        .max()
}

/// `GLIBC_2.17`, `GLIBC_2.2.5`; not `GLIBC_PRIVATE`.
fn version_in(name: &[u8]) -> Option<Version> {
    let mut numbers = from_utf8(name)
        .ok()?
        .strip_prefix("GLIBC_")?
        .split('.')
        .map(str::parse);
    Some(Version(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_two_numbers() {
        assert_eq!(version_in(b"GLIBC_2.17"), Some(Version(2, 17)));
        assert_eq!(version_in(b"GLIBC_2.2.5"), Some(Version(2, 2)));
        for other in ["GLIBC_PRIVATE", "GLIBCXX_3.4", ""] {
            assert_eq!(version_in(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn this_program_needs_what_is_here() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let (needed, here) = (needed(&program).unwrap(), here().unwrap());
        assert!(Version(2, 2) <= needed && needed <= here, "{needed} {here}");
        assert_eq!(super::needed(b"no library"), None);
    }
}
