//! Slurm's Lua interface: jobs, the log, error codes, and the release.

use mlua::prelude::*;

/// `slurm.SUCCESS`.
pub(crate) const SUCCESS: i32 = 0;
/// `ESLURM_INVALID_GRES`; by its number, because releases before 23.02 do not give scripts the name.
pub(crate) const INVALID_GRES: i32 = 2072;
/// `ESLURM_ACCESS_DENIED`, likewise.
pub(crate) const ACCESS_DENIED: i32 = 2002;

/// Slurm's "not set", in the widths that job descriptions have.
pub(crate) const NO_VAL16: u32 = 0xfffe;
pub(crate) const NO_VAL: u32 = 0xffff_fffe;

/// The functions that Lua runs: those that read fields, and those of slurm.lua.
pub(crate) struct Slurm {
    pub(crate) read_gpus: LuaFunction,
    pub(crate) read_request: LuaFunction,
    pub(crate) read_place: LuaFunction,
    pub(crate) read_record: LuaFunction,
    pub(crate) read_what_can_be_read: LuaFunction,
    pub(crate) write: LuaFunction,
    log_user: LuaFunction,
    log_info: LuaFunction,
    log_error: LuaFunction,
    /// True if a job's `extra` reaches the prolog.
    pub(crate) passes_extra_to_prolog: bool,
}

impl Slurm {
    /// `readers` are the fields that each reader returns, `names` those that can be written.
    pub(crate) fn load(lua: &Lua, readers: [&[&str]; 4], names: &[&str]) -> LuaResult<Self> {
        let [gpus, request, place, record] = readers.map(|fields| reader(lua, fields));
        let chunk = lua
            .load(include_str!("slurm.lua"))
            .set_name("=softmig slurm.lua");
        let functions: LuaTable = chunk.call(names.to_vec())?;
        Ok(Self {
            read_gpus: gpus?,
            read_request: request?,
            read_place: place?,
            read_record: record?,
            read_what_can_be_read: functions.get("read_what_can_be_read")?,
            write: functions.get("write")?,
            log_user: functions.get("log_user")?,
            log_info: functions.get("log_info")?,
            log_error: functions.get("log_error")?,
            passes_extra_to_prolog: functions.get("passes_extra_to_prolog")?,
        })
    }

    /// Text for the user's terminal.
    pub(crate) fn log_user(&self, text: &str) {
        let lines: Vec<String> = text.lines().map(plain).collect();
        log(&self.log_user, &lines.join("\n"));
    }

    /// A line for slurmctld's log.
    pub(crate) fn log_info(&self, line: &str) {
        log(&self.log_info, &plain(line));
    }

    /// An error for slurmctld's log.
    pub(crate) fn log_error(&self, line: &str) {
        log(&self.log_error, &plain(line));
    }
}

/// A Lua function that returns these fields of a job. One call reads all of them, because each call from Rust, and each
/// text that it passes, takes a protected call of Lua.
fn reader(lua: &Lua, fields: &[&str]) -> LuaResult<LuaFunction> {
    let text = format!("local job = ... return job.{}", fields.join(", job."));
    lua.load(text).set_name("=softmig read").into_function()
}

/// A line for the log. Part of it comes from a user, so it cannot have line breaks of its own, and is no longer than a
/// screen.
fn plain(line: &str) -> String {
    const LONGEST: usize = 1000;
    let plain = |letter: char| match letter {
        ' '..='~' => letter,
        _ => '?',
    };
    line.chars().take(LONGEST).map(plain).collect()
}

fn log(function: &LuaFunction, text: &str) {
    // The decision does not depend on the log.
    drop(function.call::<()>(text));
}
