//! Limits of users: classes, their members, and users with a table of their own.

use crate::config::class_checks::{ClassContext, check_name};
use crate::config::error::{PolicyError, line_of};
use crate::config::gpu_types::GpuType;
use crate::config::limit::Limit;
use crate::config::name_check;
use crate::config::quota::{ClassTable, DefaultsTable, Members, Quota, QuotaOverride, UserTable};
use crate::config::suggest::meant;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use toml::Spanned;

/// The limits of a group of users, and the QOS in which Slurm enforces them.
#[derive(Clone, Debug)]
pub struct ClassLimits {
    /// The class; `None` for users without a class.
    pub class: Option<String>,
    /// The user, if the table is for one user.
    pub user: Option<String>,
    /// The QOS of their GPU jobs; `None` without a limit that Slurm enforces.
    pub qos: Option<String>,
    /// The limits.
    pub quota: Quota,
    /// A job that has not used its GPU for this time is idle; `None` if jobs are never called idle.
    pub idle_after: Option<Duration>,
}

/// All standings, and the maps that lead from a user to one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    /// In order: users without a class, classes, single users.
    standings: Vec<ClassLimits>,
    of_users: HashMap<String, usize>,
    of_accounts: HashMap<String, usize>,
    of_groups: HashMap<u32, usize>,
    /// Of users that no map above names.
    of_others: usize,
    /// Members as they are written: `softmig config` allows them the QOS.
    members: BTreeMap<String, Members>,
}

/// The QOS of users without a class.
const QOS_OF_OTHERS: &str = "softmig";

pub(crate) struct Tables {
    pub(crate) default_class: Option<Spanned<String>>,
    pub(crate) defaults: Option<Spanned<DefaultsTable>>,
    pub(crate) classes: BTreeMap<String, Spanned<ClassTable>>,
    pub(crate) users: BTreeMap<String, Spanned<UserTable>>,
}

impl Classes {
    /// Checks the tables. `text` is the whole policy.toml.
    pub(crate) fn check(
        tables: Tables,
        gpus: &BTreeMap<String, GpuType>,
        text: &str,
    ) -> Result<Self, PolicyError> {
        let site = ClassContext {
            strict: !tables.classes.is_empty() || !tables.users.is_empty(),
            gpus,
        };
        let (defaults, defaults_line) = match &tables.defaults {
            Some(table) => (table.get_ref().layer(), line_of(text, &table.span())),
            None => (QuotaOverride::default(), None),
        };
        let mut classes = Self::default();
        classes.add(&site, None, None, None, &defaults);
        for (name, table) in &tables.classes {
            let wrong = error_at(text, table.span().start, format!("classes.{name}"));
            check_name(name).map_err(&wrong)?;
            let (table, at) = (table.get_ref(), classes.standings.len());
            let own = table.layer();
            site.check(&own).map_err(&wrong)?;
            let layer = own.over(&defaults);
            site.is_complete(&layer).map_err(&wrong)?;
            ClassContext::is_possible(&layer).map_err(&wrong)?;
            if let Some(qos) = &table.qos {
                check_name(qos).map_err(&wrong)?;
            }
            classes.add(
                &site,
                Some(name),
                None,
                table.qos.as_deref().or(Some(name)),
                &layer,
            );
            let members = table.members.clone().unwrap_or_default();
            classes.add_members(&members, at).map_err(&wrong)?;
            classes.members.insert(name.clone(), members);
        }
        classes.of_others = match &tables.default_class {
            Some(name) => classes.position(name.get_ref()).map_err(|message| {
                PolicyError::new("default_class", line_of(text, &name.span()), message)
            })?,
            None => 0,
        };
        let wrong = |message| PolicyError::new("[defaults]", defaults_line, message);
        site.check(&defaults).map_err(wrong)?;
        ClassContext::is_possible(&defaults).map_err(wrong)?;
        if classes.of_others == 0 {
            site.is_complete(&defaults).map_err(|message| {
                let message = format!("{message}; or name a default_class");
                PolicyError::new(
                    "[defaults], which holds for people in no class",
                    defaults_line,
                    message,
                )
            })?;
        }
        for (name, table) in &tables.users {
            let wrong = error_at(text, table.span().start, format!("users.{name}"));
            let table = table.get_ref();
            classes
                .add_user(&site, name, table, &tables.classes, &defaults)
                .map_err(wrong)?;
        }
        classes.check_qos()?;
        Ok(classes)
    }

