//! Which Lua slurmctld has, and whether softmig's modules are there for it.

use crate::check::facts::{Lua, LuaModule, LuaVersion, Seen};
use object::elf::DT_NEEDED;
use object::read::elf::{Dyn, ElfFile64};
use object::{Endianness, Object, ObjectSymbol};
use std::path::{Path, PathBuf};

/// Slurm's plugin that runs job_submit.lua.
const PLUGIN: &str = "job_submit_lua.so";

/// Where softmig's modules are, a folder for each Lua.
const MODULES: &str = "/usr/lib/softmig/lua";

/// Where a `liblua.so` lies that Slurm tries before the library that its plugin is linked with.
const FOLDERS: [&str; 8] = [
    "/usr/local/lib",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
    "/usr/local/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// Looks at Slurm's plugins in this folder.
pub(crate) fn look(plugins: &str, modules: &[&str]) -> Seen<Lua> {
    // PluginDir may be a list.
    let plugin = plugins
        .split(':')
        .map(|folder| Path::new(folder).join(PLUGIN))
        .find(|path| path.exists())
        .ok_or_else(|| {
            format!("there is no {PLUGIN} in {plugins}, so slurmctld does not run on this machine")
        })?;
    let slurm = needed(&read(&plugin)?)
        .ok_or_else(|| format!("{} names no Lua that it is linked with", plugin.display()))?;
    let first = FOLDERS
        .iter()
        .map(|folder| Path::new(folder).join("liblua.so"))
        .find_map(|path| {
            let version = version_of_library(&std::fs::read(&path).ok()?)?;
            Some((path, version))
        });
    let modules = modules.iter().map(|name| {
        let path = PathBuf::from(format!("{MODULES}/{slurm}/{name}.so"));
        LuaModule {
            built_for: path.exists().then(|| built_for(&path)),
            path,
        }
    });
    Ok(Lua {
        slurm,
        first,
        modules: modules.collect(),
    })
}

fn read(path: &Path) -> Seen<Vec<u8>> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The Lua that a plugin of Slurm's is linked with.
fn needed(bytes: &[u8]) -> Option<LuaVersion> {
    let elf = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let (endian, sections) = (elf.endian(), elf.elf_section_table());
    let (entries, link) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, link).ok()?;
    let needed = entries
        .iter()
        .filter(|entry| entry.tag(endian) == DT_NEEDED);
    let mut names = needed.filter_map(|entry| entry.string(endian, strings).ok());
    names.find_map(|name| version_in_name(std::str::from_utf8(name).ok()?))
}

/// `liblua5.1.so.0`, `liblua-5.4.so`, `liblua.so.5.3`.
fn version_in_name(name: &str) -> Option<LuaVersion> {
    let rest = name.strip_prefix("liblua")?;
    let rest = rest.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    version_at(rest)
}

fn version_at(text: &str) -> Option<LuaVersion> {
    let (major, rest) = text.split_once('.')?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    let minor = rest.get(..end.unwrap_or(rest.len()))?;
    Some(LuaVersion(major.parse().ok()?, minor.parse().ok()?))
}

/// Every Lua has its version in its text: `$Lua: Lua 5.1.5 Copyright`, `$LuaVersion: Lua 5.4.4  Copyright`.
fn version_of_library(bytes: &[u8]) -> Option<LuaVersion> {
    let mark = b": Lua ";
    let at = bytes
        .windows(mark.len())
        .position(|window| window == mark)?;
    let rest = bytes.get(at + mark.len()..)?;
    let text: String = rest.iter().take(8).map(|byte| char::from(*byte)).collect();
    version_at(&text)
}

/// What a module is built for, by the functions of Lua's that it calls: each version has some that others have not.
fn built_for(path: &Path) -> Seen<LuaVersion> {
    let bytes = read(path)?;
    let elf = ElfFile64::<Endianness>::parse(bytes.as_slice())
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let names: Vec<&str> = elf
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    version_by(&names)
        .ok_or_else(|| format!("{} is not a module for Lua 5.1 to 5.4", path.display()))
}

fn version_by(names: &[&str]) -> Option<LuaVersion> {
    let has = |name: &str| names.contains(&name);
    if !names.iter().any(|name| name.starts_with("lua_")) {
        None
    } else if has("lua_newuserdatauv") || has("lua_setiuservalue") || has("lua_getiuservalue") {
        Some(LuaVersion(5, 4))
    } else if has("lua_rotate") || has("lua_isinteger") {
        Some(LuaVersion(5, 3))
    } else if has("lua_pcallk") || has("lua_callk") {
        Some(LuaVersion(5, 2))
    } else {
        Some(LuaVersion(5, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_tells_its_version() {
        for (name, version) in [
            ("liblua5.1.so.0", Some(LuaVersion(5, 1))),
            ("liblua-5.4.so", Some(LuaVersion(5, 4))),
            ("liblua.so.5.3", Some(LuaVersion(5, 3))),
            ("libc.so.6", None),
            ("liblua.so", None),
        ] {
            assert_eq!(version_in_name(name), version, "{name}");
        }
        let text = b"\0$LuaVersion: Lua 5.4.4  Copyright (C) 1994-2022\0";
        assert_eq!(version_of_library(text), Some(LuaVersion(5, 4)));
        let text = b"\0$Lua: Lua 5.1.5 Copyright (C) 1994-2012 Lua.org\0";
        assert_eq!(version_of_library(text), Some(LuaVersion(5, 1)));
        assert_eq!(version_of_library(b"nothing"), None);
    }

    #[test]
    fn a_module_tells_what_it_is_built_for() {
        for (names, version) in [
            (&["lua_pcall", "lua_objlen"][..], Some(LuaVersion(5, 1))),
            (&["lua_pcallk", "lua_len"], Some(LuaVersion(5, 2))),
            (
                &["lua_pcallk", "lua_rotate", "lua_newuserdata"],
                Some(LuaVersion(5, 3)),
            ),
            (
                &["lua_pcallk", "lua_rotate", "lua_newuserdatauv"],
                Some(LuaVersion(5, 4)),
            ),
            (&["malloc"], None),
        ] {
            assert_eq!(version_by(names), version, "{names:?}");
        }
    }
}
