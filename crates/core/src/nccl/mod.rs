//! NCCL's log lines, and the map of which transport each pair of ranks uses.
