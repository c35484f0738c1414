//! One file a fabric; each rule is a pure function with an id to opt out of.
