//! glibc's own functions, found without asking the loader.
//!
//! The library exports `dlsym` and `dlvsym`, so by their names it would find itself. And `dlopen` moved from libdl
//! into libc with glibc 2.34: a reference to it would tie the library to one side of that. So this reads the symbol
//! table of the loaded libc or libdl as the loader does (System V gABI chapter 5, and the GNU hash section).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// `dlsym(3)`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// `dlvsym(3)`.
pub(crate) type Dlvsym =
    unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;

/// One function of glibc's, looked up at its first use.
pub(crate) struct Function {
    name: &'static CStr,
    address: AtomicPtr<()>,
}

/// `dlsym`.
pub(crate) static DLSYM: Function = Function::new(c"dlsym");
/// `dlvsym`.
pub(crate) static DLVSYM: Function = Function::new(c"dlvsym");
static DLOPEN: Function = Function::new(c"dlopen");
static DLADDR: Function = Function::new(c"dladdr");

impl Function {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Where it is; null where there is none, as in a program without libdl.
    pub(crate) fn address(&self) -> *mut () {
        // Relaxed: the address is that of code which was there before this library was.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = find(self.name);
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls `dlsym` from here: not for `RTLD_DEFAULT`, whose answer depends on who asks.
///
/// # Safety
///
/// `handle` is one that `dlsym` takes, and `name` ends in a zero byte.
pub(crate) unsafe fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let address = DLSYM.address();
    if address.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: this is glibc's function of that name.
    let function = unsafe { core::mem::transmute::<*mut (), Dlsym>(address) };
    // SAFETY: the caller's promise.
    unsafe { function(handle, name) }
}

/// Calls `dlvsym` from here, likewise.
///
/// # Safety
///
/// As for [`dlsym`], and `version` ends in a zero byte.
pub(crate) unsafe fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    let address = DLVSYM.address();
    if address.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: this is glibc's function of that name.
    let function = unsafe { core::mem::transmute::<*mut (), Dlvsym>(address) };
    // SAFETY: the caller's promise.
    unsafe { function(handle, name, version) }
}

/// Opens a library by its name, never to be unloaded. Null when it cannot be had, or is not there with `RTLD_NOLOAD`.
pub(crate) fn dlopen(name: &CStr, flags: c_int) -> *mut c_void {
    let address = DLOPEN.address();
    if address.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: this is glibc's function of that name.
    let function = unsafe { core::mem::transmute::<*mut (), Dlopen>(address) };
    // SAFETY: `name` ends in a zero byte. Loading the driver runs its constructors, as the program's own call would.
    unsafe { function(name.as_ptr(), flags | libc::RTLD_LAZY | libc::RTLD_NODELETE) }
}

/// The path of the object that an address is in, in whatever namespace of the loader.
pub(crate) fn object_of(address: *const ()) -> Option<&'static CStr> {
    let dladdr = DLADDR.address();
    if dladdr.is_null() {
        return None;
    }
    // SAFETY: this is glibc's function of that name.
    let function = unsafe { core::mem::transmute::<*mut (), Dladdr>(dladdr) };
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for, and there is room for the answer.
    let found = unsafe { function(address.cast(), &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own name of the object, which stays while the object does; the caller holds a symbol of it.
    Some(unsafe { CStr::from_ptr(info.dli_fname) })
}

/// Whether the object with this address comes before this library in the loader's order, so that what it finds by
/// `RTLD_NEXT` is never behind us.
pub(crate) fn is_before_us(address: *const ()) -> bool {
    struct Search {
        address: usize,
        before: bool,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` hands back what it was given below.
        let search = unsafe { &mut *data.cast::<Search>() };
        // SAFETY: the loader's description of an object, which stays during the call.
        let object = Object(unsafe { &*info });
        search.before = object.contains(search.address);
        // Either of the two ends the search: the caller, or this library.
        c_int::from(search.before || object.contains(is_before_us as *const () as usize))
    }
    let mut search = Search {
        address: address as usize,
        before: false,
    };
    // SAFETY: `visit` keeps to the contract, and `search` lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.before
}

/// Looks a name up in libc and libdl.
fn find(name: &CStr) -> *mut () {
    struct Search<'a> {
        name: &'a CStr,
        found: *mut (),
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` hands back what it was given below.
        let search = unsafe { &mut *data.cast::<Search<'_>>() };
        // SAFETY: the loader's description of an object, which stays during the call.
        let object = Object(unsafe { &*info });
        if let Some(symbols) = object.symbols().filter(Symbols::is_of_glibc) {
            search.found = symbols.find(search.name).unwrap_or(core::ptr::null_mut());
        }
        c_int::from(!search.found.is_null())
    }
    let mut search = Search {
        name,
        found: core::ptr::null_mut(),
    };
    // SAFETY: `visit` keeps to the contract, and `search` lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// An object that the loader has mapped.
struct Object<'a>(&'a libc::dl_phdr_info);

impl Object<'_> {
    fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: the loader gives the place and number of the object's program headers, which stay mapped.
        unsafe { core::slice::from_raw_parts(self.0.dlpi_phdr, self.0.dlpi_phnum.into()) }
    }

    fn address(&self, offset: u64) -> usize {
        self.0.dlpi_addr.wrapping_add(offset) as usize
    }

    fn contains(&self, address: usize) -> bool {
        self.headers()
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .any(|header| {
                address.wrapping_sub(self.address(header.p_vaddr)) < header.p_memsz as usize
            })
    }

    /// Its dynamic symbols.
    fn symbols(&self) -> Option<Symbols> {
        let dynamic = self
            .headers()
            .iter()
            .find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut at = self.address(dynamic.p_vaddr);
        let mut symbols = Symbols {
            base: self.0.dlpi_addr as usize,
            ..Symbols::default()
        };
        let mut soname = None;
        loop {
            // SAFETY: the object's dynamic section, which is mapped and ends in an entry of tag 0.
            let (tag, value) = unsafe { (at as *const (u64, u64)).read() };
            // glibc has put whole addresses in the place of offsets, except where the section is read-only.
            let address = match (value as usize) < symbols.base {
                true => self.address(value),
                false => value as usize,
            };
            match tag {
                0 => break,
                DT_STRTAB => symbols.strings = address,
                DT_SYMTAB => symbols.table = address,
                DT_GNU_HASH => symbols.hash = address,
                DT_VERSYM => symbols.versions = address,
                DT_SONAME => soname = Some(value as usize),
                _ => {}
            }
            at = at.wrapping_add(16);
        }
        symbols.soname = symbols.strings.wrapping_add(soname?);
        let complete = symbols.strings != 0 && symbols.table != 0 && symbols.hash != 0;
        complete.then_some(symbols)
    }
}

