//! Raw Kubeflow objects and sbatch scripts, edited by span: every untouched byte stays as it was.
