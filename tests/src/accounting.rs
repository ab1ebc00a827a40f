//! Accounting of a cluster: slurmdbd over MariaDB, and what sacctmgr tells them.
//!
//! Slurm counts GPUs and shards of users only with slurmdbd behind it, so limits, QOS and accounts need this.
//!
//! ```no_run
//! use softmig_tests::{Accounting, Cluster, Slurm};
//!
//! # fn main() -> anyhow::Result<()> {
//! let cluster = Cluster::builder(Slurm::V24_11).accounting(Accounting::new()).start()?;
//! cluster.sacctmgr("add qos student MaxTRESPerUser=gres/shard=2")?;
//! cluster.sacctmgr("modify user alice set qos=student defaultqos=student")?;
//! # Ok(())
//! # }
//! ```

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::gpus::Gpus;
use crate::init::USERS;
use crate::spec::File;

/// Where slurmdbd listens.
const PORT: u16 = 6819;

/// MariaDB's configuration in each Debian root, beside the data that the root was built with.
pub const DATABASE_CONF: &str = "/etc/mysql/softmig.cnf";

/// The socket that clients use by default.
const DATABASE_SOCKET: &str = "/run/mysqld/mysqld.sock";

/// The text of [`DATABASE_CONF`]. Files are small, since each machine copies them. They are not made to last, since
/// nothing has to.
pub const DATABASE: &str = "\
[mariadbd]
user=root
datadir=/var/lib/mysql
socket=/run/mysqld/mysqld.sock
log-error=/cluster/log/mariadbd.log
skip-networking
skip-grant-tables
innodb_data_file_path=ibdata1:10M:autoextend
innodb_autoextend_increment=1
innodb_temp_data_file_path=ibtmp1:5M:autoextend
innodb_log_file_size=4M
innodb_undo_tablespaces=0
innodb_buffer_pool_size=16M
innodb_flush_log_at_trx_commit=0
innodb_doublewrite=0
innodb_use_native_aio=0
innodb_fast_shutdown=2
aria_log_file_size=8M
key_buffer_size=64K
performance_schema=OFF
";

/// A shell script that makes the data of a root, with [`DATABASE`] as its argument: MariaDB's own tables, of which
/// slurmdbd needs the one for stored procedures, and slurmdbd's database. slurmdbd could make its database itself, but
/// MariaDB's client 11.8.9 answers no query on a handle whose first connection failed, as it does without the database.
/// The failure clears the handle's options, and a new limit on columns among them is then 0.
pub const MAKE_DATABASE: &str = "\
conf=/etc/mysql/softmig.cnf sql=/tmp/softmig.sql
printf %s \"$1\" >$conf
mkdir -p /var/lib/mysql
set -- /usr/share/m*/m*_system_tables.sql
printf 'create database slurm;\\ncreate database mysql;\\nuse mysql;\\n' >$sql
cat \"$1\" >>$sql
mariadbd --defaults-file=$conf --skip-log-error --bootstrap <$sql
rm $sql
";

/// How a cluster keeps accounts; see [`crate::Builder::accounting`].
#[derive(Clone, Debug)]
pub struct Accounting {
    tres: Option<Vec<String>>,
    enforce: String,
    accounts: Vec<(String, Vec<String>)>,
}

impl Default for Accounting {
    fn default() -> Accounting {
        Accounting {
            tres: None,
            enforce: "associations,limits,qos".into(),
            accounts: Vec::new(),
        }
    }
}

impl Accounting {
    /// GPUs and shards are counted, in all and by type; limits hold; all users are in the account `science`.
    pub fn new() -> Accounting {
        Accounting::default()
    }

    /// AccountingStorageTRES, in the place of `gres/gpu`, `gres/shard` and both again for each type of GPU. None of
    /// them leaves the line out.
    pub fn tres(mut self, counted: &[&str]) -> Accounting {
        self.tres = Some(counted.iter().map(|&tres| tres.into()).collect());
        self
    }

    /// AccountingStorageEnforce; `""` leaves the line out.
    pub fn enforce(mut self, what: &str) -> Accounting {
        self.enforce = what.into();
        self
    }

    /// An account and its users, in the place of `science` with all users.
    pub fn account(mut self, name: &str, users: &[&str]) -> Accounting {
        let users = users.iter().map(|&user| user.into()).collect();
        self.accounts.push((name.into(), users));
        self
    }

    /// The lines of slurm.conf.
    pub(crate) fn slurm_conf<'a>(&self, gpus: impl Iterator<Item = &'a Gpus>) -> Vec<String> {
        let mut lines = vec![
            "AccountingStorageType=accounting_storage/slurmdbd".to_owned(),
            "AccountingStorageHost=localhost".into(),
            format!("AccountingStoragePort={PORT}"),
            "AccountingStoragePass=/cluster/munge/munge.socket".into(),
            // The QOS alone decides who comes first, then the order of submission.
            "PriorityType=priority/multifactor".into(),
            "PriorityWeightQOS=10000".into(),
        ];
        let tres = self.tres.clone().unwrap_or_else(|| counted(gpus));
        for (key, value) in [
            ("AccountingStorageTRES", tres.join(",")),
            ("AccountingStorageEnforce", self.enforce.clone()),
        ] {
            if !value.is_empty() {
                lines.push(format!("{key}={value}"));
            }
        }
        lines
    }

    /// slurmdbd.conf. slurmdbd refuses it unless root alone owns and reads it.
    pub(crate) fn slurmdbd_conf(debug: &str) -> File {
        let text = format!(
            "\
AuthType=auth/munge
AuthInfo=socket=/cluster/munge/munge.socket
DbdHost=localhost
DbdPort={PORT}
SlurmUser=root
DebugLevel={debug}
LogFile=/cluster/log/slurmdbd.log
PidFile=/cluster/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"
        );
        File {
            mode: 0o600,
            ..File::new("/etc/slurm/slurmdbd.conf", text)
        }
    }

    /// Starts the daemons, and makes the cluster and its accounts known. It has to run before slurmctld,
    /// which asks for them.
    pub(crate) fn start(&self, cluster: &Cluster) -> Result<()> {
        cluster.start_mariadbd()?;
        cluster.start_slurmdbd()?;
        cluster.sacctmgr("add cluster softmig")?;
        let everybody = || USERS.iter().map(|user| user.name.to_owned()).collect();
        let mut accounts = self.accounts.clone();
        if accounts.is_empty() {
            accounts.push(("science".into(), everybody()));
        }
        for (account, users) in accounts {
            cluster.sacctmgr(&format!("add account {account}"))?;
            cluster.sacctmgr(&format!("add user {} account={account}", users.join(",")))?;
        }
        Ok(())
    }
}

