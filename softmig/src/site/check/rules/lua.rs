//! The Lua scripts and modules by which Slurm asks softmig.

use crate::site::check::facts::{Lua, LuaPlugin, LuaPlugins};
use crate::site::check::finding::{Code, Finding};

pub(crate) fn check(plugins: &LuaPlugins) -> Vec<Finding> {
    let job_submit = What {
        code: Code::JobSubmit,
        missing: Code::JobSubmit,
        file: "job_submit.lua",
        module: "softmig_job_submit",
        without_script: "slurmctld does not start again",
        without_module: "slurmctld does not start again",
    };
    let cli_filter = What {
        code: Code::CliFilter,
        missing: Code::CliFilterScript,
        file: "cli_filter.lua",
        module: "softmig_cli_filter",
        without_script: "sbatch, salloc and srun end with an error on this machine, for every job",
        without_module: "on this machine srun cannot ask for a slice",
    };
    let mut found = job_submit.check(&plugins.job_submit);
    found.extend(cli_filter.check(&plugins.cli_filter));
    found
}

/// A plugin, in words.
struct What {
    /// The script does not load softmig.
    code: Code,
    /// The script is not there.
    missing: Code,
    file: &'static str,
    module: &'static str,
    without_script: &'static str,
    without_module: &'static str,
}

impl What {
    fn check(&self, plugin: &LuaPlugin) -> Vec<Finding> {
        // If slurm.conf does not use the plugin, another rule says so.
        if !plugin.used {
            return Vec::new();
        }
        let mut found: Vec<Finding> = self.script(plugin).into_iter().collect();
        match &plugin.lua {
            Err(why) => found.push(Finding::skip(
                format!("{} for Slurm's Lua", self.module),
                why,
            )),
            Ok(lua) => {
                found.extend(stray(lua));
                found.extend(self.module(lua));
            }
        }
        found
    }

    fn script(&self, plugin: &LuaPlugin) -> Option<Finding> {
        let file = self.file;
        let remedy = format!(
            "if there is no script, copy /usr/share/softmig/examples/{file} beside slurm.conf; to a script of your own add its \
             lines at the end, before its return"
        );
        let text = match &plugin.script {
            Err(why) => return Some(Finding::skip(file, why)),
            Ok(None) => {
                return Some(Finding::new(
                    self.missing,
                    file,
                    format!("it is not beside slurm.conf: {}", self.without_script),
                    remedy,
                ));
            }
            Ok(Some(text)) => text,
        };
        let code: Vec<&str> = text
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("--"))
            .collect();
        let has = |words: &str| code.iter().any(|line| line.contains(words));
        let what = if !has(self.module) {
            format!("it does not load {}", self.module)
        } else if self.code == Code::CliFilter && !has("pcall") {
            // The first releases of softmig came with such a script.
            format!(
                "it loads {} without pcall: on a machine where that fails no job can be submitted",
                self.module
            )
        } else {
            return None;
        };
        Some(Finding::new(self.code, file, what, remedy))
    }

    fn module(&self, lua: &Lua) -> Option<Finding> {
        let place = lua.module.path.display().to_string();
        let (slurm, without) = (lua.slurm, self.without_module);
        match &lua.module.built_for {
            None => Some(Finding::new(
                Code::LuaModule,
                place,
                format!("it is not there, and Slurm's plugin is for Lua {slurm}: {without}"),
                "install softmig's modules for that Lua",
            )),
            Some(Err(why)) => Some(Finding::new(
                Code::LuaModule,
                place,
                format!("{why}: {without}"),
                "install it anew, by a rename and not by writing into it",
            )),
            Some(Ok(version)) if *version != slurm => Some(Finding::new(
                Code::LuaVersion,
                place,
                format!(
                    "it is for Lua {version}, and Slurm's plugin for {slurm}, so it cannot be loaded: {without}"
                ),
                format!("put the module for Lua {slurm} there, by a rename"),
            )),
            Some(Ok(_)) => lua.module.newer_glibc.map(|(needed, here)| {
                Finding::new(
                    Code::LuaGlibc,
                    place,
                    format!(
                        "it needs glibc {needed}, and this machine has {here}, so it cannot be loaded: {without}"
                    ),
                    "install a module that 'cargo xtask stage' or 'cargo xtask packages' built, which need glibc 2.17",
                )
            }),
        }
    }
}

