//! The Lua module that sbatch, salloc and srun call. It gives the same answer as job_submit before anything is sent.
//!
//! It is a convenience: users can bypass it, and job_submit decides alone. Only srun needs it. A step requests its own GRES,
//! which job_submit never sees, so this module converts the step's request as job_submit converts the job's.

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
