//! Reasons why a fabric was not applied.

use super::Code;

pub(super) const SKIPS: &[Code] = &[
    Code {
        code: "already-there",
        title: "the job reaches its fabric as it is",
        meaning: "Every worker requests an RDMA device, is on an RDMA network, or is on the host's network. Without a profile that was named, nothing is added beside it.",
        fix: "Nothing; `--profile NAME` applies a profile's settings all the same.",
        source: "docs/concepts/fabric.md",
    },
    Code {
        code: "opt-out",
        title: "the job opts out",
        meaning: "The annotation `disable-auto-efa: \"true\"` stands on the job or on a worker's pods (and is not ours: our own has the marker `weftrun.dev/applied` beside it).",
        fix: "Remove the annotation, if EFA is wanted.",
        source: "https://docs.nvidia.com/dgx-cloud/ (DGX Cloud Create, AWS clusters, Opt-Out)",
    },
    Code {
        code: "no-memory",
        title: "no memory is asked, so huge pages are left out",
        meaning: "Kubernetes refuses huge pages in a container that asks neither cpu nor memory. A job file that asks none gets EFA without them: libfabric keeps its bounce buffers in normal pages. In a manifest the same is an error, E-HP-NEEDS-MEMORY.",
        fix: "Set `memory` of the role.",
        source: "https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/",
    },
    Code {
        code: "api-version",
        title: "the job is of an API version that is not mutated",
        meaning: "PyTorchJob v1, MPIJob v1 and v2beta1, and TrainJob v1alpha1 are; older MPIJobs (v1alpha2, v1beta1) are served by no operator of today.",
        fix: "Write the manifest for a version that is served: kubeflow.org/v2beta1 for an MPIJob.",
        source: "https://github.com/kubeflow/mpi-operator",
    },
    Code {
        code: "not-distributed",
        title: "the job has one pod with ranks",
        meaning: "With one pod nothing passes between nodes; EFA devices would be taken for nothing.",
        fix: "Nothing, or ask for more nodes.",
        source: "",
    },
    Code {
        code: "no-gpu",
        title: "no worker asks accelerators",
        meaning: "NCCL does not run without GPUs. Neuron and Gaudi count only where the profile names their resource.",
        fix: "Ask GPUs, or choose the profile of the accelerator (`--profile neuron`).",
        source: "",
    },
    Code {
        code: "partial-node",
        title: "a worker asks part of a node",
        meaning: "EFA is for whole nodes: device and bandwidth cannot be shared sensibly, and ranks with and without EFA in one communicator hang or fail. So no role gets it, the launcher neither. Without a known instance type 8 GPUs are a node.",
        fix: "Ask all GPUs of the node; name the instance type where a node has fewer than 8.",
        source: "https://docs.nvidia.com/dgx-cloud/ (DGX Cloud Create: not supported for partial node workloads)",
    },
    Code {
        code: "no-efa-on-instance-type",
        title: "the instance type has no EFA",
        meaning: "The catalogue, or the cluster's own nodes, say that there is no EFA interface; or the sources disagree; then request EFA explicitly (`fabric = \"efa\"`).",
        fix: "Choose another instance type; `weftrun instances` lists them. On clusters with the EFA DRA driver the resource does not exist: claim it in the pod.",
        source: "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
    },
    Code {
        code: "fabric-unknown",
        title: "nothing shows the fabric of the job",
        meaning: "No profile was named, and neither the job nor the cluster shows a fabric: no known resource, device class, annotation, label, instance type, image, environment variable, path, partition, account or module. Or two fabrics are shown alike. No rule applies without evidence of its fabric.",
        fix: "`--profile NAME`, `--instance-type TYPE`, or `profile = \"NAME\"` in the job file or of the target.",
        source: "docs/concepts/fabric.md",
    },
    Code {
        code: "other-fabric",
        title: "the job is for a fabric that weftrun has no rules for",
        meaning: "The job or the cluster shows a fabric, and there is no profile for it in this kind of job: on Slurm the site's own modules and images bring InfiniBand, Slingshot and Omni-Path. The sentence names the fabric and what shows it.",
        fix: "Nothing, if the job works as it is; `--profile NAME` applies a profile all the same.",
        source: "docs/concepts/fabric.md",
    },
    Code {
        code: "resource-claims",
        title: "the workers get their devices by resource claims",
        meaning: "With dynamic resource allocation a pod names claims, and their templates say which GPUs and network devices belong together. No rule counts or changes claims, so the job stays as it is.",
        fix: "Request the network devices in the same claim template as the GPUs.",
        source: "https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/",
    },
    Code {
        code: "template",
        title: "the file is a template that was not filled in",
        meaning: "Where the number of pods or of GPUs should stand, there is a placeholder such as `$NUM_NODES`. Whether the job is distributed and on whole nodes cannot be known.",
        fix: "Fill it in first: `envsubst < job.yaml | weftrun mutate | kubectl apply -f -`.",
        source: "",
    },
    Code {
        code: "off",
        title: "the fabric is switched off",
        meaning: "`fabric = \"off\"` or `--fabric off`: the job is left alone, detection included.",
        fix: "Nothing; or say `auto`.",
        source: "",
    },
];
