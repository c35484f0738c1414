//! TLS with the certificates of `ca-file`.
//!
//! A self-signed server certificate is often marked as an authority (`openssl req -x509` does so), and webpki
//! refuses such a certificate from a server. OpenSSL and Go accept a certificate that is itself a trust
//! anchor; so does this verifier: if it is byte for byte the same, valid now, and issued for the name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;
use webpki::{EndEntityCert, KeyUsage};

/// The error of an invalid text of PEM blocks.
type Refused = Box<dyn std::error::Error + Send + Sync>;

/// Returns the TLS settings of a target: its certificates in addition to the system's, and the client's own
/// certificate and key.
pub fn client_config(authorities: &[u8], identity: Option<&[u8]>) -> Result<ClientConfig, Refused> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = CertificateDer::pem_slice_iter(authorities).collect::<Result<Vec<_>, _>>()?;
    if own.is_empty() {
        return Err("it holds no certificate".into());
    }
    let inner = Verifier::new_with_extra_roots(own.iter().cloned(), Arc::clone(&provider))?;
    let verifier = AnchorVerifier { inner, own, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(pem)?)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The system's verifier, and the user's certificates.
#[derive(Debug)]
struct AnchorVerifier {
    inner: Verifier,
    own: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl AnchorVerifier {
    /// Returns whether the server's certificate is one of the user's, and valid now and for this name.
    fn is_anchor(&self, shown: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> bool {
        self.own.iter().any(|own| own == shown) && self.is_valid(shown, name, now) == Some(true)
    }

    fn is_valid(&self, shown: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Option<bool> {
        let anchor = webpki::anchor_from_trusted_cert(shown).ok()?;
        let server = EndEntityCert::try_from(shown).ok()?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let usage = KeyUsage::server_auth();
        match server.verify_for_usage(algorithms, &[anchor], &[], now, usage, None, None) {
            // The validity is checked before the authority mark.
            Ok(_) | Err(webpki::Error::CaUsedAsEndEntity) => {}
            Err(_) => return Some(false),
        }
        Some(match server.verify_is_valid_for_subject_name(name) {
            Ok(()) => true,
            // Without alternative names only the certificate itself can be compared.
            Err(webpki::Error::CertNotValidForName(names)) => names.presented.is_empty(),
            Err(_) => false,
        })
    }
}

impl ServerCertVerifier for AnchorVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(_) if self.is_anchor(end_entity, server_name, now) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the verifier of a target that names the testkit's self-signed certificate, and that
    /// certificate.
    fn verifier() -> (AnchorVerifier, CertificateDer<'static>) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/src/fake_runai/tls/self-signed.pem");
        let own = CertificateDer::from_pem_file(path).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = Verifier::new_with_extra_roots([own.clone()], Arc::clone(&provider)).unwrap();
        (AnchorVerifier { inner, own: vec![own.clone()], provider }, own)
    }

    #[test]
    fn an_anchor_counts_in_its_time_and_for_its_names() {
        let (verifier, own) = verifier();
        let year = Duration::from_secs(365 * 24 * 3600);
        let accepted = |name: &str, years: u32| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let now = UnixTime::since_unix_epoch(year * years);
            verifier.verify_server_cert(&own, &[], &name, &[], now).is_ok()
        };
        assert!(accepted("localhost", 57) && accepted("127.0.0.1", 57));
        assert!(!accepted("tenant.example.test", 57), "another name");
        assert!(!accepted("localhost", 49) && !accepted("localhost", 130), "outside its validity");
    }

    #[test]
    fn a_certificate_that_differs_in_one_byte_is_no_anchor() {
        let (verifier, own) = verifier();
        let mut forged = own.to_vec();
        let last = forged.len() - 1;
        forged[last] ^= 1;
        let name = ServerName::try_from("localhost").unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        assert!(verifier.verify_server_cert(&CertificateDer::from(forged), &[], &name, &[], now).is_err());
    }
}
