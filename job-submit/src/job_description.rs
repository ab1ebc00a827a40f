//! A job as Slurm describes it, read once, and written once where a decision changed it.

use crate::slurm::Slurm;
use mlua::prelude::*;
use softmig_policy::Request;

/// Slurm's "not set", in the widths that job descriptions have.
const NO_VAL16: u32 = 0xfffe;
const NO_VAL: u32 = 0xffff_fffe;

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

impl JobDescription {
    /// Only the fields that can mean GPUs, the QOS, and those that may hold the tag. Most jobs are through with that.
    pub(crate) fn read_gpus(slurm: &Slurm, job: &LuaTable) -> LuaResult<Self> {
        let mut values = Values::read(slurm, &slurm.read_gpus, job)?;
        Ok(Self {
            asked: Request {
                tres_per_node: values.text(),
                tres_per_job: values.text(),
                tres_per_socket: values.text(),
                tres_per_task: values.text(),
                ntasks_per_tres: values.short(),
                // JOB_SHARED_NONE; unset is NO_VAL16.
                exclusive: values.float() == Some(0.0),
                ..Request::default()
            },
            qos: values.text(),
            extra: values.text(),
            comment: values.text(),
            ..Self::default()
        })
    }

    /// Adds the other fields of the request.
    pub(crate) fn read_request(&mut self, slurm: &Slurm, job: &LuaTable) -> LuaResult<()> {
        let mut values = Values::read(slurm, &slurm.read_request, job)?;
        let asked = &mut self.asked;
        asked.tres_bind = values.text();
        asked.tres_freq = values.text();
        asked.cpus_per_tres = values.text();
        asked.mem_per_tres = values.text();
        asked.min_nodes = values.number();
        asked.max_nodes = values.number();
        asked.num_tasks = values.number();
        asked.ntasks_per_node = values.short();
        asked.cpus_per_task = values.short();
        asked.min_cpus = values.number();
        asked.min_cpus_per_node = values.short();
        asked.sockets_per_node = values.short();
        asked.memory_per_node = values.memory();
        asked.memory_per_cpu = values.memory();
        Ok(())
    }

    /// Adds the owner, and the place where the job will run.
    pub(crate) fn read_place(&mut self, slurm: &Slurm, job: &LuaTable) -> LuaResult<()> {
        let mut values = Values::read(slurm, &slurm.read_place, job)?;
        self.user_id = values.id();
        self.group_id = values.id();
        self.account = values.text();
        self.partition = values.text();
        self.reservation = values.text();
        self.exc_nodes = values.text();
        self.time_limit = values.time_limit();
        Ok(())
    }

    /// Reads the record of a job, but not its request.
    pub(crate) fn read_record(slurm: &Slurm, record: &LuaTable) -> LuaResult<Self> {
        let mut values = Values::read(slurm, &slurm.read_record, record)?;
        Ok(Self {
            extra: values.text(),
            comment: values.text(),
            qos: values.text(),
            user_id: values.id(),
            group_id: values.id(),
            account: values.text(),
            partition: values.text(),
            reservation: values.text(),
            time_limit: values.time_limit(),
            ..Self::default()
        })
    }

    /// The request, in which empty texts are `None`.
    pub(crate) fn request(&self) -> Request {
        let field = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let asked = &self.asked;
        Request {
            tres_per_node: field(&asked.tres_per_node),
            tres_per_job: field(&asked.tres_per_job),
            tres_per_socket: field(&asked.tres_per_socket),
            tres_per_task: field(&asked.tres_per_task),
            tres_bind: field(&asked.tres_bind),
            tres_freq: field(&asked.tres_freq),
            cpus_per_tres: field(&asked.cpus_per_tres),
            mem_per_tres: field(&asked.mem_per_tres),
            ..*asked
        }
    }

    /// True if it has a field for GPUs, even one that clears a request.
    pub(crate) fn names_gpus(&self) -> bool {
        let asked = &self.asked;
        asked.tres_per_node.is_some()
            || asked.tres_per_job.is_some()
            || asked.tres_per_socket.is_some()
            || asked.tres_per_task.is_some()
    }

