//! What Slurm's Lua gives a script: its log, its error codes, and which release it is.

use mlua::prelude::*;

/// `slurm.SUCCESS`.
pub(crate) const SUCCESS: i32 = 0;
/// `ESLURM_INVALID_GRES`; by its number, because releases before 23.02 do not give scripts the name.
pub(crate) const INVALID_GRES: i32 = 2072;
/// `ESLURM_ACCESS_DENIED`, likewise.
pub(crate) const ACCESS_DENIED: i32 = 2002;

/// Text for the user's terminal.
pub(crate) fn log_user(lua: &Lua, text: &str) {
    // Slurm drops the whole text in some clients when it holds a line feed: a call for each line.
    for line in text.lines() {
        log(lua, "log_user", line);
    }
}

/// A line for slurmctld's log.
pub(crate) fn log_info(lua: &Lua, line: &str) {
    log(lua, "log_info", line);
}

/// An error for slurmctld's log.
pub(crate) fn log_error(lua: &Lua, line: &str) {
    log(lua, "log_error", line);
}

/// The text is an argument, never the format: these functions run it through string.format.
///
/// Part of it is a user's: nothing of that may look like a line of its own, and none is longer than a screen.
fn log(lua: &Lua, function: &str, line: &str) {
    const LONGEST: usize = 1000;
    let plain = |letter: char| match letter {
        ' '..='~' => letter,
        _ => '?',
    };
    let line: String = line.chars().take(LONGEST).map(plain).collect();
    let done = lua
        .globals()
        .get::<LuaTable>("slurm")
        .and_then(|slurm| slurm.get::<LuaFunction>(function))
        .and_then(|log| log.call::<()>(("%s", line.as_str())));
    // A log that cannot be written is no reason to decide otherwise.
    drop(done);
}

/// Whether a job's `extra` reaches the prolog: from Slurm 23.02 on, which is also the first release that gives
/// scripts the names of all errors.
pub(crate) fn passes_extra_to_prolog(lua: &Lua) -> bool {
    lua.globals()
        .get::<LuaTable>("slurm")
        .and_then(|slurm| slurm.get::<Option<i64>>("ESLURM_INVALID_GRES"))
        .is_ok_and(|code| code.is_some())
}
