//! Slurm's Lua plugins on this machine: their scripts, the Lua that they are linked with, and whether softmig's modules are
//! there for it. This works without a running slurmctld, since a wrong module may be what keeps it from starting.

use super::glibc;
use crate::ask::conf::files;
use crate::ask::slurmd::host_name;
use crate::site::check::facts::{Lua, LuaModule, LuaPlugin, LuaPlugins, Seen, Settings, Version};
use object::elf::DT_NEEDED;
use object::read::elf::{Dyn, ElfFile64};
use object::{Endianness, Object, ObjectSymbol};
use std::path::{Path, PathBuf};

/// The folder of softmig's modules, which has a folder for each Lua.
const MODULES: &str = "/usr/lib/softmig/lua";

/// The paths of slurm.conf. The last one is the file that slurmctld sent to a machine without a file of its own.
const SLURM_CONF: [&str; 2] = ["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"];

/// The folders of Slurm's plugins by default: in Debian, in Red Hat's relatives, and in a Slurm built from its source.
const PLUGIN_DIRS: &str = "/usr/lib/x86_64-linux-gnu/slurm-wlm:/usr/lib/x86_64-linux-gnu/slurm:\
    /usr/lib/aarch64-linux-gnu/slurm-wlm:/usr/lib64/slurm:/usr/lib/slurm:/usr/local/lib/slurm:/usr/local/lib64/slurm";

/// The folders in which Slurm looks for a `liblua.so` before it takes the library that its plugin is linked with.
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

/// This machine's slurm.conf, if it has one.
pub(crate) fn slurm_conf() -> Option<PathBuf> {
    let named = std::env::var_os("SLURM_CONF").map(PathBuf::from);
    let paths = named.into_iter().chain(SLURM_CONF.map(PathBuf::from));
    paths.into_iter().find(|path| path.exists())
}

/// The plugins by this machine's own slurm.conf, for use without an answer of slurmctld.
pub(crate) fn here() -> Option<LuaPlugins> {
    let path = slurm_conf()?;
    let settings = files::slurm_conf(&path).ok()?.settings;
    let mut plugins = look(&settings, path.parent()?);
    plugins.job_submit.used &= is_controller(&settings);
    Some(plugins)
}

/// Looks at the scripts in this folder, at Slurm's plugins and at softmig's modules.
pub(crate) fn look(settings: &Settings, folder: &Path) -> LuaPlugins {
    let is_own = slurm_conf()
        .and_then(|own| own.parent()?.canonicalize().ok())
        .is_some_and(|own| folder.canonicalize().is_ok_and(|folder| folder == own));
    let is_controller = is_controller(settings);
    let plugin_dirs = match settings.get("PluginDir") {
        "" => PLUGIN_DIRS,
        folders => folders,
    };
    LuaPlugins {
        job_submit: LuaPlugin {
            used: uses(settings, "JobSubmitPlugins"),
            script: script(&folder.join("job_submit.lua"), is_own && is_controller),
            lua: if is_controller {
                lua(plugin_dirs, "job_submit_lua.so", "softmig_job_submit")
            } else {
                Err("this is not slurmctld's machine".into())
            },
        },
        cli_filter: LuaPlugin {
            used: uses(settings, "CliFilterPlugins"),
            script: script(&folder.join("cli_filter.lua"), is_own),
            lua: lua(plugin_dirs, "cli_filter_lua.so", "softmig_cli_filter"),
        },
    }
}

fn uses(settings: &Settings, key: &str) -> bool {
    let mut words = settings.words(key);
    words.any(|word| word.rsplit('/').next() == Some("lua"))
}

/// Whether slurmctld runs on this machine, by its configuration.
pub(crate) fn is_controller(settings: &Settings) -> bool {
    let keys = ["SlurmctldHost", "ControlMachine", "BackupController"];
    let mut hosts = keys.into_iter().flat_map(|key| settings.words(key));
    hosts.any(|host| host.split('(').next() == Some(&host_name()))
}

fn script(path: &Path, needed: bool) -> Seen<Option<String>> {
    match files::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(_) if needed && !path.exists() => Ok(None),
        Err(_) if !path.exists() => Err(format!("{} is not here", path.display())),
        Err(why) => Err(why),
    }
}