// Tags of the dynamic section (System V gABI, and its GNU extensions).
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
/// In a symbol's version: not the one that a new program would get.
const HIDDEN: u16 = 0x8000;

/// Where the parts of an object's symbol table are.
#[derive(Default)]
struct Symbols {
    base: usize,
    soname: usize,
    strings: usize,
    table: usize,
    hash: usize,
    versions: usize,
}

impl Symbols {
    fn is_of_glibc(&self) -> bool {
        // SAFETY: the object's own string table, whose strings end in a zero byte.
        let name = unsafe { CStr::from_ptr(self.soname as *const c_char) };
        name == c"libc.so.6" || name == c"libdl.so.2"
    }

    /// The address of a function in its default version, else in whichever there is.
    fn find(&self, name: &CStr) -> Option<*mut ()> {
        let hash = gnu_hash(name.to_bytes());
        let [buckets, first_symbol, bloom_words] = [0, 1, 2].map(|word| self.hash_word(word));
        let first_bucket = bloom_words.wrapping_mul(2).wrapping_add(4);
        let first_link = first_bucket.wrapping_add(buckets);
        let mut symbol = self.hash_word(first_bucket.wrapping_add(hash.checked_rem(buckets)?));
        if symbol < first_symbol {
            return None;
        }
        let mut other = None;
        loop {
            let link = self.hash_word(first_link.wrapping_add(symbol.wrapping_sub(first_symbol)));
            if let Some((address, hidden)) =
                self.function(symbol, name).filter(|_| link | 1 == hash | 1)
            {
                if !hidden {
                    return Some(address);
                }
                other = other.or(Some(address));
            }
            if link & 1 == 1 {
                return other;
            }
            symbol = symbol.wrapping_add(1);
        }
    }

    fn hash_word(&self, index: u32) -> u32 {
        let at = self.hash.wrapping_add((index as usize).wrapping_mul(4));
        // SAFETY: the words of the object's hash section, whose extent the words before tell.
        unsafe { (at as *const u32).read() }
    }

    /// Where a symbol's function is and whether it is hidden; `None` if it has another name or is not defined here.
    fn function(&self, symbol: u32, name: &CStr) -> Option<(*mut (), bool)> {
        let at = self
            .table
            .wrapping_add((symbol as usize).wrapping_mul(size_of::<libc::Elf64_Sym>()));
        // SAFETY: an entry of the object's symbol table: its hash section names it.
        let entry = unsafe { (at as *const libc::Elf64_Sym).read() };
        let its_name = self.strings.wrapping_add(entry.st_name as usize);
        // SAFETY: the object's own string table, whose strings end in a zero byte.
        let its_name = unsafe { CStr::from_ptr(its_name as *const c_char) };
        if its_name != name || entry.st_shndx == 0 {
            return None;
        }
        let address = self.base.wrapping_add(entry.st_value as usize) as *mut ();
        if self.versions == 0 {
            return Some((address, false));
        }
        let version = self
            .versions
            .wrapping_add((symbol as usize).wrapping_mul(2));
        // SAFETY: the object has one version for each entry of its symbol table.
        let version = unsafe { (version as *const u16).read() };
        Some((address, version & HIDDEN != 0))
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(byte.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibcs_own_functions_are_those_that_the_loader_knows() {
        for (function, name) in [
            (&DLSYM, c"dlsym"),
            (&DLVSYM, c"dlvsym"),
            (&DLOPEN, c"dlopen"),
            (&DLADDR, c"dladdr"),
        ] {
            // SAFETY: a handle that `dlsym` takes, and a name that ends in a zero byte.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(function.address().cast(), expected, "{name:?}");
        }
        assert!(find(c"no_such_function").is_null());
        assert!(find(c"").is_null());
    }

    #[test]
    fn every_object_but_the_program_comes_after_it() {
        let here = is_before_us as *const ();
        assert!(
            is_before_us(here),
            "the test program is its own first object"
        );
        assert!(!is_before_us(DLSYM.address()), "libc comes later");
        assert!(!is_before_us(core::ptr::null()));
    }

    #[test]
    fn an_address_tells_its_object() {
        let path = object_of(DLSYM.address()).unwrap().to_str().unwrap();
        assert!(path.contains("libc"), "{path}");
        assert_eq!(object_of(core::ptr::null()), None);
    }
}
