# How mpirun, or the supervisor, reaches another host of the job: `rsh ADDRESS COMMAND`.
exec ssh -x -F "${0%/*}/ssh_config" "$@"
