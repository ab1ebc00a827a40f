//! The behaviour tests: one program, since each link and each start costs, and clusters can be shared.

#[cfg(feature = "cluster")]
mod accounting;
#[cfg(feature = "cluster")]
mod administration;
#[cfg(feature = "cluster")]
mod changes;
#[cfg(feature = "cluster")]
mod check;
#[cfg(feature = "full")]
mod churn;
#[cfg(feature = "cluster")]
mod compute;
mod conf;
#[cfg(feature = "cluster")]
mod config;
#[cfg(feature = "full")]
mod containers;
#[cfg(feature = "cluster")]
mod device_gate;
mod documents;
#[cfg(feature = "cluster")]
mod gates;
#[cfg(feature = "cluster")]
mod harness;
#[cfg(feature = "cluster")]
mod hostile;
#[cfg(feature = "cluster")]
mod identity;
#[cfg(feature = "cluster")]
mod install;
#[cfg(feature = "cluster")]
mod jobs;
#[cfg(feature = "cluster")]
mod lifecycle;
#[cfg(feature = "cluster")]
mod lua;
#[cfg(feature = "cluster")]
mod memory;
#[cfg(feature = "cluster")]
mod monitor;
#[cfg(feature = "cluster")]
mod newcomer;
#[cfg(feature = "cluster")]
mod node;
#[cfg(feature = "packages")]
mod packages;
#[cfg(feature = "cluster")]
mod probe;
#[cfg(feature = "cluster")]
mod programs;
#[cfg(feature = "cluster")]
mod report;
#[cfg(feature = "cluster")]
mod requests;
#[cfg(feature = "cluster")]
mod run;
#[cfg(feature = "cluster")]
mod scripts;
#[cfg(feature = "cluster")]
mod setup;
#[cfg(feature = "cluster")]
mod situations;
#[cfg(feature = "cluster")]
mod smi;
#[cfg(feature = "cluster")]
mod stand;
#[cfg(feature = "cluster")]
mod status;
#[cfg(feature = "cluster")]
mod typed;
#[cfg(feature = "full")]
mod uml;
#[cfg(feature = "cluster")]
mod untouched;
#[cfg(feature = "cluster")]
mod views;
