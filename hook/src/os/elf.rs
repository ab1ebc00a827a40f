//! The objects that the dynamic loader has mapped, and their symbols.
//!
//! Read as the loader reads them (System V gABI chapter 5, the GNU hash section, and glibc's `link.h`), without asking
//! it: a question to the loader can search the disk, take its locks, set `dlerror`, and come to a function of the same
//! name that the program has.

#![expect(unsafe_code, reason = "reads what the loader has mapped")]

use core::ffi::{CStr, c_char};

/// An object as its program headers describe it.
pub(crate) struct Object<'a> {
    /// Added to its addresses; wraps for an object that lies below where it was linked for.
    base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

impl<'a> Object<'a> {
    /// The object that `dl_iterate_phdr` describes.
    pub(crate) fn described(info: &'a libc::dl_phdr_info) -> Self {
        // SAFETY: the loader gives the place and number of the object's program headers, which stay mapped.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        Self {
            base: info.dlpi_addr as usize,
            headers,
        }
    }

    /// The object whose file is mapped from here on; `None` if its headers are not where they usually are.
    ///
    /// # Safety
    ///
    /// `start` is where the loader mapped an object, as `dladdr` tells it, and the object stays.
    pub(crate) unsafe fn mapped_at(start: *const libc::Elf64_Ehdr) -> Option<Self> {
        // SAFETY: a file that the loader has mapped begins with its header.
        let header = unsafe { start.read() };
        let address = (start as usize).checked_add(header.e_phoff as usize)?;
        let size = size_of::<libc::Elf64_Phdr>().checked_mul(header.e_phnum.into())?;
        // Beyond the first page nothing may be mapped.
        if header.e_phoff.checked_add(size as u64)? > 4096 {
            return None;
        }
        // SAFETY: see above; the header tells place and number.
        let headers = unsafe {
            core::slice::from_raw_parts(address as *const libc::Elf64_Phdr, header.e_phnum.into())
        };
        let first = headers
            .iter()
            .find(|header| header.p_type == libc::PT_LOAD)?;
        let base = (start as usize).wrapping_sub(first.p_vaddr as usize);
        Some(Self { base, headers })
    }

    /// Whether an address lies in it.
    pub(crate) fn contains(&self, address: usize) -> bool {
        let loads = self
            .headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD);
        loads
            .map(|header| {
                (
                    self.base.wrapping_add(header.p_vaddr as usize),
                    header.p_memsz as usize,
                )
            })
            .any(|(start, size)| address.wrapping_sub(start) < size)
    }

    /// Its dynamic symbols.
    pub(crate) fn symbols(&self) -> Option<Symbols> {
        let dynamic = self
            .headers
            .iter()
            .find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let place = self.base.wrapping_add(dynamic.p_vaddr as usize);
        // The loader has put addresses in the place of offsets, except where it cannot write (the vDSO).
        let address = |value: usize| {
            let moved = self.base.wrapping_add(value);
            [value, moved]
                .into_iter()
                .find(|&address| self.contains(address))
        };
        // SAFETY: the object's dynamic section, which is mapped.
        unsafe { Symbols::read(self.base, place as *const Entry, address) }
    }
}

/// An entry of a dynamic section: its tag and its value.
pub(crate) type Entry = [u64; 2];

/// Where the parts of an object's symbol table are.
pub(crate) struct Symbols {
    base: usize,
    soname: Option<usize>,
    strings: usize,
    table: usize,
    hash: Hash,
    versions: Option<usize>,
}

/// An object's hash section: each has one, or both.
enum Hash {
    Gnu(usize),
    SystemV(usize),
}

// Tags of the dynamic section.
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
/// In a symbol's version: not the one that a new program would get.
const HIDDEN: u16 = 0x8000;
/// A symbol whose address a function of the library's chooses.
const STT_GNU_IFUNC: u8 = 10;

impl Symbols {
    /// Reads a dynamic section; `address` makes an address of a value there, if it is one. `None` for an object
    /// without a hash section, in which no symbol can be looked up.
    ///
    /// # Safety
    ///
    /// `place` is the dynamic section of an object that stays mapped, and `address` answers with addresses in it.
    pub(crate) unsafe fn read(
        base: usize,
        mut place: *const Entry,
        address: impl Fn(usize) -> Option<usize>,
    ) -> Option<Self> {
        let (mut strings, mut table, mut versions, mut soname) = (None, None, None, None);
        let (mut gnu, mut system_v) = (None, None);
        loop {
            // SAFETY: the section ends in an entry of tag 0.
            let [tag, value] = unsafe { place.read() };
            let value = value as usize;
            match tag {
                0 => break,
                DT_STRTAB => strings = address(value),
                DT_SYMTAB => table = address(value),
                DT_HASH => system_v = address(value),
                DT_GNU_HASH => gnu = address(value),
                DT_VERSYM => versions = address(value),
                DT_SONAME => soname = Some(value),
                _ => {}
            }
            place = place.wrapping_add(1);
        }
        Some(Self {
            base,
            soname,
            strings: strings?,
            table: table?,
            hash: gnu.map(Hash::Gnu).or(system_v.map(Hash::SystemV))?,
            versions,
        })
    }

