//! Where a field is in the kernel's own structures: a reader of BTF, the kernel's description of its types.
//!
//! The format is the kernel's Documentation/bpf/btf.rst. Only what [`Btf::field`] and [`Btf::constant`] need is read.

#![forbid(unsafe_code)]

use std::collections::HashMap;

/// A fault in a description of types.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It is cut off, or refers to what it does not have.
    #[error("the kernel's type information (BTF) is damaged")]
    Damaged,
    /// The kernel has no such structure or field.
    #[error("this kernel has no {0}")]
    Missing(String),
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// How many bytes the field is behind the structure's beginning.
    pub offset: u32,
    /// How many bytes it has.
    pub size: u32,
}

/// Descriptions of types.
#[derive(Debug)]
pub struct Btf<'a> {
    strings: &'a [u8],
    /// The first is type 1.
    types: Vec<Type<'a>>,
    /// The structures by name.
    structures: HashMap<&'a [u8], usize>,
}

#[derive(Clone, Copy, Debug)]
struct Type<'a> {
    name: u32,
    info: u32,
    /// Its size, or the type that it is made of.
    size_or_type: u32,
    rest: &'a [u8],
}

const MAGIC: u32 = 0xeb9f;
const INT: u32 = 1;
const POINTER: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// No name of a type leads further than this to what it is.
const LONGEST_CHAIN: usize = 16;
/// No unnamed structure is nested deeper.
const DEEPEST: usize = 4;

impl<'a> Btf<'a> {
    /// Reads `/sys/kernel/btf/vmlinux`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        Self::read(bytes).ok_or(BtfError::Damaged)
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        // Magic, version and flags; then the header's length, and offset and length of types and of strings.
        let is_btf = word(bytes, 0)? & 0xffff == MAGIC;
        let header = bytes.get(word(bytes, 4)? as usize..).filter(|_| is_btf)?;
        let section = |at| {
            let (from, length) = (word(bytes, at)? as usize, word(bytes, at + 4)? as usize);
            header.get(from..)?.get(..length)
        };
        let mut rest: &[u8] = section(8)?;
        let mut btf = Self {
            strings: section(16)?,
            types: Vec::new(),
            structures: HashMap::new(),
        };
        while !rest.is_empty() {
            let (first, behind) = rest.split_at_checked(12)?;
            let info = word(first, 4)?;
            let length = length(info)?;
            let found = Type {
                name: word(first, 0)?,
                info,
                size_or_type: word(first, 8)?,
                rest: behind.get(..length)?,
            };
            if found.kind() == STRUCT {
                let place = btf.types.len();
                btf.structures
                    .entry(btf.string(found.name)?)
                    .or_insert(place);
            }
            btf.types.push(found);
            rest = behind.get(length..)?;
        }
        Some(btf)
    }

    /// Where a structure's field is, also if it is in an unnamed structure there.
    pub fn field(&self, structure: &str, name: &str) -> Result<Field, BtfError> {
        let missing = || BtfError::Missing(format!("{structure}.{name}"));
        let place = self.structures.get(structure.as_bytes());
        let structure = place.and_then(|&place| self.types.get(place));
        let structure = structure.ok_or_else(missing)?;
        self.find(structure, name.as_bytes(), DEEPEST)
            .ok_or_else(missing)
    }

    fn find(&self, structure: &Type<'a>, name: &[u8], deepest: usize) -> Option<Field> {
        let deepest = deepest.checked_sub(1)?;
        for member in structure.rest.as_chunks::<12>().0 {
            let (name_at, kind, bits) = (word(member, 0)?, word(member, 4)?, word(member, 8)?);
            // The upper byte is the width of a bit field where there are any.
            let bits = if structure.has_bit_fields() {
                bits & 0x00ff_ffff
            } else {
                bits
            };
            let offset = bits / 8;
            let own = self.string(name_at)?;
            if own == name {
                let size = self.size(kind)?;
                return bits.is_multiple_of(8).then_some(Field { offset, size });
            }
            let inner = self
                .resolved(kind)
                .filter(|it| own.is_empty() && it.is_structure());
            if let Some(field) = inner.and_then(|it| self.find(it, name, deepest)) {
                let offset = offset.checked_add(field.offset)?;
                return Some(Field { offset, ..field });
            }
        }
        None
    }

    /// The value of an enumeration's constant; `None` if no enumeration has it.
    pub fn constant(&self, name: &str) -> Option<u32> {
        let enums = self.types.iter().filter(|it| it.kind() == ENUM);
        let mut entries = enums.flat_map(|it| it.rest.as_chunks::<8>().0);
        let entry = entries.find(|entry| {
            let own = word(&entry[..], 0).and_then(|at| self.string(at));
            own == Some(name.as_bytes())
        })?;
        word(entry, 4)
    }

    /// The type behind a name of a type, `const` and the like.
    fn resolved(&self, id: u32) -> Option<&Type<'a>> {
        let mut id = id;
        for _ in 0..LONGEST_CHAIN {
            let found = self.types.get((id as usize).checked_sub(1)?)?;
            match found.kind() {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = found.size_or_type,
                _ => return Some(found),
            }
        }
        None
    }

    /// The size of a type. 0 for those whose size no one asks for, such as arrays.
    fn size(&self, id: u32) -> Option<u32> {
        let found = self.resolved(id)?;
        Some(match found.kind() {
            POINTER => 8,
            INT | STRUCT | UNION | ENUM | ENUM64 => found.size_or_type,
            _ => 0,
        })
    }

    fn string(&self, at: u32) -> Option<&'a [u8]> {
        let text = self.strings.get(at as usize..)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        text.get(..end)
    }
}

