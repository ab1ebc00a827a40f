//! The facts that a shared library tells the dynamic linker.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use object::elf::{
    DF_1_NOW, DF_BIND_NOW, DF_TEXTREL, DT_BIND_NOW, DT_FINI, DT_FINI_ARRAY, DT_FLAGS, DT_FLAGS_1,
    DT_INIT, DT_INIT_ARRAYSZ, DT_NEEDED, DT_PREINIT_ARRAY, DT_RPATH, DT_RUNPATH, DT_TEXTREL, PF_W,
    PF_X, PT_GNU_RELRO, PT_GNU_STACK, PT_LOAD, PT_TLS,
};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

/// The facts that the gates are about.
#[derive(Debug, Default)]
pub(crate) struct Library {
    /// Bytes of the file.
    pub(crate) size: usize,
    /// The libraries that are loaded with it.
    pub(crate) needed: Vec<String>,
    /// The symbols that others have to define.
    pub(crate) undefined: BTreeSet<String>,
    /// The symbols that it defines for others.
    pub(crate) exported: BTreeSet<String>,
    /// The versions of symbols that it asks its libraries for.
    pub(crate) versions: BTreeSet<String>,
    /// The code that runs when it is loaded or unloaded, beside one initializer, by names of entries of its dynamic
    /// section.
    pub(crate) runs: Vec<&'static str>,
    /// Folders to search for libraries.
    pub(crate) search: Vec<String>,
    pub(crate) has_tls: bool,
    pub(crate) has_executable_stack: bool,
    /// A segment that is both written and run.
    pub(crate) has_writable_code: bool,
    /// Relocations in code.
    pub(crate) has_text_relocations: bool,
    /// All symbols are bound at load, none later.
    pub(crate) binds_now: bool,
    /// How many mappings it takes, and system calls to make them.
    pub(crate) mappings: usize,
}

impl Library {
    /// Reads a library.
    pub(crate) fn read(path: &Path) -> Result<Library> {
        let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        parse(&bytes).with_context(|| format!("{} is not a 64-bit ELF library", path.display()))
    }
}

type File<'a> = ElfFile64<'a, Endianness>;

fn parse(bytes: &[u8]) -> Result<Library> {
    let file: File<'_> = ElfFile64::parse(bytes)?;
    let mut library = Library {
        size: bytes.len(),
        versions: versions(&file)?,
        ..Library::default()
    };
    for symbol in file.dynamic_symbols() {
        let name = symbol.name()?.to_owned();
        if symbol.is_undefined() {
            library.undefined.insert(name);
        } else {
            library.exported.insert(name);
        }
    }
    // The first entry of the table is not a symbol.
    library.undefined.remove("");

    library.binds_now = dynamic_section(&file, &mut library)?;
    // Without a word on the stack the kernel makes it executable.
    library.has_executable_stack = true;
    for segment in file.elf_program_headers() {
        let flags = segment.p_flags(file.endian());
        let (runs, writes) = (flags.contains(PF_X), flags.contains(PF_W));
        match segment.p_type(file.endian()) {
            PT_TLS => library.has_tls = true,
            PT_GNU_STACK => library.has_executable_stack = runs,
            // Splits a mapping in two.
            PT_GNU_RELRO => library.mappings += 1,
            PT_LOAD => {
                library.mappings += 1;
                library.has_writable_code |= runs && writes;
            }
            _ => {}
        }
    }
    Ok(library)
}

/// The size of an address in bytes.
const POINTER: u64 = 8;

/// Reads the dynamic section; whether all symbols are bound at load.
fn dynamic_section(file: &File<'_>, library: &mut Library) -> Result<bool> {
    let table = file.elf_dynamic_table()?;
    let mut binds_now = false;
    for entry in &table {
        let text = || Ok::<_, anyhow::Error>(str::from_utf8(table.string(entry)?)?.to_owned());
        match entry.tag {
            DT_NEEDED => library.needed.push(text()?),
            DT_RPATH | DT_RUNPATH => library.search.push(text()?),
            DT_INIT => library.runs.push("DT_INIT"),
            // hook/src/exports/load.rs is one.
            DT_INIT_ARRAYSZ if entry.val > POINTER => library.runs.push("DT_INIT_ARRAY"),
            DT_PREINIT_ARRAY => library.runs.push("DT_PREINIT_ARRAY"),
            DT_FINI => library.runs.push("DT_FINI"),
            DT_FINI_ARRAY => library.runs.push("DT_FINI_ARRAY"),
            DT_TEXTREL => library.has_text_relocations = true,
            DT_BIND_NOW => binds_now = true,
            DT_FLAGS => {
                library.has_text_relocations |= entry.val & DF_TEXTREL.0 != 0;
                binds_now |= entry.val & DF_BIND_NOW.0 != 0;
            }
            DT_FLAGS_1 => binds_now |= entry.val & DF_1_NOW.0 != 0,
            _ => {}
        }
    }
    Ok(binds_now)
}

fn versions(file: &File<'_>) -> Result<BTreeSet<String>> {
    let sections = file.elf_section_table();
    let mut versions = BTreeSet::new();
    let Some((libraries, strings)) = sections.gnu_verneed(file.endian(), file.data())? else {
        return Ok(versions);
    };
    let strings = sections.strings(file.endian(), file.data(), strings)?;
    for library in libraries {
        for version in library?.1 {
            let name = version?.name(file.endian(), strings)?;
            versions.insert(str::from_utf8(name)?.to_owned());
        }
    }
    Ok(versions)
}
