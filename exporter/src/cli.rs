//! The options of `softmig-exporter`.

use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serves what jobs use of this node's GPUs to Prometheus (docs/usage.md).
///
/// At each scrape it asks softmig-monitor, by the monitor's socket. It needs no rights of its own but to connect there:
/// the group softmig. systemd starts it (softmig-exporter.service).
///
/// Exit status: 1 it could not start; 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "softmig-exporter", version)]
pub struct Cli {
    /// Where to listen: ADDRESS:PORT, or the path of a unix socket
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9836")]
    pub listen: Address,
    /// The certificate chain for TLS, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Answer only clients with a certificate of one of these authorities, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Listen on an address of the network without TLS: all who reach it, or read along, learn the names of users, jobs
    /// and accounts
    #[arg(long, conflicts_with = "tls_cert")]
    pub without_tls: bool,
    /// The monitor's socket
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/var/run/softmig/usage.sock"
    )]
    pub socket: PathBuf,
    /// Also give the figures under another exporter's names; can be given several times
    #[arg(long, value_name = "NAMES")]
    pub view: Vec<View>,
    /// Keep DCGM's job mapping in this folder: a file for each GPU, with a job's number on each line
    #[arg(long, value_name = "FOLDER")]
    pub dcgm_mapping: Option<PathBuf>,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// The names of another exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// `nvidia_gpu_*`, of the exporter that jobstats reads
    Jobstats,
    /// `slurm_job_*_gpu`, of slurm-job-exporter
    SlurmJobExporter,
    /// `ceems_compute_unit_gpu_index_flag`, of CEEMS
    Ceems,
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let wrong = |_| {
            format!(
                "{text} is neither an address with a port, such as 127.0.0.1:9836, nor a path that begins with /"
            )
        };
        text.parse().map(Self::Tcp).map_err(wrong)
    }
}

impl Cli {
    /// Why this is not listened on: others could read along.
    pub fn refusal(&self) -> Option<String> {
        match self.listen {
            Address::Tcp(at)
                if !at.ip().is_loopback() && self.tls_cert.is_none() && !self.without_tls =>
            {
                Some(format!(
                    "--listen {at} can be reached from the network, and names of users, jobs and accounts would pass it \
                     unencrypted: add --tls-cert FILE and --tls-key FILE, or --without-tls if that network may read them"
                ))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &[&str]) -> bool {
        let cli = Cli::try_parse_from([&["softmig-exporter"], options].concat());
        cli.expect("options").refusal().is_some()
    }

    #[test]
    fn only_loopback_and_sockets_go_without_tls_by_default() {
        for loopback in [
            &[][..],
            &["--listen=127.9.9.9:1"],
            &["--listen=[::1]:9836"],
            &["--listen=/run/s"],
        ] {
            assert!(!refused(loopback), "{loopback:?}");
        }
        for network in [
            "--listen=0.0.0.0:9836",
            "--listen=[::]:9836",
            "--listen=192.0.2.1:9836",
            "--listen=[::ffff:127.0.0.1]:1",
        ] {
            assert!(refused(&[network]), "{network}");
            assert!(!refused(&[network, "--without-tls"]));
            assert!(!refused(&[network, "--tls-cert=c", "--tls-key=k"]));
        }
    }

    #[test]
    fn wrong_usage_is_an_error() {
        for wrong in [
            &["--listen=localhost"][..],
            &["--tls-cert=c"],
            &["--tls-cert=c", "--tls-key=k", "--without-tls"],
            &["--view=all"],
        ] {
            let cli = Cli::try_parse_from([&["softmig-exporter"], wrong].concat());
            assert!(cli.is_err(), "{wrong:?}");
        }
    }
}