/// GPUs and shards, in all and by type.
fn counted<'a>(gpus: impl Iterator<Item = &'a Gpus>) -> Vec<String> {
    let mut tres = vec!["gres/gpu".to_owned(), "gres/shard".into()];
    for kind in gpus.filter(|kind| kind.count > 0) {
        let shards = (kind.shards > 0).then(|| format!("gres/shard:{}", kind.gres_type));
        tres.extend([format!("gres/gpu:{}", kind.gres_type)]);
        tres.extend(shards);
    }
    let mut seen = std::collections::BTreeSet::new();
    tres.retain(|name| seen.insert(name.clone()));
    tres
}

impl Cluster {
    /// Gives sacctmgr a command, in words as one types them, and waits until slurmctld knows what changed.
    ///
    /// The answer is sacctmgr's, without headers, `|` between the columns. A refusal is an error with its text.
    pub fn sacctmgr(&self, words: &str) -> Result<String> {
        let said = self.try_sacctmgr(words)?.ok();
        let said = said.with_context(|| format!("sacctmgr {words}"))?;
        let asks = ["show", "list", "dump"];
        if !asks.iter().any(|verb| words.trim_start().starts_with(verb)) {
            self.settle_accounts()?;
        }
        Ok(said)
    }

    /// Gives sacctmgr a command that may be refused. slurmctld may learn of a change later.
    pub fn try_sacctmgr(&self, words: &str) -> Result<crate::Output> {
        let sacctmgr = ["sacctmgr", "--immediate", "--noheader", "--parsable2"];
        let argv: Vec<&str> = sacctmgr
            .into_iter()
            .chain(words.split_whitespace())
            .collect();
        self.run("root", &argv)
    }

    /// Waits until slurmctld has taken in all that sacctmgr changed so far.
    ///
    /// slurmdbd sends it each change in turn, and slurmctld answers before it acts. So this makes one
    /// more change, to a limit of root's that nothing uses, and waits until slurmctld has it.
    pub fn settle_accounts(&self) -> Result<()> {
        static CHANGES: AtomicU32 = AtomicU32::new(1_000_000);
        if self.slurmctld_pid()?.is_none() {
            return Ok(());
        }
        let limit = CHANGES.fetch_add(1, Ordering::Relaxed);
        let words = format!("modify user root where account=root set MaxSubmitJobs={limit}");
        self.try_sacctmgr(&words)?.ok()?;
        let wanted = format!("MaxSubmitJobs={limit}(");
        let look = ["scontrol", "show", "assoc_mgr", "users=root", "flags=assoc"];
        self.wait_until("slurmctld knows its accounts", || {
            Ok(self.run("root", &look)?.ok()?.contains(&wanted))
        })
    }

    /// Waits until slurmdbd knows where slurmctld is: before that, slurmctld hears of no change.
    pub(crate) fn wait_for_registration(&self) -> Result<()> {
        self.wait_until("slurmctld is registered with slurmdbd", || {
            let port = self.sacctmgr("show cluster format=ControlPort")?;
            Ok(!matches!(port.trim(), "" | "0"))
        })
    }

    /// Starts the database.
    pub fn start_mariadbd(&self) -> Result<()> {
        let script = format!(
            "mkdir -p /run/mysqld && exec setsid --fork mariadbd --defaults-file={DATABASE_CONF}"
        );
        self.run("root", &["sh", "-c", &script])?.ok()?;
        let socket = self.path(DATABASE_SOCKET)?;
        self.wait_for("the database", || {
            let log = self.read("/cluster/log/mariadbd.log")?.unwrap_or_default();
            if log.contains("[ERROR] Aborting") {
                bail!("mariadbd did not come up:\n{log}");
            }
            Ok(socket.exists().then_some(()))
        })
    }

    /// Starts slurmdbd and waits until it takes requests.
    pub fn start_slurmdbd(&self) -> Result<()> {
        self.run("root", &["slurmdbd"])?
            .ok()
            .context("starting slurmdbd")?;
        self.wait_until("slurmdbd listens", || self.listens(PORT))
    }

    /// Stops slurmdbd, as for an upgrade; slurmctld goes on with what it knows.
    pub fn stop_slurmdbd(&self) -> Result<()> {
        let pid = self.alive("/cluster/run/slurmdbd.pid")?;
        let pid = pid.context("slurmdbd does not run")?;
        self.run("root", &["kill", &pid])?.ok()?;
        self.wait_until("slurmdbd is gone", || self.is_gone(&pid))
    }
}
