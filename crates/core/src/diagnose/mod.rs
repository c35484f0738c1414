//! From plan and map to findings.
