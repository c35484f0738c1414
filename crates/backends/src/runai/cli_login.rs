//! The login that the official command line stores after `runai login`: `~/.runai/authentication.json` and
//! `config.json`, as the vendor's own Python client reads them (runapy 1.224, `CLIv2Config`).

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;
use weftrun_core::backend::TargetConfig;
use weftrun_core::secret::Secret;
use weftrun_core::{Error, ErrorKind, Result};

use crate::files;

/// The folder of the official command line.
#[derive(Clone, Debug)]
pub struct Official(PathBuf);

impl Official {
    /// Returns the user's folder, if there is one.
    pub fn of(target: &TargetConfig) -> Option<Self> {
        let folder = files::absolute(target.env.get("HOME"))?.join(".runai");
        folder.is_dir().then_some(Self(folder))
    }

    /// Returns whether a login exists.
    pub fn logged_in(&self) -> bool {
        self.0.join("authentication.json").is_file()
    }

    /// Reads the token each time, since the command line renews it.
    pub fn token(&self) -> Result<Secret> {
        let path = self.0.join("authentication.json");
        let bad = |why: String| {
            Error::new(
                ErrorKind::Credentials,
                format!("the login in {} cannot be used: {why}", path.display()),
            )
            .hint("`runai login` makes a new one")
        };
        let text = files::read_text(&path, files::MAX_CREDENTIAL).map_err(|error| bad(error.to_string()))?;
        let value: Value = serde_json::from_str(&text).map_err(|_| bad("it is not JSON".to_owned()))?;
        let encoded = value.get("accessToken").and_then(Value::as_str).filter(|token| !token.is_empty());
        let encoded = encoded.ok_or_else(|| bad("it holds no `accessToken`".to_owned()))?;
        Ok(Secret::new(decoded(encoded)))
    }

    /// Returns the control plane's URL.
    pub fn url(&self) -> Option<String> {
        self.setting("/control_plane/url")
    }

    /// Returns the cluster's id.
    pub fn cluster(&self) -> Option<String> {
        self.setting("/cluster/uuid")
    }

    fn setting(&self, pointer: &str) -> Option<String> {
        let text = files::read_text(&self.0.join("config.json"), files::MAX_CREDENTIAL).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        value.pointer(pointer)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    }
}

/// Decodes the token, which is a JWT encoded once more in base64; any other text is returned unchanged.
fn decoded(encoded: &str) -> String {
    let bare = encoded.trim().trim_end_matches('=');
    let bytes = URL_SAFE_NO_PAD.decode(bare).or_else(|_| STANDARD_NO_PAD.decode(bare));
    let token = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    token.filter(|token| token.matches('.').count() == 2).unwrap_or_else(|| encoded.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_read_as_the_official_client_does() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".runai");
        std::fs::create_dir(&folder).unwrap();
        let encoded = URL_SAFE_NO_PAD.encode("head.body.tail");
        std::fs::write(folder.join("authentication.json"), format!("{{\"accessToken\":\"{encoded}==\"}}"))
            .unwrap();
        let config = r#"{"cluster":{"uuid":"71f6"},"control_plane":{"url":"https://runai.example.test"}}"#;
        std::fs::write(folder.join("config.json"), config).unwrap();
        let mut target = TargetConfig::new("t", "runai", home.path());
        assert!(Official::of(&target).is_none(), "without HOME there is nothing to look for");
        target.env.insert("HOME".into(), home.path().display().to_string());
        let official = Official::of(&target).unwrap();
        assert_eq!(official.token().unwrap().expose(), "head.body.tail");
        assert_eq!(official.url().as_deref(), Some("https://runai.example.test"));
        assert_eq!(official.cluster().as_deref(), Some("71f6"));
        std::fs::write(folder.join("authentication.json"), "{}").unwrap();
        assert_eq!(official.token().unwrap_err().kind(), ErrorKind::Credentials);
    }
}
