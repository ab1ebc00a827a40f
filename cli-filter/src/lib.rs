//! The Lua module that sbatch, salloc and srun call: the same answer as job_submit gives, before anything is sent.
//!
//! It is a convenience: users can go without it, and job_submit decides alone. Only srun needs it: a step asks for
//! its GRES itself, in words that job_submit never sees, so what job_submit made of the job has to be made of the
//! step too.

#![forbid(unsafe_code)]

mod install;
mod options;

use mlua::prelude::*;

/// `luaopen_softmig_cli_filter`: `install()` puts the functions around the site's own.
#[mlua::lua_module]
fn softmig_cli_filter(lua: &Lua) -> LuaResult<LuaTable> {
    let module = lua.create_table()?;
    module.set(
        "install",
        lua.create_function(|lua, ()| install::install(lua))?,
    )?;
    Ok(module)
}
