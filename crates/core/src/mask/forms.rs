//! What secrets look like: the forms of well-known tokens, and the names of settings that hold one.
//!
//! The facts are those of the rules of gitleaks (config/gitleaks.toml at b58d3f1, 2026-07-22, MIT), without the rules for
//! services that no training job uses, and with lengths that are lower bounds, so that a token which was cut is found too.
//! There is no rule for a bare run of hexadecimal digits: a hash, a UUID and the digest of an image are no secrets.

/// Tokens that are known by their beginning; each is a regular expression after a word boundary.
pub(super) const TOKENS: [&str; 46] = [
    // GitHub, GitLab, Bitbucket, Atlassian
    r"gh[pousr]_[0-9A-Za-z]{16,}",
    r"github_pat_\w{16,}",
    r"gl(?:pat|dt|rt|cbt|ft|imt|agent|oas|soat|ptt|ffct)-[\w.-]{16,}",
    r"GR1348941[\w-]{16,}",
    r"AT[AC]TT3[\w=-]{16,}",
    // Models and training services
    r"sk-(?:proj|ant|admin|svcacct|or)-[\w-]{16,}",
    r"sk-[0-9A-Za-z]{20,}",
    r"hf_[0-9A-Za-z]{20,}",
    r"api_org_[0-9A-Za-z]{20,}",
    r"nvapi-[\w-]{16,}",
    r"wandb_v1_[\w-]{16,}",
    r"gsk_[0-9A-Za-z]{20,}",
    r"pplx-[0-9A-Za-z]{20,}",
    r"r8_[0-9A-Za-z]{20,}",
    r"xai-[0-9A-Za-z]{20,}",
    r"lsv2_(?:pt|sk)_[\w]{16,}",
    r"dapi[0-9a-f]{32}",
    r"pnu_[0-9A-Za-z]{20,}",
    // Clouds
    r"(?:A3T[0-9A-Z]|AKIA|ASIA|ABIA|ACCA)[2-7A-Z]{16}",
    r"ABSK[0-9A-Za-z+/]{32,}",
    r"bedrock-api-key-[\w+/=-]{16,}",
    r"AIza[\w-]{30,}",
    r"GOCSPX-[\w-]{16,}",
    r"ya29\.[\w.-]{16,}",
    r"LTAI[0-9A-Za-z]{16,}",
    r"[0-9A-Za-z_~.]{3}[0-9]Q~[\w~.-]{24,}",
    r"do[opr]_v1_[0-9a-f]{16,}",
    r"HRKU-AA[\w-]{16,}",
    r"fo1_[\w-]{16,}",
    r"fm[12][ar]?_[\w+/=-]{16,}",
    r"sha256~[\w-]{32,}",
    // Registries and packages
    r"dckr_[op]at_[\w-]{16,}",
    r"npm_[0-9A-Za-z]{20,}",
    r"pypi-AgE[\w-]{16,}",
    r"rubygems_[0-9a-f]{16,}",
    r"AKCp[0-9A-Za-z]{32,}",
    // Chat, payment, monitoring, vaults
    r"xox[abeoprs]-[0-9A-Za-z-]{10,}",
    r"xapp-[0-9]-[\w-]{10,}",
    r"(?:sk|rk)_(?:live|test|prod)_[0-9A-Za-z]{10,}",
    r"SG\.[\w.=-]{20,}",
    r"gl(?:c|sa)_[\w+/=-]{20,}",
    r"sntry[su]_[\w+/=-]{20,}",
    r"hv[bs]\.[\w-]{20,}",
    r"dp\.[a-z]{2,5}\.[0-9A-Za-z]{20,}",
    r"(?:ops_eyJ|AGE-SECRET-KEY-1)[0-9A-Za-z+/=]{20,}",
    // JSON Web Tokens, those of Kubernetes and Run:ai among them
    r"ey[0-9A-Za-z]{10,}\.ey[\w/-]{10,}(?:\.[\w/=-]*)?",
];

/// The ends of the names that hold a secret, in any case, with `_`, `-` or nothing between their words.
pub(super) const NAMES: &str = r"(?:token|secret|passw(?:or)?d|passphrase|pwd|(?:api|access|private|secret|auth|encryption|signing|master|account|license|service|client|session|storage|deploy|shared|ssh|wandb)[_-]?key|credentials?|[_-]pat|[_-]jwt|[_-]creds?)";

/// Words before `token` that make it one of a tokenizer, and no secret: `--pad_token`, `IMAGE_TOKEN`.
pub(super) const TOKENIZER: &[&str] = &[
    "eos", "bos", "pad", "unk", "sep", "cls", "mask", "image", "audio", "video", "vision", "special", "stop",
    "start", "end", "prefix", "suffix", "think", "begin", "forced", "newline",
];

/// Words before `token:` in the message of a parser.
pub(super) const PARSERS: &[&str] = &[
    "unexpected",
    "invalid",
    "unknown",
    "illegal",
    "bad",
    "missing",
    "unrecognized",
    "next",
    "last",
    "special",
];
