//! Kubeflow.
