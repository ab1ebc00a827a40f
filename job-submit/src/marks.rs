//! The tag in a job's `extra` or `comment`, which softmig alone writes.

use crate::{fields, slurm, store};
use mlua::prelude::*;
use softmig_policy::config::choices::TagField;
use softmig_policy::node::tag::{self, Tag};

/// The fields that the prolog looks into.
pub(crate) const FIELDS: [&str; 2] = ["extra", "comment"];

/// The field that carries the tag.
pub(crate) fn field(lua: &Lua, choice: TagField) -> &'static str {
    match choice {
        TagField::Extra => "extra",
        TagField::Comment => "comment",
        TagField::Auto if slurm::passes_extra_to_prolog(lua) => {
            let (parses_extra, complaint) = store::slurm_parses_extra();
            if let Some(complaint) = complaint {
                slurm::log_error(lua, &complaint);
            }
            if parses_extra { "comment" } else { "extra" }
        }
        TagField::Auto => "comment",
    }
}

/// Whether `text` holds anything that looks like a tag.
pub(crate) fn is_marked(text: &str) -> bool {
    tag::tokens(text).next().is_some()
}

/// Leaves `tag` as the job's only tag, whatever the user wrote.
pub(crate) fn put(job: &LuaTable, field: &str, tag: Tag) -> LuaResult<()> {
    strip(job)?;
    let words = fields::text(job, field).unwrap_or_default();
    job.set(field, tag.put(&words))
}

/// Takes away every tag that the user wrote.
pub(crate) fn strip(job: &LuaTable) -> LuaResult<()> {
    for name in FIELDS {
        if let Some(text) = fields::text(job, name)
            && is_marked(&text)
        {
            job.set(name, tag::strip(&text))?;
        }
    }
    Ok(())
}