    fn add(
        &mut self,
        site: &ClassContext<'_>,
        class: Option<&str>,
        user: Option<&str>,
        qos: Option<&str>,
        layer: &QuotaOverride,
    ) {
        let mig_types = site.gpus.values().filter(|gpu| gpu.is_mig());
        let quota = Quota::from_layer(layer, mig_types.map(GpuType::name));
        let qos = qos.unwrap_or(QOS_OF_OTHERS).to_string();
        self.standings.push(ClassLimits {
            class: class.map(str::to_string),
            user: user.map(str::to_string),
            qos: quota.needs_qos().then_some(qos),
            quota,
            idle_after: layer
                .idle_minutes
                .and_then(|Limit(minutes)| minutes)
                .map(|minutes| Duration::from_secs(60 * minutes)),
        });
    }

    fn add_members(&mut self, members: &Members, at: usize) -> Result<(), String> {
        let standings = &self.standings;
        let twice = |what: &str, name: &dyn std::fmt::Display, other: usize| {
            let class = standings[other].class.as_deref().unwrap_or_default();
            Err(format!("{what} {name} is already in class {class}"))
        };
        for user in &members.users {
            name_check::check("user", user)?;
            if let Some(other) = self.of_users.insert(user.clone(), at) {
                return twice("user", user, other);
            }
        }
        for account in &members.accounts {
            name_check::check("account", account)?;
            // sacctmgr stores them in lower case.
            if let Some(other) = self.of_accounts.insert(account.to_lowercase(), at) {
                return twice("account", account, other);
            }
        }
        for group in &members.groups {
            if let Some(other) = self.of_groups.insert(*group, at) {
                return twice("group", group, other);
            }
        }
        Ok(())
    }

    /// Adds a user with a table of their own. The class is the one that the table names, else the one that names the user,
    /// else that of all others. Accounts and groups do not count, so that one QOS is enough for the user.
    fn add_user(
        &mut self,
        site: &ClassContext<'_>,
        name: &str,
        table: &UserTable,
        classes: &BTreeMap<String, Spanned<ClassTable>>,
        defaults: &QuotaOverride,
    ) -> Result<(), String> {
        name_check::check("user", name)?;
        let listed = self.of_users.get(name).copied();
        let class = match &table.class {
            Some(class) => self.position(class)?,
            None => listed.unwrap_or(self.of_others),
        };
        if let Some(listed) = listed.filter(|&listed| listed != class) {
            let other = self.standings[listed].class.as_deref().unwrap_or_default();
            return Err(format!(
                "class differs from class {other}, which has this user in members"
            ));
        }
        let class_name = self.standings[class].class.clone();
        let own = table.layer();
        site.check(&own)?;
        let at = if own.is_empty() && table.qos.is_none() {
            class
        } else {
            let class_layer = class_name
                .as_ref()
                .and_then(|class| classes.get(class))
                .map(|class| class.get_ref().layer())
                .unwrap_or_default();
            let layer = own.over(&class_layer.over(defaults));
            site.is_complete(&layer)?;
            ClassContext::is_possible(&layer)?;
            let qos = match &table.qos {
                Some(qos) => qos.clone(),
                None => qos_of_user(name),
            };
            check_name(&qos)?;
            self.add(site, class_name.as_deref(), Some(name), Some(&qos), &layer);
            self.standings.len() - 1
        };
        self.of_users.insert(name.to_string(), at);
        Ok(())
    }

    fn position(&self, class: &str) -> Result<usize, String> {
        let found = self.standings.iter().position(|standing| {
            standing.user.is_none() && standing.class.as_deref() == Some(class)
        });
        found.ok_or_else(|| {
            let names = self
                .standings
                .iter()
                .filter_map(|standing| standing.class.as_deref());
            format!("class {class} does not exist; {}", meant(class, names))
        })
    }

