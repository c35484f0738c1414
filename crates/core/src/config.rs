//! Layered configuration; every value knows its origin.
