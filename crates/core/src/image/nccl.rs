//! The NCCL of an image according to its name, and variables that this NCCL does not read.

use std::sync::LazyLock;

use regex::Regex;

use crate::Finding;
use crate::env_names::{self, nccl_before};

/// An NCCL version, and its certainty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclVersion {
    /// The version (`2.22.3`).
    pub version: String,
    /// Whether the version may be lower: it is the newest that was released when the image was made.
    pub at_most: bool,
}

impl NcclVersion {
    /// Reads it from the name of an image or an environment module: a version in it (`…-nccl2.26.2-1-…`, `nccl/2.18.3`), the
    /// month of one of NVIDIA's framework images (`nvcr.io/nvidia/pytorch:24.05-py3`), or a release of PyTorch's.
    ///
    /// ```
    /// use weftrun_core::image::NcclVersion;
    /// let of = |image| NcclVersion::of_image(image).map(|nccl| (nccl.version, nccl.at_most));
    /// assert_eq!(of("ghcr.io/coreweave/nccl-tests:12.8.1-nccl2.26.2-1-0708"), Some(("2.26.2".into(), false)));
    /// assert_eq!(of("nvcr.io/nvidia/pytorch:24.05-py3"), Some(("2.22.3".into(), true)));
    /// assert_eq!(of("pytorch/pytorch:2.9.1"), None);
    /// ```
    pub fn of_image(image: &str) -> Option<Self> {
        static TAG: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"(?i)nccl[-_/]?v?(2\.[0-9]{1,2}\.[0-9]{1,2})(?:[^0-9.]|$)").ok());
        static MONTH: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(
                r"nvidia[/+](?:pytorch|tensorflow|jax|mxnet|paddlepaddle|nemo)[:+](\d\d)\.(0[1-9]|1[0-2])\b",
            )
            .ok()
        });
        // PyTorch's own builds (https://pypi.org/project/torch/2.4.1/, its requirement nvidia-nccl-cu12).
        static UP_TO_TORCH_2_4: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"(?:^|[/+#])pytorch[/+]pytorch[:+](?:1|2\.[0-4])\.\d").ok());
        if let Some(found) = TAG.as_ref().and_then(|tag| tag.captures(image)) {
            return Some(Self { version: found[1].to_owned(), at_most: false });
        }
        if UP_TO_TORCH_2_4.as_ref().is_some_and(|old| old.is_match(image)) {
            return Some(Self { version: "2.20.5".to_owned(), at_most: true });
        }
        let found = MONTH.as_ref().and_then(|month| month.captures(image))?;
        let (year, month): (u32, u32) = (found[1].parse().ok()?, found[2].parse().ok()?);
        // A month later: an image may contain a release a few days before its tag is published.
        let behind = year * 12 + month - 1 + 2;
        let day = format!("20{:02}-{:02}-01", behind / 12, behind % 12 + 1);
        Some(Self { version: nccl_before(&day)?.to_owned(), at_most: true })
    }

    /// Returns whether this NCCL is older than a release (`2.21`).
    pub fn is_before(&self, release: &str) -> bool {
        super::numbers(&self.version) < super::numbers(release)
    }

    /// Returns a finding if this NCCL does not read a variable that another release reads.
    pub fn unread(&self, name: &str, shown: &str) -> Option<Finding> {
        let Self { version, at_most } = self;
        let known = env_names::find(name)?;
        let has = if *at_most { format!("{version} or older") } else { version.clone() };
        if known.is_newer_than(version) {
            let first = known.first.unwrap_or_default();
            let text =
                format!("`{name}` is read since NCCL {first}, but {shown} has NCCL {has}: it has no effect");
            return Some(
                Finding::warning("L-NAME-VERSION", text)
                    .fix(format!("use an image with NCCL {first} or later, or remove {name}")),
            );
        }
        let last = known.gone_in(version).filter(|_| !at_most)?;
        let text =
            format!("`{name}` is read up to NCCL {last}, but {shown} has NCCL {has}: it has no effect");
        Some(Finding::warning("L-NAME-VERSION", text).fix(format!("remove {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(image: &str) -> Option<(String, bool)> {
        NcclVersion::of_image(image).map(|nccl| (nccl.version, nccl.at_most))
    }

    /// The versions in NVIDIA's release notes of these images are 2.11.4, 2.12.9, 2.21.5 and 2.7.8: never above.
    #[test]
    fn the_month_of_an_image_bounds_its_nccl() {
        assert_eq!(of("nvcr.io/nvidia/tensorflow:21.10-tf2-py3"), Some(("2.11.4".into(), true)));
        assert_eq!(of("nvcr.io#nvidia/mxnet:22.03-py3"), Some(("2.12.10".into(), true)));
        assert_eq!(of("/images/nvidia+pytorch+24.05-py3.sqsh"), Some(("2.22.3".into(), true)));
        assert_eq!(of("nvcr.io/nvidia/pytorch:20.10-py3"), Some(("2.8.3".into(), true)));
        assert_eq!(of("nvcr.io/nvidia/pytorch:99.99-py3"), None);
        assert_eq!(of("nvcr.io/nvidia/pytorch:24.13-py3"), None);
        assert_eq!(of("nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04"), None);
    }

    #[test]
    fn a_version_in_the_name_counts_exactly() {
        let efa =
            "public.ecr.aws/hpc-cloud/nccl-tests:cuda12.8.1-efa1.42.0-ofiv1.16.0-ncclv2.27.5-1-testsv2.16.4";
        assert_eq!(of(efa), Some(("2.27.5".into(), false)));
        assert_eq!(of("example/nccl-tests:2.27.5"), None);
        assert_eq!(of("nccl/2.18.3-CUDA-12.1.1"), Some(("2.18.3".into(), false)));
        let nccl = NcclVersion::of_image(efa).unwrap();
        assert!(nccl.unread("NCCL_WIN_ENABLE", "x").is_none());
        assert!(
            nccl.unread("NCCL_SOCKET_POLL_TIMEOUT_MSEC", "x").unwrap().message.contains("since NCCL 2.28")
        );
        assert!(nccl.unread("NCCL_WORK_FIFO_DEPTH", "x").unwrap().message.contains("up to NCCL 2.21.5"));
        assert!(nccl.unread("NCCL_FANCY", "x").is_none());
    }

    #[test]
    fn images_of_old_releases_of_pytorch_have_an_old_nccl() {
        for image in [
            "pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime",
            "docker.io#pytorch/pytorch:2.4.1",
            "pytorch/pytorch:1.13.1",
        ] {
            assert_eq!(of(image), Some(("2.20.5".into(), true)), "{image}");
        }
        for image in
            ["pytorch/pytorch:2.5.1", "pytorch/pytorch:2.10.0", "pytorch/pytorch", "mypytorch/pytorch:2.1.0"]
        {
            assert_eq!(of(image), None, "{image}");
        }
    }

    #[test]
    fn a_bound_judges_only_what_is_newer() {
        let bound = NcclVersion::of_image("nvcr.io/nvidia/pytorch:24.05-py3").unwrap();
        assert!(bound.unread("NCCL_RAS_ENABLE", "x").is_some());
        assert!(bound.unread("NCCL_WORK_FIFO_DEPTH", "x").is_none());
        assert!(bound.unread("NCCL_IB_HCA", "x").is_none());
    }
}