    /// The name that other objects need it by, if it has one.
    pub(crate) fn soname(&self) -> Option<&CStr> {
        let soname = self.strings.wrapping_add(self.soname?);
        // SAFETY: in the object's own string table, whose strings end in a zero byte.
        Some(unsafe { CStr::from_ptr(soname as *const c_char) })
    }

    /// Whether other objects find a symbol of this name here.
    pub(crate) fn defines(&self, name: &CStr) -> bool {
        self.look_up(name, |_| true).is_some()
    }

    /// The address of a function in its default version, else in whichever there is.
    pub(crate) fn find(&self, name: &CStr) -> Option<*mut ()> {
        self.look_up(name, |entry| entry.st_info & 15 != STT_GNU_IFUNC)
    }

    fn look_up(&self, name: &CStr, is_meant: impl Fn(&libc::Elf64_Sym) -> bool) -> Option<*mut ()> {
        let mut other = None;
        let mut found = |symbol| match self.symbol(symbol, name, &is_meant) {
            Some((address, false)) => Some(address),
            hidden => {
                other = other.or(hidden.map(|(address, _)| address));
                None
            }
        };
        let default = match self.hash {
            Hash::Gnu(hash) => look_up_in_gnu_hash(hash, name, &mut found),
            Hash::SystemV(hash) => look_up_in_system_v_hash(hash, name, &mut found),
        };
        default.or(other)
    }

    /// Where a symbol is and whether it is hidden; `None` if it has another name, is not defined here or not meant.
    fn symbol(
        &self,
        symbol: u32,
        name: &CStr,
        is_meant: impl Fn(&libc::Elf64_Sym) -> bool,
    ) -> Option<(*mut (), bool)> {
        let at = (symbol as usize).wrapping_mul(size_of::<libc::Elf64_Sym>());
        let at = self.table.wrapping_add(at);
        // SAFETY: an entry of the object's symbol table: its hash section names it.
        let entry = unsafe { (at as *const libc::Elf64_Sym).read() };
        let its_name = self.strings.wrapping_add(entry.st_name as usize);
        // SAFETY: in the object's own string table, whose strings end in a zero byte.
        let its_name = unsafe { CStr::from_ptr(its_name as *const c_char) };
        if its_name != name || entry.st_shndx == 0 || !is_meant(&entry) {
            return None;
        }
        let address = self.base.wrapping_add(entry.st_value as usize) as *mut ();
        let Some(versions) = self.versions else {
            return Some((address, false));
        };
        let version = versions.wrapping_add((symbol as usize).wrapping_mul(2));
        // SAFETY: the object has one version for each entry of its symbol table.
        let version = unsafe { (version as *const u16).read() };
        Some((address, version & HIDDEN != 0))
    }
}

/// The first symbol of this name, perhaps, that `found` takes.
fn look_up_in_gnu_hash<T>(
    hash: usize,
    name: &CStr,
    found: &mut dyn FnMut(u32) -> Option<T>,
) -> Option<T> {
    let value = gnu_hash(name.to_bytes());
    let [buckets, first_symbol, bloom_words] = [0, 1, 2].map(|index| word(hash, index));
    let first_bucket = bloom_words.wrapping_mul(2).wrapping_add(4);
    let first_link = first_bucket.wrapping_add(buckets);
    let mut symbol = word(hash, first_bucket.wrapping_add(value.checked_rem(buckets)?));
    if symbol < first_symbol {
        return None;
    }
    loop {
        let link = word(
            hash,
            first_link.wrapping_add(symbol.wrapping_sub(first_symbol)),
        );
        if link | 1 == value | 1
            && let Some(it) = found(symbol)
        {
            return Some(it);
        }
        if link & 1 == 1 {
            return None;
        }
        symbol = symbol.wrapping_add(1);
    }
}

/// The same in the section that older linkers make.
fn look_up_in_system_v_hash<T>(
    hash: usize,
    name: &CStr,
    found: &mut dyn FnMut(u32) -> Option<T>,
) -> Option<T> {
    let [buckets, symbols] = [0, 1].map(|index| word(hash, index));
    let bucket = system_v_hash(name.to_bytes()).checked_rem(buckets)?;
    let first_link = buckets.wrapping_add(2);
    let mut symbol = word(hash, bucket.wrapping_add(2));
    // A chain has no more links than there are symbols.
    for _ in 0..symbols {
        if symbol == 0 {
            return None;
        }
        if let Some(it) = found(symbol) {
            return Some(it);
        }
        symbol = word(hash, first_link.wrapping_add(symbol));
    }
    None
}

/// A word of a hash section.
fn word(hash: usize, index: u32) -> u32 {
    let at = hash.wrapping_add((index as usize).wrapping_mul(4));
    // SAFETY: the words of an object's hash section, whose extent its first words tell.
    unsafe { (at as *const u32).read() }
}

/// The hash of a symbol's name, as the System V ABI defines it.
fn system_v_hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, &byte| {
        let hash = hash.wrapping_shl(4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(byte.into())
    })
}
