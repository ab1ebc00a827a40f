//! A job as Slurm describes it. Its fields are read once, and those that a decision changed are written once.

use crate::slurm::{NO_VAL, NO_VAL16, Slurm};
use crate::written::{self, Changes};
use mlua::Variadic;
use mlua::prelude::*;
use softmig_policy::Request;

/// The description of a job that comes, or of a change, or the record of a job that Slurm has.
///
/// Texts are as Slurm has them: in a change, the empty text clears a field, and `None` leaves it.
#[derive(Clone, Default)]
pub(crate) struct JobDescription {
    /// The fields that ask for something.
    pub(crate) asked: Request,
    pub(crate) qos: Option<String>,
    pub(crate) extra: Option<String>,
    pub(crate) comment: Option<String>,
    pub(crate) user_id: Option<u32>,
    pub(crate) group_id: Option<u32>,
    pub(crate) account: Option<String>,
    pub(crate) partition: Option<String>,
    pub(crate) reservation: Option<String>,
    pub(crate) exc_nodes: Option<String>,
    /// In minutes; no limit at all is the longest.
    pub(crate) time_limit: Option<u32>,
}

/// Makes the function that reads some fields, and the list of their names in Lua, in the same order.
macro_rules! reader {
    ($(#[$doc:meta])* $read:ident $names:ident {
        asked { $($field:ident = $lua:literal: $kind:ident;)* }
        own { $($own:ident = $own_lua:literal: $own_kind:ident;)* }
    }) => {
        const $names: &[&str] = &[$($lua,)* $($own_lua,)*];

        impl JobDescription {
            $(#[$doc])*
            pub(crate) fn $read(mut self, slurm: &Slurm, job: &LuaTable) -> LuaResult<Self> {
                let mut values = Values::read(slurm, &slurm.$read, job)?;
                $(self.asked.$field = values.$kind();)*
                $(self.$own = values.$own_kind();)*
                Ok(self)
            }
        }
    };
}

/// Makes all that goes through the list of fields. A row `min_cpus = "min_cpus": number;` has the field's name here, its name
/// in Lua, and the kind of its value: a function of `Values` reads it, and one of `written` writes it.
macro_rules! fields {
    ($($(#[$doc:meta])* $read:ident $names:ident {
        asked { $($field:ident = $lua:literal: $kind:ident;)* }
        own { $($own:ident = $own_lua:literal: $own_kind:ident;)* }
    })+) => {
        $(reader! { $(#[$doc])* $read $names {
            asked { $($field = $lua: $kind;)* }
            own { $($own = $own_lua: $own_kind;)* }
        } })+

        /// The names in Lua, in the order in which `write` goes through the fields.
        pub(crate) const NAMES: &[&str] = &[$($($lua,)*)+ $($($own_lua,)*)+];

        impl JobDescription {
            /// The request, in which empty texts are `None`.
            pub(crate) fn request(&self) -> Request {
                let mut request = self.asked.clone();
                $($(request.$field.drop_empty();)*)+
                request
            }

            /// Applies the changes of a decision, from the request `before` it to the one `after` it.
            pub(crate) fn take(&mut self, before: &Request, after: &Request) {
                $($(if before.$field != after.$field {
                    self.asked.$field.take_from(&after.$field);
                })*)+
            }

            /// Writes the fields that differ from `came`.
            pub(crate) fn write(&self, slurm: &Slurm, job: &LuaTable, came: &Self) -> LuaResult<()> {
                let mut changes = Changes::default();
                $($(changes.add(&came.asked.$field, &self.asked.$field, written::$kind);)*)+
                $($(changes.add(&came.$own, &self.$own, written::$own_kind);)*)+
                match changes.list.is_empty() {
                    true => Ok(()),
                    false => slurm.write.call((job, Variadic::from(changes.list))),
                }
            }
        }
    };
}

fields! {
    /// Only the fields that can mean GPUs, the QOS, and those that may hold the tag. Most jobs need no more than these.
    read_gpus GPUS {
        asked {
            tres_per_node = "tres_per_node": text;
            tres_per_job = "tres_per_job": text;
            tres_per_socket = "tres_per_socket": text;
            tres_per_task = "tres_per_task": text;
            ntasks_per_tres = "ntasks_per_tres": short;
            exclusive = "shared": exclusive;
        }
        own {
            qos = "qos": text;
            extra = "extra": text;
            comment = "comment": text;
        }
    }
    /// Adds the other fields of the request.
    read_request REQUEST {
        asked {
            tres_bind = "tres_bind": text;
            tres_freq = "tres_freq": text;
            cpus_per_tres = "cpus_per_tres": text;
            mem_per_tres = "mem_per_tres": text;
            min_nodes = "min_nodes": number;
            max_nodes = "max_nodes": number;
            num_tasks = "num_tasks": number;
            ntasks_per_node = "ntasks_per_node": short;
            cpus_per_task = "cpus_per_task": short;
            min_cpus = "min_cpus": number;
            min_cpus_per_node = "pn_min_cpus": short;
            sockets_per_node = "sockets_per_node": short;
            memory_per_node = "min_mem_per_node": memory;
            memory_per_cpu = "min_mem_per_cpu": memory;
        }
        own {}
    }
    /// Adds the owner, and the place where the job will run.
    read_place PLACE {
        asked {}
        own {
            user_id = "user_id": id;
            group_id = "group_id": id;
            account = "account": text;
            partition = "partition": text;
            reservation = "reservation": text;
            exc_nodes = "exc_nodes": text;
            time_limit = "time_limit": time_limit;
        }
    }
}

reader! {
    /// Reads the record of a job that Slurm has already, but not its request. The record has other names for some fields.
    read_record RECORD {
        asked {}
        own {
            extra = "extra": text;
            comment = "comment": text;
            qos = "qos": text;
            user_id = "user_id": id;
            group_id = "group_id": id;
            account = "account": text;
            partition = "partition": text;
            reservation = "resv_name": text;
            time_limit = "time_limit": time_limit;
        }
    }
}

/// The fields of each reader.
pub(crate) const READERS: [&[&str]; 4] = [GPUS, REQUEST, PLACE, RECORD];

impl JobDescription {
    /// True if it has a field for GPUs, even one that clears a request.
    pub(crate) fn names_gpus(&self) -> bool {
        let asked = &self.asked;
        asked.tres_per_node.is_some()
            || asked.tres_per_job.is_some()
            || asked.tres_per_socket.is_some()
            || asked.tres_per_task.is_some()
    }

    /// Excludes more nodes than the user named.
    pub(crate) fn keep_off(&mut self, nodes: &str) {
        self.exc_nodes = match self.exc_nodes.as_deref() {
            None | Some("") => Some(nodes.to_string()),
            Some(own) => Some(format!("{own},{nodes}")),
        };
    }
}

/// A field of a request.
trait Field {
    fn drop_empty(&mut self) {}

    /// Takes the value that a decision changed.
    fn take_from(&mut self, after: &Self);
}

impl Field for Option<String> {
    fn drop_empty(&mut self) {
        self.take_if(|text| text.is_empty());
    }

    /// The empty text also clears a field that the job has and the change does not name.
    fn take_from(&mut self, after: &Self) {
        *self = Some(after.clone().unwrap_or_default());
    }
}

impl Field for Option<u32> {
    fn take_from(&mut self, after: &Self) {
        *self = *after;
    }
}

impl Field for Option<u64> {
    fn take_from(&mut self, after: &Self) {
        *self = after.or(*self);
    }
}

impl Field for bool {
    fn take_from(&mut self, after: &Self) {
        *self = *after;
    }
}

/// A user's or group's number; 0 is root's.
pub(crate) fn id(value: &LuaValue) -> Option<u32> {
    let id = float(value)?;
    (0.0..f64::from(NO_VAL)).contains(&id).then_some(id as u32)
}

/// A Lua without integers has floats, and Lua 5.4 hands all of Slurm's numbers over as floats.
fn float(value: &LuaValue) -> Option<f64> {
    match *value {
        LuaValue::Integer(number) => Some(number as f64),
        LuaValue::Number(number) => Some(number),
        _ => None,
    }
}

/// Fields in the order in which they are read. A value of another type counts as not set.
struct Values(<LuaMultiValue as IntoIterator>::IntoIter);

impl Values {
    fn read(slurm: &Slurm, fields: &LuaFunction, job: &LuaTable) -> LuaResult<Self> {
        let values: LuaResult<LuaMultiValue> = fields.call(job);
        let values = values.or_else(|_| slurm.read_what_can_be_read.call((fields, job)))?;
        Ok(Self(values.into_iter()))
    }

    /// Text that is not UTF-8 cannot be a request; it is only searched for the tag.
    fn text(&mut self) -> Option<String> {
        match self.0.next()? {
            LuaValue::String(text) => Some(text.to_string_lossy()),
            _ => None,
        }
    }

    fn float(&mut self) -> Option<f64> {
        float(&self.0.next()?)
    }

    /// JOB_SHARED_NONE; unset is NO_VAL16.
    fn exclusive(&mut self) -> bool {
        self.float() == Some(0.0)
    }

    fn id(&mut self) -> Option<u32> {
        id(&self.0.next()?)
    }

    fn number(&mut self) -> Option<u32> {
        let value = self.float()?;
        (1.0..f64::from(NO_VAL))
            .contains(&value)
            .then_some(value as u32)
    }

    /// A number that is 16 bits wide in Slurm.
    fn short(&mut self) -> Option<u32> {
        self.number().filter(|&value| value < NO_VAL16)
    }

    fn time_limit(&mut self) -> Option<u32> {
        let value = self.float()?;
        let unset = value < 1.0 || value == f64::from(NO_VAL);
        (!unset).then_some(value as u32)
    }

    /// MiB of memory; 0 is all that a node has.
    fn memory(&mut self) -> Option<u64> {
        // Beyond what any node has are Slurm's marks for "not set".
        const MOST: f64 = (1u64 << 50) as f64;
        let value = self.float()?;
        (0.0..MOST).contains(&value).then_some(value as u64)
    }
}
