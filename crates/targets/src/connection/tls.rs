//! Encryption by rustls, as strict as the URL asks.

use super::url::{Encryption, Url};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// What a connection to `place` needs to become encrypted; `None` if it must not be.
pub fn configuration(place: &Url) -> Result<Option<Arc<ClientConfig>>, String> {
    if place.encryption == Encryption::Disable || place.is_local_socket() {
        return Ok(None);
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("preparing TLS: {error}"))?;
    let checked = place.encryption >= Encryption::VerifyAuthority || place.authorities.is_some();
    let builder = if place.encryption == Encryption::VerifyFull {
        builder.with_root_certificates(roots(place)?)
    } else {
        let authority = match checked {
            false => None,
            true => {
                let roots = Arc::new(roots(place)?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                Some(verifier.map_err(|error| format!("preparing TLS: {error}"))?)
            }
        };
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Lenient { provider, authority }))
    };
    Ok(Some(Arc::new(builder.with_no_client_auth())))
}

/// The name that the certificate must be for.
pub fn server_name(place: &Url) -> Result<ServerName<'static>, String> {
    ServerName::try_from(place.host().to_string())
        .map_err(|_| format!("\"{}\" is no name that a certificate can be for", place.host()))
}

fn roots(place: &Url) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match &place.authorities {
        Some(path) => {
            let read = |error: &dyn std::fmt::Display| format!("reading {}: {error}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).map_err(|e| read(&e))? {
                roots.add(certificate.map_err(|e| read(&e))?).map_err(|e| read(&e))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err("no certificate of any authority was found, so the server's cannot be checked".into());
    }
    Ok(roots)
}

/// Accepts certificates for whatever host: those that a trusted authority signed, as `verify-ca` asks, or,
/// without one, any: `sslmode=require` asks for encryption, not for proof.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    authority: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // The name is checked last, so everything else was right.
            Err(error)
                if verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)
                    .is_err_and(|wrong_name| wrong_name == error) =>
            {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
