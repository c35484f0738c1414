# One rank that mpirun started on this host: its numbers are mpirun's, its log is a file of its own.
cd "${0%/*}" || exit 1
weftrun_place
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-}}}
local=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-$((rank - first))}}
weftrun_numbers "$local"
export RANK="$rank" WEFTRUN_PROCESS="rank$rank"
. ./job
weftrun_environment
weftrun_last .
attempt=$last
mkdir -p "logs/$attempt"
exec >> "logs/$attempt/rank$rank.log" 2>&1 < /dev/null
weftrun_rank