    /// Applies the changes of a decision, from the request `before` it to the one `after` it.
    pub(crate) fn take(&mut self, before: &Request, after: &Request) {
        let asked = &mut self.asked;
        let text = |field: &mut Option<String>, before: &Option<String>, after: &Option<String>| {
            if before != after {
                // The empty text also clears a field that the job has and the change does not name.
                *field = Some(after.clone().unwrap_or_default());
            }
        };
        text(
            &mut asked.tres_per_node,
            &before.tres_per_node,
            &after.tres_per_node,
        );
        text(
            &mut asked.tres_per_job,
            &before.tres_per_job,
            &after.tres_per_job,
        );
        text(
            &mut asked.tres_per_socket,
            &before.tres_per_socket,
            &after.tres_per_socket,
        );
        text(
            &mut asked.tres_per_task,
            &before.tres_per_task,
            &after.tres_per_task,
        );
        text(&mut asked.tres_bind, &before.tres_bind, &after.tres_bind);
        text(
            &mut asked.cpus_per_tres,
            &before.cpus_per_tres,
            &after.cpus_per_tres,
        );
        text(
            &mut asked.mem_per_tres,
            &before.mem_per_tres,
            &after.mem_per_tres,
        );
        let number = |field: &mut Option<u32>, before, after| {
            if before != after {
                *field = after;
            }
        };
        number(
            &mut asked.ntasks_per_tres,
            before.ntasks_per_tres,
            after.ntasks_per_tres,
        );
        number(&mut asked.min_nodes, before.min_nodes, after.min_nodes);
        number(&mut asked.max_nodes, before.max_nodes, after.max_nodes);
        number(&mut asked.num_tasks, before.num_tasks, after.num_tasks);
        number(
            &mut asked.cpus_per_task,
            before.cpus_per_task,
            after.cpus_per_task,
        );
        number(&mut asked.min_cpus, before.min_cpus, after.min_cpus);
        if after.memory_per_node.is_some() && before.memory_per_node != after.memory_per_node {
            asked.memory_per_node = after.memory_per_node;
        }
    }

    /// Excludes more nodes than the user named.
    pub(crate) fn keep_off(&mut self, nodes: &str) {
        self.exc_nodes = match self.exc_nodes.as_deref() {
            None | Some("") => Some(nodes.to_string()),
            Some(own) => Some(format!("{own},{nodes}")),
        };
    }

    /// Writes the fields that differ from `came`.
    pub(crate) fn write(&self, slurm: &Slurm, job: &LuaTable, came: &Self) -> LuaResult<()> {
        let (old, new) = (&came.asked, &self.asked);
        slurm.write.call((
            job,
            text(&old.tres_per_node, &new.tres_per_node),
            text(&old.tres_per_job, &new.tres_per_job),
            text(&old.tres_per_socket, &new.tres_per_socket),
            text(&old.tres_per_task, &new.tres_per_task),
            text(&old.tres_bind, &new.tres_bind),
            text(&old.cpus_per_tres, &new.cpus_per_tres),
            text(&old.mem_per_tres, &new.mem_per_tres),
            number(old.ntasks_per_tres, new.ntasks_per_tres, NO_VAL16),
            number(old.min_nodes, new.min_nodes, NO_VAL),
            number(old.max_nodes, new.max_nodes, NO_VAL),
            number(old.num_tasks, new.num_tasks, NO_VAL),
            number(old.cpus_per_task, new.cpus_per_task, NO_VAL16),
            number(old.min_cpus, new.min_cpus, NO_VAL),
            new.memory_per_node
                .filter(|_| new.memory_per_node != old.memory_per_node),
            (
                text(&came.qos, &self.qos),
                text(&came.partition, &self.partition),
                text(&came.exc_nodes, &self.exc_nodes),
                text(&came.extra, &self.extra),
                text(&came.comment, &self.comment),
            ),
        ))
    }
}

/// A text to write. The empty one clears a field.
fn text<'a>(came: &Option<String>, now: &'a Option<String>) -> Option<&'a str> {
    now.as_deref().filter(|_| came != now)
}

/// A number to write.
fn number(came: Option<u32>, now: Option<u32>, unset: u32) -> Option<u32> {
    (came != now).then(|| now.unwrap_or(unset))
}

/// A user's or group's number, of which 0 is one.
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

/// Fields in the order in which slurm.lua returns them. A value of another type counts as not set.
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
