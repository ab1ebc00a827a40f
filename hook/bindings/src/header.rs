//! Runs bindgen over one header: the wanted functions, and the types that they need.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result};
use bindgen::{Builder, RustEdition, RustTarget};
use syn::{Item, Type};

use crate::declaration::{Declaration, NESTED, declarations};
use crate::needed::needed;
use crate::wanted::{ENUMS, FULL, MACROS};

/// A header and what to define before it is read.
pub(crate) struct Header<'a> {
    /// The file.
    pub(crate) path: &'a Path,
    /// Where the headers that it includes are, unless they are in hook/bindings/include.
    pub(crate) folder: &'a Path,
    /// Makes it declare the older forms of its functions too, under their own names.
    pub(crate) define: &'static str,
}

impl Header<'_> {
    /// The declarations of those of the functions that the header knows.
    pub(crate) fn declarations(&self, functions: &[&str]) -> Result<Vec<Declaration>> {
        let everything = self.read(functions, &[])?;
        let items = self.read(functions, &opaque(&everything))?;
        let all =
            declarations(items).with_context(|| format!("reading {}", self.path.display()))?;
        Ok(needed(all))
    }

    /// The names of all functions that the header declares.
    pub(crate) fn functions(&self) -> Result<Vec<String>> {
        let items = self.read(&[r"(cu|nvml)[A-Z]\w*"], &[])?;
        Ok(items.iter().flat_map(foreign_functions).collect())
    }

    fn read(&self, functions: &[&str], opaque: &[String]) -> Result<Vec<Item>> {
        let path = self.path.to_str().context("a header's path in UTF-8")?;
        let folder = self.folder.to_str().context("a folder's path in UTF-8")?;
        let mut builder = Builder::default()
            .header(path)
            .clang_args(["-xc", "-nostdinc", &format!("-D{}", self.define)])
            .clang_arg(concat!("-isystem", env!("CARGO_MANIFEST_DIR"), "/include"))
            .clang_arg(format!("-idirafter{folder}"))
            // Nothing of this machine's compiler, if it has one.
            .detect_include_paths(false)
            .rust_target(RustTarget::stable(89, 0).map_err(|error| anyhow::anyhow!("{error}"))?)
            .rust_edition(RustEdition::Edition2024)
            .use_core()
            .ctypes_prefix("core::ffi")
            .generate_comments(false)
            .prepend_enum_name(false)
            .derive_debug(false)
            .formatter(bindgen::Formatter::None)
            .disable_header_comment();
        for name in functions {
            builder = builder.allowlist_function(name);
        }
        for name in FULL.iter().chain(ENUMS) {
            builder = builder.allowlist_type(name);
        }
        for name in MACROS {
            builder = builder.allowlist_var(name);
        }
        for name in opaque {
            builder = builder.opaque_type(name);
        }
        let bindings = builder
            .generate()
            .with_context(|| format!("reading {path}"))?;
        let file = syn::parse_file(&bindings.to_string()).context("reading bindgen's answer")?;
        Ok(file.items)
    }
}

/// The structs and unions whose fields are not used.
fn opaque(items: &[Item]) -> Vec<String> {
    let aliases: HashMap<String, String> = items.iter().filter_map(alias).collect();
    let full: HashSet<&str> = FULL
        .iter()
        .map(|&name| {
            let mut name = name;
            while let Some(target) = aliases.get(name) {
                name = target;
            }
            name
        })
        .collect();
    items
        .iter()
        .filter_map(|item| match item {
            Item::Struct(item) => Some(item.ident.to_string()),
            Item::Union(item) => Some(item.ident.to_string()),
            _ => None,
        })
        .filter(|name| {
            let outer = name.split(NESTED).next().unwrap_or(name);
            !full.contains(outer)
        })
        .collect()
}

/// The name of a typedef and the type that it names.
fn alias(item: &Item) -> Option<(String, String)> {
    let Item::Type(item) = item else { return None };
    let Type::Path(target) = &*item.ty else {
        return None;
    };
    let target = target.path.get_ident()?;
    Some((item.ident.to_string(), target.to_string()))
}

fn foreign_functions(item: &Item) -> Vec<String> {
    let Item::ForeignMod(block) = item else {
        return Vec::new();
    };
    block
        .items
        .iter()
        .filter_map(|item| match item {
            syn::ForeignItem::Fn(function) => Some(function.sig.ident.to_string()),
            _ => None,
        })
        .collect()
}
