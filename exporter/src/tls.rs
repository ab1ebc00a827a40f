//! TLS, with the site's certificates.

use anyhow::Context;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Reads certificate and key. With `clients`, only those have access whose certificate one of these authorities signed.
pub fn acceptor(
    certificate: &Path,
    key: &Path,
    clients: Option<&Path>,
) -> anyhow::Result<TlsAcceptor> {
    let secret =
        PrivateKeyDer::from_pem_file(key).with_context(|| format!("reading {}", key.display()))?;
    let provider = Arc::new(default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(file)? {
                roots.add(authority)?;
            }
            let reading = || format!("reading {}", file.display());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .with_context(reading)?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates(certificate)?;
    let config = config.with_single_cert(chain, secret).with_context(|| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("{key} is not the key of {certificate}")
    })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .with_context(|| format!("reading {}", file.display()))
}
