//! The Lua scripts and modules by which Slurm asks softmig.

use crate::site::check::facts::{Lua, LuaPlugin, LuaPlugins};
use crate::site::check::finding::{Code, Finding};

const JOB_SUBMIT: What = What {
    code: Code::JobSubmit,
    missing: Code::JobSubmit,
    file: "job_submit.lua",
    module: "softmig_job_submit",
    without_script: "slurmctld does not start again",
    without_module: "slurmctld does not start again",
};
const CLI_FILTER: What = What {
    code: Code::CliFilter,
    missing: Code::CliFilterScript,
    file: "cli_filter.lua",
    module: "softmig_cli_filter",
    without_script: "sbatch, salloc and srun end with an error on this machine, for every job",
    without_module: "on this machine srun cannot ask for a slice",
};

pub(crate) fn check(plugins: &LuaPlugins) -> Vec<Finding> {
    let all = [
        (JOB_SUBMIT, &plugins.job_submit),
        (CLI_FILTER, &plugins.cli_filter),
    ];
    // If slurm.conf does not use the plugin, another rule says so.
    let used = all.into_iter().filter(|(_, plugin)| plugin.used);
    let found = used.flat_map(|(what, plugin)| {
        let of_lua = match &plugin.lua {
            Err(why) => [
                Some(Finding::skip(
                    format!("{} for Slurm's Lua", what.module),
                    why,
                )),
                None,
            ],
            Ok(lua) => [stray(lua), what.module(lua)],
        };
        what.script(plugin)
            .into_iter()
            .chain(of_lua.into_iter().flatten())
    });
    found.collect()
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
    fn script(&self, plugin: &LuaPlugin) -> Option<Finding> {
        let file = self.file;
        let remedy = format!(
            "if there is no script, copy /usr/share/softmig/examples/{file} beside slurm.conf; to a script of your own add its \
             lines at the end, before its return"
        );
        let text = match &plugin.script {
            Err(why) => return Some(Finding::skip(file, why)),
            Ok(None) => {
                let what = format!("it is not beside slurm.conf: {}", self.without_script);
                return Some(Finding::new(self.missing, file, what, remedy));
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
        let (slurm, without) = (lua.slurm, self.without_module);
        let right = format!("put the module for Lua {slurm} there, by a rename");
        let (code, what, remedy) = match (&lua.module.built_for, lua.module.newer_glibc) {
            (None, _) => (
                Code::LuaModule,
                format!("it is not there, and Slurm's plugin is for Lua {slurm}"),
                "install softmig's modules for that Lua",
            ),
            (Some(Err(why)), _) => (
                Code::LuaModule,
                why.clone(),
                "install it anew, by a rename and not by writing into it",
            ),
            (Some(Ok(version)), _) if *version != slurm => (
                Code::LuaVersion,
                format!(
                    "it is for Lua {version}, and Slurm's plugin for {slurm}, so it cannot be loaded"
                ),
                right.as_str(),
            ),
            (Some(Ok(_)), Some((needed, here))) => (
                Code::LuaGlibc,
                format!(
                    "it needs glibc {needed}, and this machine has {here}, so it cannot be loaded"
                ),
                "install a module that 'cargo xtask stage' or 'cargo xtask packages' built, which need glibc 2.17",
            ),
            (Some(Ok(_)), None) => return None,
        };
        let place = lua.module.path.display().to_string();
        Some(Finding::new(
            code,
            place,
            format!("{what}: {without}"),
            remedy,
        ))
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
    use crate::site::check::facts::Version;
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
    fn a_library_of_the_same_lua_is_no_stray() {
        let same = found(|plugins| {
            if let Ok(lua) = &mut plugins.cli_filter.lua {
                lua.first = Some(("/usr/lib/liblua.so".into(), Version(5, 1)));
            }
        });
        assert!(same.is_empty());
    }
}
