//! softmig-exporter: serves the usage of a node's GPUs to Prometheus.

#![forbid(unsafe_code)]

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use softmig_exporter::cli::Cli;
use softmig_exporter::mapping::{self, Mapping};
use softmig_exporter::server::Server;
use softmig_exporter::source::Source;
use softmig_exporter::{monitor, tls};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(refusal) = cli.refusal() {
        Cli::command()
            .error(ErrorKind::ArgumentConflict, refusal)
            .exit();
    }
    match serve(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softmig-exporter: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until a signal ends it.
fn serve(cli: Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    runtime.block_on(async {
        let tls = match (&cli.tls_cert, &cli.tls_key) {
            (Some(certificate), Some(key)) => Some(tls::acceptor(
                certificate,
                key,
                cli.tls_client_ca.as_deref(),
            )?),
            _ => None,
        };
        if let Some(folder) = &cli.dcgm_mapping {
            tokio::spawn(keep(Mapping::new(folder)?, cli.socket.clone()));
        }
        let server = Server::start(&cli.listen, tls).await?;
        eprintln!("serving {}", server.url);
        server
            .run(Arc::new(Source::new(cli.socket, cli.view)))
            .await;
        Ok(())
    })
}

/// Keeps DCGM's job mapping.
async fn keep(mut mapping: Mapping, socket: PathBuf) {
    let mut said = None;
    loop {
        let node = monitor::ask(&socket).await.ok();
        let trouble = mapping
            .update(node.as_ref())
            .err()
            .map(|error| format!("{error:#}"));
        if let (Some(trouble), true) = (&trouble, trouble != said) {
            eprintln!("DCGM's job mapping: {trouble}");
        }
        said = trouble;
        tokio::time::sleep(mapping::INTERVAL).await;
    }
}
