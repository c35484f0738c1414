//! Codes of the Run:ai backend.

use super::Code;
use super::clusters::code;

pub(super) const RUNAI: &[Code] = &[
    code(
        "RUNAI-HIDDEN",
        "something could not be read for want of rights",
        "What depends on it was assumed, and the decisions that rest on it say so.",
        "Nothing, if the assumption is right; else say it in the target's settings.",
    ),
    code(
        "RUNAI-NAME",
        "the name is too long for Run:ai",
        "Workload names have at most 50 characters.",
        "Use a shorter name.",
    ),
    code(
        "RUNAI-NAME-TAKEN",
        "a workload of this name is there already",
        "Run:ai wants unique names in a project.",
        "Choose another name, or `--name-suffix`.",
    ),
    code(
        "RUNAI-NOT-EXPRESSED",
        "the API has no field for a value of the job",
        "Run:ai has no time limit for workloads, and of `/dev/shm` only whether it is large; the job is submitted without the value.",
        "Follow the note beside it, or remove the value from the job.",
    ),
    code(
        "RUNAI-PENDING",
        "the workload waits",
        "Run:ai's own reason is shown: quota, nodes, gang scheduling.",
        "Ask for less, or for a larger quota of the project.",
    ),
    code(
        "RUNAI-POLICY",
        "a policy of the cluster forbids a value",
        "Administrators set what workloads may ask.",
        "Change the value to one the policy allows.",
    ),
    code(
        "RUNAI-ASSET",
        "a name in the job is not the one Run:ai knows",
        "Assets (data sources, credentials) are named as the project lists them.",
        "Write the name that is shown.",
    ),
    code(
        "RUNAI-CLUSTER-API",
        "the cluster's own API is not reached",
        "Logs come from the cluster, not from the control plane; without it they cannot be followed.",
        "Make the cluster's domain reachable from here (VPN, private DNS), or set `kubeconfig` in the target's table.",
    ),
    code(
        "RUNAI-CONNECT",
        "nobody answers at the address",
        "The name resolves, and no connection comes about: a firewall, a VPN that is down, or the wrong port.",
        "Check the URL, the VPN and the proxy.",
    ),
    code(
        "RUNAI-DNS",
        "the host's name does not resolve",
        "Private control planes and clusters are known to private DNS only.",
        "Check the URL, and whether the VPN's DNS is used.",
    ),
    code(
        "RUNAI-DOCTOR",
        "what was found out on the way to an error",
        "`doctor` and a failed connection say step by step what worked.",
        "Nothing; the error beside it says what failed.",
    ),
    code(
        "RUNAI-HTTP",
        "the control plane is reached without TLS",
        "The token can be read on the way.",
        "Use https, but for a port that is forwarded on this machine.",
    ),
    code(
        "RUNAI-INSECURE",
        "any certificate is taken",
        "`insecure` is set: whoever is in between can read the token.",
        "Set `ca-file` to the control plane's CA instead.",
    ),
    code(
        "RUNAI-NODE-POOL",
        "there is no such node pool",
        "The project has none of this name, and the workload would wait for ever.",
        "Use one of those that are named.",
    ),
    code(
        "RUNAI-PRIORITY",
        "there is no such priority",
        "Run:ai's priorities are set by its administrators.",
        "Use one of those that are named.",
    ),
    code(
        "RUNAI-RIGHTS",
        "a right is missing in the project",
        "The control plane would refuse what the verb needs.",
        "Ask for the role of a researcher in the project.",
    ),
    code(
        "RUNAI-SECRET-FILE",
        "others may read the secret's file",
        "Its rights let more than its owner read it.",
        "chmod 600 the file.",
    ),
    code(
        "RUNAI-TEMPLATE",
        "there is no such template",
        "A workload that names one which is not there is refused.",
        "Use one the project lists.",
    ),
    code(
        "RUNAI-TLS",
        "what the server's certificate says",
        "Who signed it, for which names, and until when; or why it is not trusted.",
        "For a private CA set `ca-file`.",
    ),
    code(
        "RUNAI-TLS-NAME",
        "the certificate is for another name",
        "Somebody else answers at the address, or the URL names the host in another way than its certificate.",
        "Correct the URL, or ask who answers at that address.",
    ),
    code(
        "RUNAI-URL",
        "the address is no URL",
        "It is written as a browser shows it, `https://` first.",
        "Correct `url` of the target.",
    ),
    code(
        "RUNAI-VERSION",
        "the control plane's version is not one that is known",
        "Newer versions may have fields this was not written for; one that cannot be read gets every field.",
        "Set `version` in the target's table if it was read wrong.",
    ),
    code(
        "RUNAI-VERSION-ASSUMED",
        "the body was rendered for the newest known control plane",
        "The version is read from the cluster when a job is submitted; fields that an older control plane lacks are then left out.",
        "Set `version` in the target's table to render for that version without a connection.",
    ),
];
