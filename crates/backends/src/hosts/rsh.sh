# How mpirun reaches the other hosts of the job: `rsh HOST COMMAND`. With a key of the job, if there is one.
job=${0%/*} host=$1; shift
user= port=22
while read -r key value; do
  [ "$key" = host ] || continue
  rest=${value#* }; address=${rest%% *}
  [ "$address" = "$host" ] || continue
  rest=${rest#* }; port=${rest%% *}; rest=${rest#* }; user=${rest%% *}
done < "$job/place"
if [ -f "$job/key" ]; then set -- -i "$job/key" -o IdentitiesOnly=yes -- "$host" "$@"; else set -- -- "$host" "$@"; fi
exec ssh -x -o BatchMode=yes -o ConnectTimeout=10 -o LogLevel=ERROR -o "UserKnownHostsFile=$job/known_hosts ~/.ssh/known_hosts" -p "$port" -l "$user" "$@"