/// Looks at a plugin of Slurm's in these folders, and at softmig's module for it.
fn lua(folders: &str, plugin: &str, module: &str) -> Seen<Lua> {
    let plugin = folders
        .split(':')
        .map(|folder| Path::new(folder).join(plugin))
        .find(|path| path.exists())
        .ok_or_else(|| format!("{plugin} is not in {folders}"))?;
    let slurm = needed(&read(&plugin)?)
        .ok_or_else(|| format!("{} names no Lua that it is linked with", plugin.display()))?;
    let first = FOLDERS
        .iter()
        .map(|folder| Path::new(folder).join("liblua.so"))
        .find_map(|path| {
            let version = version_of_library(&std::fs::read(&path).ok()?)?;
            Some((path, version))
        });
    let path = PathBuf::from(format!("{MODULES}/{slurm}/{module}.so"));
    Ok(Lua {
        slurm,
        first,
        module: LuaModule {
            built_for: path.exists().then(|| built_for(&path)),
            newer_glibc: newer_glibc(&path),
            path,
        },
    })
}

/// The glibc that a module needs and the machine's, if the machine's is older.
fn newer_glibc(path: &Path) -> Option<(Version, Version)> {
    let (needed, here) = (glibc::needed(&read(path).ok()?)?, glibc::here()?);
    (needed > here).then_some((needed, here))
}

fn read(path: &Path) -> Seen<Vec<u8>> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The Lua that a plugin of Slurm's is linked with.
fn needed(bytes: &[u8]) -> Option<Version> {
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
fn version_in_name(name: &str) -> Option<Version> {
    let rest = name
        .strip_prefix("liblua")?
        .trim_start_matches(|letter: char| !letter.is_ascii_digit());
    version_at(rest)
}

fn version_at(text: &str) -> Option<Version> {
    let (major, rest) = text.split_once('.')?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    let minor = rest.get(..end.unwrap_or(rest.len()))?;
    Some(Version(major.parse().ok()?, minor.parse().ok()?))
}

/// Every Lua has its version in its text: `$Lua: Lua 5.1.5 Copyright`, `$LuaVersion: Lua 5.4.4  Copyright`.
fn version_of_library(bytes: &[u8]) -> Option<Version> {
    let mark = b": Lua ";
    let at = bytes
        .windows(mark.len())
        .position(|window| window == mark)?;
    let rest = bytes.get(at + mark.len()..)?;
    let text: String = rest.iter().take(8).map(|byte| char::from(*byte)).collect();
    version_at(&text)
}

/// The Lua that a module is built for, by the functions of Lua's that it calls: each version has some that others have not.
fn built_for(path: &Path) -> Seen<Version> {
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

fn version_by(names: &[&str]) -> Option<Version> {
    let has = |name: &str| names.contains(&name);
    if !names.iter().any(|name| name.starts_with("lua_")) {
        None
    } else if has("lua_newuserdatauv") || has("lua_setiuservalue") || has("lua_getiuservalue") {
        Some(Version(5, 4))
    } else if has("lua_rotate") || has("lua_isinteger") {
        Some(Version(5, 3))
    } else if has("lua_pcallk") || has("lua_callk") {
        Some(Version(5, 2))
    } else {
        Some(Version(5, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_tells_its_version() {
        for (name, version) in [
            ("liblua5.1.so.0", Some(Version(5, 1))),
            ("liblua-5.4.so", Some(Version(5, 4))),
            ("liblua.so.5.3", Some(Version(5, 3))),
            ("libc.so.6", None),
            ("liblua.so", None),
        ] {
            assert_eq!(version_in_name(name), version, "{name}");
        }
        let text = b"\0$LuaVersion: Lua 5.4.4  Copyright (C) 1994-2022\0";
        assert_eq!(version_of_library(text), Some(Version(5, 4)));
        let text = b"\0$Lua: Lua 5.1.5 Copyright (C) 1994-2012 Lua.org\0";
        assert_eq!(version_of_library(text), Some(Version(5, 1)));
        assert_eq!(version_of_library(b"nothing"), None);
    }

    #[test]
    fn a_module_tells_what_it_is_built_for() {
        for (names, version) in [
            (&["lua_pcall", "lua_objlen"][..], Some(Version(5, 1))),
            (&["lua_pcallk", "lua_len"], Some(Version(5, 2))),
            (
                &["lua_pcallk", "lua_rotate", "lua_newuserdata"],
                Some(Version(5, 3)),
            ),
            (
                &["lua_pcallk", "lua_rotate", "lua_newuserdatauv"],
                Some(Version(5, 4)),
            ),
            (&["malloc"], None),
        ] {
            assert_eq!(version_by(names), version, "{names:?}");
        }
    }
}