    /// One QOS cannot have two sets of limits.
    fn check_qos(&self) -> Result<(), PolicyError> {
        let mut seen = HashMap::new();
        for standing in &self.standings {
            let Some(qos) = &standing.qos else { continue };
            if let Some(other) = seen.insert(qos, standing) {
                return Err(PolicyError::of_file(format!(
                    "QOS {qos} would be used by {} and by {}; give one of them another with qos = \"NAME\"",
                    other.called(),
                    standing.called()
                )));
            }
        }
        Ok(())
    }

    /// The limits of a user. `Err` if they depend on an account that is not known.
    pub(crate) fn standing(
        &self,
        user: Option<&str>,
        account: Result<Option<&str>, Unknown>,
        group: Option<u32>,
    ) -> Result<Option<&ClassLimits>, Unknown> {
        let named = user.and_then(|user| self.of_users.get(user));
        let found = match named {
            Some(named) => *named,
            None => {
                let by_account = match account {
                    _ if self.of_accounts.is_empty() => None,
                    Ok(account) => account.and_then(|account| {
                        let found = self.of_accounts.get(account);
                        found.or_else(|| self.of_accounts.get(&account.to_lowercase()))
                    }),
                    Err(unknown) => return Err(unknown),
                };
                let by_group = || group.and_then(|group| self.of_groups.get(&group));
                by_account
                    .or_else(by_group)
                    .copied()
                    .unwrap_or(self.of_others)
            }
        };
        Ok(self.standings.get(found))
    }

    /// For how long a job's GPU may be unused before the job is idle; `None` if it never is, or if the user's group would
    /// decide and is not known.
    pub(crate) fn idle_after(
        &self,
        user: Option<&str>,
        account: Option<&str>,
        group: Option<u32>,
    ) -> Option<Duration> {
        let standing = self.standing(user, Ok(account), group).ok()??;
        let is_of_others = std::ptr::eq(standing, self.standing_of_others()?);
        let is_in_doubt = is_of_others && group.is_none() && self.names_groups();
        standing.idle_after.filter(|_| !is_in_doubt)
    }

    pub(crate) fn standings(&self) -> &[ClassLimits] {
        &self.standings
    }

    pub(crate) fn standing_of_others(&self) -> Option<&ClassLimits> {
        self.standings.get(self.of_others)
    }

    pub(crate) fn has_groups(&self, class: &str) -> bool {
        let members = self.members.get(class);
        members.is_some_and(|members| !members.groups.is_empty())
    }

    pub(crate) fn members(&self, class: &str) -> (&[String], &[String]) {
        self.members
            .get(class)
            .map_or((&[], &[]), |members| (&members.users, &members.accounts))
    }

    pub(crate) fn is_class(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    pub(crate) fn class_names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// How many users have a table of their own with limits.
    pub(crate) fn user_tables(&self) -> usize {
        let own = self.standings.iter();
        own.filter(|standing| standing.user.is_some()).count()
    }

    pub(crate) fn names_users(&self) -> bool {
        !self.of_users.is_empty()
    }

    pub(crate) fn names_groups(&self) -> bool {
        !self.of_groups.is_empty()
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = &String> {
        self.of_accounts.keys()
    }

    /// True if any class has a QOS.
    pub(crate) fn is_qos(&self, name: &str) -> bool {
        self.standings
            .iter()
            .any(|standing| standing.qos.as_deref() == Some(name))
    }
}

/// A fact is not known here. slurmctld knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

impl ClassLimits {
    /// "class student", "user alice", "people in no class".
    pub fn called(&self) -> String {
        match (&self.user, &self.class) {
            (Some(user), _) => format!("user {user}"),
            (None, Some(class)) => format!("class {class}"),
            (None, None) => "people in no class".to_string(),
        }
    }
}

fn error_at(text: &str, start: usize, table: String) -> impl Fn(String) -> PolicyError {
    let line = line_of(text, &(start..start));
    move |message| PolicyError::new(format_args!("[{table}]"), line, message)
}

/// A user's name may have letters that a QOS cannot have.
fn qos_of_user(name: &str) -> String {
    let known = |letter: char| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() || letter == '-' => letter,
        _ => '_',
    };
    format!("user_{}", name.chars().map(known).collect::<String>())
}