/// A library that Slurm would take in the place of its own.
fn stray(lua: &Lua) -> Option<Finding> {
    let (path, version) = lua.first.as_ref()?;
    (*version != lua.slurm).then(|| {
        Finding::new(
            Code::LuaStray,
            path.display().to_string(),
            format!(
                "Slurm loads it first, and it is Lua {version}, while Slurm's plugin is for {}",
                lua.slurm
            ),
            "take it away from slurmctld's machine and the login nodes (it belongs to a package for developers)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::facts::{Glibc, LuaVersion};
    use crate::site::check::rules::example::{cluster, codes};

    fn found(change: impl Fn(&mut LuaPlugins)) -> Vec<&'static str> {
        let mut plugins = cluster().lua;
        change(&mut plugins);
        codes(&check(&plugins))
    }

    #[test]
    fn the_scripts_in_conf_are_right() {
        assert!(found(|_| {}).is_empty());
    }

    #[test]
    fn a_script_that_does_not_load_softmig_is_found() {
        let none = found(|plugins| plugins.job_submit.script = Ok(None));
        assert_eq!(none, ["JOB_SUBMIT"]);
        let none = found(|plugins| plugins.cli_filter.script = Ok(None));
        assert_eq!(none, ["CLI_FILTER_SCRIPT"]);
        let text = "-- softmig_job_submit was here\nreturn slurm.SUCCESS\n";
        let other = found(|plugins| plugins.job_submit.script = Ok(Some(text.into())));
        assert_eq!(other, ["JOB_SUBMIT"]);
        let filter = found(|plugins| plugins.cli_filter.script = Ok(Some(text.into())));
        assert_eq!(filter, ["CLI_FILTER"]);
        let unseen = found(|plugins| plugins.job_submit.script = Err("it is not here".into()));
        assert_eq!(unseen, ["NOT_LOOKED_AT"]);
    }

    #[test]
    fn a_client_script_survives_a_module_that_is_missing() {
        let text = "assert(package.loadlib(\"softmig_cli_filter.so\", \"x\"))().install()\n";
        let bare = found(|plugins| plugins.cli_filter.script = Ok(Some(text.into())));
        assert_eq!(bare, ["CLI_FILTER"]);
        let guarded = format!("pcall(function()\n{text}end)\n");
        let guarded = found(|plugins| plugins.cli_filter.script = Ok(Some(guarded.clone())));
        assert!(guarded.is_empty());
    }

    #[test]
    fn a_plugin_that_is_not_used_needs_no_script() {
        let unused = found(|plugins| {
            plugins.cli_filter.used = false;
            plugins.cli_filter.script = Ok(None);
            plugins.cli_filter.lua = Err("there is no such plugin".into());
        });
        assert!(unused.is_empty());
    }

    #[test]
    fn modules_have_to_be_there_for_slurms_lua() {
        let with = |change: &dyn Fn(&mut Lua)| {
            found(|plugins| {
                if let Ok(lua) = &mut plugins.cli_filter.lua {
                    change(lua);
                }
            })
        };
        assert_eq!(with(&|lua| lua.module.built_for = None), ["LUA_MODULE"]);
        let broken = with(&|lua| lua.module.built_for = Some(Err("no ELF".into())));
        assert_eq!(broken, ["LUA_MODULE"]);
        let other = with(&|lua| lua.module.built_for = Some(Ok(LuaVersion(5, 4))));
        assert_eq!(other, ["LUA_VERSION"]);
        let newer = with(&|lua| lua.module.newer_glibc = Some((Glibc(2, 38), Glibc(2, 28))));
        assert_eq!(newer, ["LUA_GLIBC"]);
        let stray = with(&|lua| lua.first = Some(("/usr/lib/liblua.so".into(), LuaVersion(5, 4))));
        assert_eq!(stray, ["LUA_STRAY"]);
        let same = with(&|lua| lua.first = Some(("/usr/lib/liblua.so".into(), LuaVersion(5, 1))));
        assert!(same.is_empty());
        let unseen = found(|plugins| {
            plugins.job_submit.lua = Err("this is not slurmctld's machine".into());
        });
        assert_eq!(unseen, ["NOT_LOOKED_AT"]);
    }
}
