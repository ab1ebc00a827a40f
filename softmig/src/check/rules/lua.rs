//! The Lua scripts and modules by which Slurm asks softmig.

use crate::check::facts::{Cluster, Seen};
use crate::check::finding::{Code, Finding};

pub(crate) fn check(cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    let plugins = [
        (
            Code::JobSubmit,
            "JobSubmitPlugins",
            "job_submit.lua",
            "softmig_job_submit",
            &cluster.scripts.job_submit,
        ),
        (
            Code::CliFilter,
            "CliFilterPlugins",
            "cli_filter.lua",
            "softmig_cli_filter",
            &cluster.scripts.cli_filter,
        ),
    ];
    let mut used = Vec::new();
    for (code, key, file, module, script) in plugins {
        let mut words = cluster.settings.words(key);
        // That it is not used is said elsewhere.
        if words.any(|word| word.rsplit('/').next() == Some("lua")) {
            found.extend(check_script(code, file, module, script));
            used.push(module);
        }
    }
    match &cluster.lua {
        Err(why) => found.push(Finding::skip("softmig's Lua modules", why)),
        Ok(lua) => {
            if let Some((path, version)) = lua
                .first
                .as_ref()
                .filter(|(_, version)| *version != lua.slurm)
            {
                found.push(Finding::new(
                    Code::LuaStray,
                    path.display().to_string(),
                    format!("Slurm loads it first, and it is Lua {version}, while Slurm's plugin is for {}", lua.slurm),
                    "take it away from slurmctld's machine and the login nodes (it belongs to a package for developers)",
                ));
            }
            for module in &lua.modules {
                let stem = module.path.file_stem().unwrap_or_default();
                if !used.iter().any(|name| stem == *name) {
                    continue;
                }
                let place = module.path.display().to_string();
                match &module.built_for {
                    None => found.push(Finding::new(
                        Code::LuaModule,
                        place,
                        format!("it is not there, and Slurm's plugin is for Lua {}: slurmctld does not start again", lua.slurm),
                        "install softmig's modules for that Lua",
                    )),
                    Some(Err(why)) => found.push(Finding::new(
                        Code::LuaModule,
                        place,
                        why,
                        "install it anew, by a rename and not by writing into it",
                    )),
                    Some(Ok(version)) if *version != lua.slurm => found.push(Finding::new(
                        Code::LuaVersion,
                        place,
                        format!("it is for Lua {version}, and Slurm's plugin for {}: it cannot be loaded", lua.slurm),
                        format!("put the module for Lua {} there, by a rename", lua.slurm),
                    )),
                    Some(Ok(_)) => {}
                }
            }
        }
    }
    found
}

fn check_script(
    code: Code,
    file: &str,
    module: &str,
    script: &Seen<Option<String>>,
) -> Option<Finding> {
    let remedy = format!(
        "take the two lines of conf/{file}, at the end of a script of your own before its return"
    );
    match script {
        Err(why) => Some(Finding::skip(file, why)),
        Ok(None) => Some(Finding::new(
            code,
            file,
            "it is not beside slurm.conf",
            remedy,
        )),
        Ok(Some(text)) => {
            let mut lines = text.lines().map(str::trim_start);
            let loads = lines.any(|line| !line.starts_with("--") && line.contains(module));
            let what = format!("it does not load {module}");
            (!loads).then(|| Finding::new(code, file, what, remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::facts::LuaVersion;
    use crate::check::rules::example::{cluster, codes};

    fn found(change: impl Fn(&mut Cluster)) -> Vec<&'static str> {
        let mut cluster = cluster();
        change(&mut cluster);
        codes(&check(&cluster))
    }

    #[test]
    fn the_scripts_in_conf_are_right() {
        assert!(found(|_| {}).is_empty());
    }

    #[test]
    fn a_script_that_does_not_load_softmig_is_found() {
        let none = found(|cluster| cluster.scripts.job_submit = Ok(None));
        assert_eq!(none, ["JOB_SUBMIT"]);
        let text = "-- softmig_job_submit was here\nreturn slurm.SUCCESS\n";
        let other = found(|cluster| cluster.scripts.job_submit = Ok(Some(text.into())));
        assert_eq!(other, ["JOB_SUBMIT"]);
        let filter = found(|cluster| cluster.scripts.cli_filter = Ok(Some(text.into())));
        assert_eq!(filter, ["CLI_FILTER"]);
        let unseen = found(|cluster| cluster.scripts.job_submit = Err("it is not here".into()));
        assert_eq!(unseen, ["NOT_LOOKED_AT"]);
    }

    #[test]
    fn a_plugin_that_is_not_used_needs_no_script() {
        let unused = found(|cluster| {
            cluster.settings.set("CliFilterPlugins", "");
            cluster.scripts.cli_filter = Ok(None);
            if let Ok(lua) = &mut cluster.lua {
                lua.modules[1].built_for = None;
            }
        });
        assert!(unused.is_empty());
    }

    #[test]
    fn modules_have_to_be_there_for_slurms_lua() {
        let with = |change: &dyn Fn(&mut crate::check::facts::Lua)| {
            found(|cluster| {
                if let Ok(lua) = &mut cluster.lua {
                    change(lua);
                }
            })
        };
        assert_eq!(with(&|lua| lua.modules[0].built_for = None), ["LUA_MODULE"]);
        let broken = with(&|lua| lua.modules[0].built_for = Some(Err("no ELF".into())));
        assert_eq!(broken, ["LUA_MODULE"]);
        let other = with(&|lua| lua.modules[1].built_for = Some(Ok(LuaVersion(5, 4))));
        assert_eq!(other, ["LUA_VERSION"]);
        let stray = with(&|lua| lua.first = Some(("/usr/lib/liblua.so".into(), LuaVersion(5, 4))));
        assert_eq!(stray, ["LUA_STRAY"]);
        let same = with(&|lua| lua.first = Some(("/usr/lib/liblua.so".into(), LuaVersion(5, 1))));
        assert!(same.is_empty());
        let unseen = found(|cluster| cluster.lua = Err("this is not slurmctld's machine".into()));
        assert_eq!(unseen, ["NOT_LOOKED_AT"]);
    }
}