impl Type<'_> {
    fn kind(&self) -> u32 {
        kind(self.info)
    }

    fn is_structure(&self) -> bool {
        matches!(self.kind(), STRUCT | UNION)
    }

    fn has_bit_fields(&self) -> bool {
        self.info >> 31 != 0
    }
}

fn kind(info: u32) -> u32 {
    info >> 24 & 0x1f
}

/// How many bytes follow the first twelve of a type.
fn length(info: u32) -> Option<usize> {
    let many = (info & 0xffff) as usize;
    let (each, fixed) = match kind(info) {
        // Forward declarations, functions, floating point numbers, and what leads to another type.
        POINTER | 7..=12 | 16 | TYPE_TAG => (0, 0),
        // Variables, tags of declarations.
        INT | 14 | 17 => (0, 4),
        // An array.
        3 => (0, 12),
        // The latter are the parameters of a function.
        ENUM | 13 => (8, 0),
        // The latter are variables in a section.
        STRUCT | UNION | ENUM64 | 15 => (12, 0),
        _ => return None,
    };
    Some(many * each + fixed)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member's name, type and place, or a constant's name and value.
    type Member = (&'static str, u32, u32);

    /// A description of `types`, each with what follows its twelve bytes, with these names.
    fn btf(types: &[(&str, u32, u32, &[Member])]) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut name = |name: &str| {
            let at = if name.is_empty() { 0 } else { strings.len() };
            if at > 0 {
                strings.extend(name.bytes().chain([0]));
            }
            at as u32
        };
        let mut words = Vec::new();
        for (own, info, size, members) in types {
            words.extend([name(own), *info, *size]);
            for (own, second, third) in *members {
                words.extend([name(own), *second]);
                if kind(*info) != ENUM {
                    words.push(*third);
                }
            }
        }
        let length = words.len() as u32 * 4;
        let header = [MAGIC | 1 << 16, 24, 0, length, length, strings.len() as u32];
        let words = header.into_iter().chain(words);
        let bytes = words.flat_map(u32::to_ne_bytes);
        bytes.chain(strings).collect()
    }

    const fn info(kind: u32, many: u32) -> u32 {
        kind << 24 | many
    }

    fn example() -> Vec<u8> {
        btf(&[
            ("u64", info(TYPEDEF, 0), 2, &[]),
            ("", info(CONST, 0), 3, &[]),
            (
                "task_struct",
                info(STRUCT, 3),
                64,
                &[("state", 4, 0), ("", 5, 64), ("mm", 4, 320)],
            ),
            ("", info(POINTER, 0), 3, &[]),
            ("", info(UNION, 2), 16, &[("a", 4, 0), ("inner", 4, 32)]),
            (
                "flags",
                info(STRUCT, 2) | 1 << 31,
                8,
                &[("bit", 4, 1 << 24 | 3), ("word", 4, 32)],
            ),
            (
                "subsystems",
                info(ENUM, 2),
                4,
                &[("cpu_id", 0, 0), ("devices_id", 5, 0)],
            ),
        ])
    }

    #[test]
    fn fields_are_found_by_their_names() {
        let bytes = example();
        let btf = Btf::parse(&bytes).unwrap();
        let field = |name| btf.field("task_struct", name).map(|field| field.offset);
        assert_eq!(field("state"), Ok(0));
        assert_eq!(field("mm"), Ok(40));
        // In an unnamed union.
        assert_eq!(field("inner"), Ok(12));
        assert_eq!(btf.field("task_struct", "mm").unwrap().size, 8);
        let missing = |name: &str| Err(BtfError::Missing(name.into()));
        assert_eq!(field("none"), missing("task_struct.none"));
        assert!(btf.field("none", "a").is_err());
        assert_eq!(btf.constant("devices_id"), Some(5));
        assert_eq!(btf.constant("freezer_id"), None);
    }

    #[test]
    fn a_bit_is_no_field_and_harms_none() {
        let bytes = example();
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.field("flags", "word").unwrap().offset, 4);
        assert!(btf.field("flags", "bit").is_err());
    }

    #[test]
    fn what_is_cut_off_anywhere_is_damaged() {
        let bytes = example();
        for end in 0..bytes.len() {
            assert_eq!(
                Btf::parse(&bytes[..end]).err(),
                Some(BtfError::Damaged),
                "{end}"
            );
        }
    }

    #[test]
    fn what_contains_itself_ends() {
        let itself = btf(&[("a", info(STRUCT, 1), 8, &[("", 1, 0)])]);
        assert!(Btf::parse(&itself).unwrap().field("a", "x").is_err());
        let name = btf(&[
            ("a", info(STRUCT, 1), 8, &[("x", 2, 0)]),
            ("b", info(TYPEDEF, 0), 2, &[]),
        ]);
        assert!(Btf::parse(&name).unwrap().field("a", "x").is_err());
    }
}
