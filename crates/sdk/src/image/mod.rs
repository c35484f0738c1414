//! Reads the contents of an image from its registry: the manifest, the configuration, and every layer as a
//! stream. No container engine is used, nothing is run, and only the findings are stored.

mod auth;
mod layer;
mod reference;
mod registry;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use weftrun_core::image::{ImageFacts, ImageLayer, over};
use weftrun_core::{Error, ErrorKind, Result};

use crate::Config;
use crate::files::write_private;
use reference::Reference;
use registry::{Registry, is_digest};

/// Number of layers read concurrently.
const AT_ONCE: usize = 3;
/// Largest number of layers; container engines allow 127.
const MOST_LAYERS: usize = 256;
/// Largest compressed layer.
const LARGEST_LAYER: u64 = 24 << 30;
/// Largest cache entry of a layer.
const LARGEST_NOTE: u64 = 8 << 20;

/// A layer as the manifest names it.
#[derive(Clone, Debug)]
struct Blob {
    digest: String,
    size: u64,
    /// Whether it is stored outside the registry.
    foreign: bool,
}

/// Reads an image. Layers that were read before are found by their digests; `say` is called with what is
/// still to be read.
pub(crate) async fn read(config: &Config, image: &str, say: &(dyn Fn(String) + Sync)) -> Result<ImageFacts> {
    let reference = Reference::parse(image)?;
    let registry = Registry::new(&reference, config)?;
    let (digest, manifest) = registry.manifest().await?;
    let configured = registry.json(&text(&manifest["config"]["digest"])).await?;
    let blobs = blobs(&manifest)?;
    let folder = config.state_dir.join("images");
    let known = |blob: &&Blob| note(&folder, &blob.digest).is_file();
    let missing: Vec<&Blob> = blobs.iter().filter(|blob| !known(blob)).collect();
    if !missing.is_empty() {
        let size: u64 = missing.iter().map(|blob| blob.size).sum();
        say(format!(
            "reading {} of the {} layers of {image}, {} MB; what is found in them is kept",
            missing.len(),
            blobs.len(),
            size.div_ceil(1 << 20)
        ));
    }
    let read: Vec<_> = stream::iter(&blobs)
        .map(|blob| one(&registry, &folder, blob))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let (mut layers, mut left_out) = (Vec::new(), Vec::new());
    for layer in read {
        match layer {
            Ok(layer) => {
                if layer.cut {
                    left_out.push("a layer names more libraries than are kept; some are left out".to_owned());
                }
                layers.push(layer);
            }
            Err(why) => left_out.push(why),
        }
    }
    let mut facts = ImageFacts::default();
    facts.reference = image.to_owned();
    facts.digest = digest;
    facts.architecture = text(&configured["architecture"]);
    facts.library_path = variable(&configured, "LD_LIBRARY_PATH");
    facts.found = over(&layers);
    facts.left_out = left_out;
    Ok(facts)
}

/// Returns one layer, cached or read; or why it is omitted.
async fn one(
    registry: &Registry,
    folder: &Path,
    blob: &Blob,
) -> Result<std::result::Result<ImageLayer, String>> {
    let note = note(folder, &blob.digest);
    if let Ok(Some(text)) = crate::files::read_text(&note, LARGEST_NOTE)
        && let Ok(layer) = serde_json::from_str(&text)
    {
        return Ok(Ok(layer));
    }
    if blob.foreign {
        return Ok(Err(format!("the layer {} is not in the registry", blob.digest)));
    }
    if blob.size > LARGEST_LAYER {
        let size = blob.size >> 30;
        return Ok(Err(format!(
            "the layer {} is of {size} GB, and {} are read",
            blob.digest,
            LARGEST_LAYER >> 30
        )));
    }
    let found = match layer::read(registry.blob(&blob.digest).await?, &blob.digest, blob.size).await? {
        Ok(layer) => layer,
        Err(why) => return Ok(Err(format!("the layer {}: {why}", blob.digest))),
    };
    // If it cannot be cached, it is read again next time.
    if let Ok(text) = serde_json::to_vec(&found) {
        let _ = write_private(&note, &text);
    }
    Ok(Ok(found))
}

fn note(folder: &Path, digest: &str) -> PathBuf {
    // The digest was validated: it contains no slash.
    folder.join(format!("{}-v1.json", digest.replace(':', "-")))
}

fn blobs(manifest: &Value) -> Result<Vec<Blob>> {
    let layers = manifest["layers"].as_array().map_or(&[][..], Vec::as_slice);
    let blob = |layer: &Value| Blob {
        digest: text(&layer["digest"]),
        size: layer["size"].as_u64().unwrap_or(0),
        foreign: layer["urls"].as_array().is_some_and(|urls| !urls.is_empty()),
    };
    let blobs: Vec<Blob> = layers.iter().map(blob).collect();
    if blobs.is_empty() || blobs.len() > MOST_LAYERS || !blobs.iter().all(|blob| is_digest(&blob.digest)) {
        let message =
            format!("the registry's manifest names {} layers in a way that is not known", blobs.len());
        return Err(
            Error::new(ErrorKind::Protocol, message).hint("the image is of an old or a foreign format")
        );
    }
    Ok(blobs)
}

/// Returns a variable of the image's environment.
fn variable(configured: &Value, name: &str) -> Option<String> {
    let env = configured["config"]["Env"].as_array()?;
    let value = env.iter().filter_map(Value::as_str).filter_map(|line| line.split_once('='));
    value
        .filter(|(key, value)| *key == name && !value.is_empty())
        .map(|(_, value)| value.to_owned())
        .next_back()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
