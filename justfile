# What people do here, by name. CI runs `.ci/run`.

# Everything quick: format, lints, tests
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test --workspace

# What CI runs
ci:
    .ci/run

# The property tests on cases that nobody saw yet: so many rounds, each with a seed of its own, which it prints
laws ROUNDS="20":
    .ci/laws {{ROUNDS}}

# A job on this machine, without a cluster
demo:
    cargo run --release -p weftrun-cli -- demo

# Accept new snapshots after reading them
snapshots:
    cargo insta review

# Licences, advisories, duplicates; needs cargo-deny and the network (CI's part of it is `.ci/deny`)
deny:
    cargo deny check

# The book of docs/, into target/book, and a check of its links
book:
    .ci/docs

# Breaking changes of the SDK against a commit or a tag, such as the last release's; needs cargo-semver-checks
semver BASE:
    cargo semver-checks --baseline-rev {{BASE}} -p weftrun -p weftrun-core -p weftrun-convert -p weftrun-verify

# The smallest binary
dist:
    cargo build --profile dist -p weftrun-cli

# Score the log reader and the diagnosis on a folder of excerpts
corpus FOLDER *ARGS:
    cargo run -q -p weftrun-diagnose --example corpus -- {{FOLDER}} {{ARGS}}

# The speed of the terminal UI in a real terminal, beside lnav where it is installed
bench-tui *ARGS:
    cargo bench -p weftrun-cli --bench tui -- {{ARGS}}

# The speed of mutate on 10,000 documents, beside yq and kubectl where they are here
bench-manifest:
    cargo bench -p weftrun-convert --bench manifest

# `weftrun transport` beside ripgrep, its memory, and 16,384 ranks from the replayer
bench-transport *ARGS:
    cargo bench -p weftrun-cli --bench transport -- {{ARGS}}

# What a screen asks of the map of a large job
bench-nccl *ARGS:
    cargo bench -p weftrun-diagnose --bench nccl -- {{ARGS}}

# What each stage of reading a log costs, beside ripgrep
bench-read *ARGS:
    cargo bench -p weftrun-nccl --bench read -- {{ARGS}}

# The speed of submitting to Slurm and listing its jobs, beside sbatch, squeue and submitit; needs root
bench-slurm *ARGS:
    test-cluster/slurm/bench.sh {{ARGS}}

# The Slurm tests on a newer release: trixie has 24.11, sid 26.05; needs root and the network
slurm SUITE:
    test-cluster/slurm/root.sh {{SUITE}} /opt/weftrun-roots/{{SUITE}}
    CLUSTER_ROOT=/opt/weftrun-roots/{{SUITE}} test-cluster/slurm/ci.sh

# What is handed out (static binary, completions, manual pages, .deb, SBOM), tried in a clean Debian
release OUT="target/handed-out":
    .ci/package {{OUT}}
    .ci/install-test {{OUT}}

# How long `--version` and `plan` take, beside kubectl and Python in one hyperfine run
bench-start:
    cargo build --release -p weftrun-cli
    crates/cli/benches/start.sh

# Listing 5,000 Run:ai workloads beside the vendor's client, and the memory of following 512 pods
bench-runai:
    .ci/runapy
    cargo bench -p weftrun-backends --bench runai

# The CPU that following costs on the test cluster, beside kubectl and stern; `test-cluster/kubernetes/ci.sh up` first
bench-kubernetes *ARGS:
    cargo build --release --workspace --bin weftrun
    test-cluster/kubernetes/bench.sh target/release/weftrun {{ARGS}}
