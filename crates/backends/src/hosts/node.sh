# Functions of one host: POSIX sh (dash, bash 4, busybox). Every program that weftrun sends begins with them, and so does the supervisor.
#
# $weftrun_root/busy          the submission that has this host: a hard link, so that only one job can make it
# $weftrun_root/jobs/ID/      appears whole, by a rename; ID is the submission
#     place  job              the job's hosts and numbers, and the rendered document; never changed
#     go-N/                   attempt N was started: made by mkdir, so by one program only
#     supervisor  state       who supervises, and what it says
#     requests/               what others ask of the supervisor: ATTEMPT.NAME, or any.NAME for whichever attempt runs
#     verdict                 how the whole job ended, once all hosts have
#     cancelled               no attempt is started any more
#     logs/N/NAME.log         what each process wrote in attempt N, by its own hand
umask 077

weftrun_up() { read -r up _ < /proc/uptime; up=${up%%.*}; }   # seconds of this boot: no clock is compared with another

# Sets $start: when process $1 was started, in ticks of this boot; empty if it has ended.
weftrun_start() {
  start=; stat=
  { read -r stat < "/proc/$1/stat"; } 2> /dev/null || return 0
  stat=${stat##*) }
  case $stat in Z* | X* | '') return 0 ;; esac
  set -f; set -- $stat; set +f
  shift 19; start=$1
}

weftrun_boot() { boot=; { read -r boot < /proc/sys/kernel/random/boot_id; } 2> /dev/null || :; }

# Sets $alive for the job in folder $1: yes, no, rebooted, or none where no supervisor ever began.
weftrun_alive() {
  alive=none; pid=; was=; then=
  { read -r pid was then < "$1/supervisor"; } 2> /dev/null || return 0
  weftrun_boot; weftrun_start "$pid"
  if [ "$boot" != "$then" ]; then alive=rebooted; elif [ -n "$start" ] && [ "$start" = "$was" ]; then alive=yes; else alive=no; fi
}

# Prints the processes of submission $1 and all that they started, found by the variable in their environment.
weftrun_marked() {
  for marked in $(grep -lF "WEFTRUN_SUBMISSION=$1" /proc/[0-9]*/environ 2> /dev/null); do
    marked=${marked#/proc/}; printf '%s ' "${marked%/environ}"
  done
}

# Sets $phase of the job in folder $1, from its state file.
weftrun_phase() {
  phase=
  while read -r key value; do [ "$key" != phase ] || phase=$value; done 2> /dev/null < "$1/state" || :
}

# Prints what is known of one job, or of all: `key value` lines, from `job ID` to `end`.
weftrun_look() {
  weftrun_up
  printf 'up %s\n' "$up"
  for job in "$weftrun_root"/jobs/${1:-*}; do
    [ -f "$job/place" ] || continue
    printf 'job %s\n' "${job##*/}"
    while read -r line; do printf '%s\n' "$line"; done < "$job/place"
    for go in "$job"/go-*; do [ ! -d "$go" ] || printf 'go %s\n' "${go##*-}"; done
    weftrun_phase "$job"
    if [ "$phase" != ended ]; then
      weftrun_alive "$job"
      printf 'alive %s\n' "$alive"
      # A supervisor that ended since then has written its last state before.
      case $alive in no | rebooted) printf 'orphans %s\n' "$(weftrun_marked "${job##*/}" | wc -w)" ;; esac
    fi
    { while read -r line; do printf '%s\n' "$line"; done < "$job/state"; } 2> /dev/null || :
    { read -r verdict < "$job/verdict" && printf 'verdict %s\n' "$verdict"; } 2> /dev/null || :
    printf 'end\n'
  done
  busy=; { read -r busy < "$weftrun_root/busy"; } 2> /dev/null || :
  [ -z "$busy" ] || printf 'busy %s\n' "$busy"
}

# Prints what a submission must know of the host: who it is, where the others reach it (over interface $1, if one is named, else where this
# connection came in), and the public keys of its sshd.
weftrun_survey() {
  weftrun_boot
  set -f; set -- "$1" ${SSH_CONNECTION-}; set +f
  address=${4-}
  [ -z "$1" ] || address=$(ip -4 -o addr show dev "$1" | sed -n 's/.* inet \([0-9.]*\).*/\1/p' | head -n 1)
  printf 'machine %s %s\naddress %s\nssh-port %s\nuser %s\n' "$(uname -n)" "$boot" "$address" "${5-22}" "$(id -un)"
  for public in /etc/ssh/ssh_host_*_key.pub; do
    { read -r type key _ < "$public" && printf 'key %s %s\n' "$type" "$key"; } 2> /dev/null || :
  done
}

# Prints the first port from $1 on that nothing listens on.
weftrun_free_port() {
  port=$1
  while grep -qi ":$(printf %04X "$port") [0-9A-F]*:[0-9A-F]* 0A" /proc/net/tcp /proc/net/tcp6 2> /dev/null; do port=$((port + 1)); done
  printf 'port %s\n' "$port"
}

# Whether the job in folder $1 no longer needs its host.
weftrun_is_over() {
  [ -d "$1" ] || return 0
  weftrun_phase "$1"
  [ "$phase" != ended ] || return 0
  weftrun_alive "$1"
  case $alive in
  yes) return 1 ;;
  none)   # prepared, and not started: its submission was cut off, unless it is young
    made=; then=; { read -r made then < "$1/made"; } 2> /dev/null || return 0
    weftrun_boot; weftrun_up
    [ "$boot" != "$then" ] || [ $((up - made)) -gt 600 ] ;;
  *) [ -z "$(weftrun_marked "${1##*/}")" ] ;;
  esac
}

# Takes the host for submission $1; prints `busy ID` and fails if another has it.
weftrun_take() {
  printf '%s\n' "$1" > "$weftrun_root/busy.$1" || return 91
  tries=0
  until ln "$weftrun_root/busy.$1" "$weftrun_root/busy" 2> /dev/null; do
    tries=$((tries + 1)); owner=
    { read -r owner < "$weftrun_root/busy"; } 2> /dev/null || :
    [ "$owner" != "$1" ] || break
    if [ "$tries" -gt 3 ] || { [ -n "$owner" ] && ! weftrun_is_over "$weftrun_root/jobs/$owner"; }; then
      rm -f "$weftrun_root/busy.$1"; printf 'busy %s\n' "$owner"; return 90
    fi
    # What is moved away must be what was looked at: another program may have been faster.
    mv "$weftrun_root/busy" "$weftrun_root/stale.$1" 2> /dev/null || continue
    moved=; read -r moved < "$weftrun_root/stale.$1" || :
    [ "$moved" = "$owner" ] || ln "$weftrun_root/stale.$1" "$weftrun_root/busy" 2> /dev/null || :
    rm -f "$weftrun_root/stale.$1"
  done
  rm -f "$weftrun_root/busy.$1"
}

# Gives the host back, if submission $1 has it.
weftrun_give_back() {
  owner=; { read -r owner < "$weftrun_root/busy"; } 2> /dev/null || :
  [ "$owner" != "$1" ] || rm -f "$weftrun_root/busy"
}

# Makes the folder of submission $1 whole and takes the host. `weftrun_write FOLDER` writes its files.
weftrun_prepare_job() {
  mkdir -p "$weftrun_root/jobs" || return 91
  if [ ! -d "$weftrun_root/jobs/$1" ]; then
    new=$weftrun_root/.new-$1.$$
    rm -rf "$new"; mkdir "$new" "$new/requests" "$new/logs" || return 91
    weftrun_boot; weftrun_up
    # The reserve is given up for the last state where the disk is full.
    if ! { printf '%s %s\n' "$up" "$boot" > "$new/made" && weftrun_write "$new" && head -c 65536 /dev/zero > "$new/reserve"; }; then
      rm -rf "$new"
      # The shell's own message may name no reason.
      [ "$(df -Pk "$weftrun_root" | tail -n 1 | tr -s ' ' | cut -d' ' -f4)" -ge 512 ] || echo 'No space left on device' >&2
      return 91
    fi
    mv "$new" "$weftrun_root/jobs/$1" 2> /dev/null || rm -rf "$new"
    # Two programs of one submission: the second moved its folder into the first one's.
    rm -rf "$weftrun_root/jobs/$1/.new-$1.$$"
  fi
  weftrun_take "$1" && return 0
  code=$?
  [ -d "$weftrun_root/jobs/$1/go-0" ] || weftrun_remove "$1"
  return "$code"
}

weftrun_remove() {
  weftrun_give_back "$1"; weftrun_forget_key "$1"
  # The job disappears at once, even if the removal is interrupted.
  if mv "$weftrun_root/jobs/$1" "$weftrun_root/.del-$1.$$" 2> /dev/null; then rm -rf "$weftrun_root/.del-$1.$$"; fi
}

# Starts attempt $2 of submission $1, once however often it is called.
weftrun_go() {
  cd "$weftrun_root/jobs/$1" || return 93
  if [ "$2" != 0 ] && [ ! -d "go-$2" ]; then weftrun_take "$1" || return $?; fi
  [ ! -e cancelled ] || return 95
  if mkdir "go-$2" 2> /dev/null; then
    rm -f supervisor.new
    setsid /bin/sh ./supervise "$2" < /dev/null >> supervisor.log 2>&1 3<&- &
  fi
  tries=0
  until grep -q "^attempt $2\$" state 2> /dev/null; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || return 94
    sleep 0.1
  done
}

# Asks the supervisor of submission $1 for $2 (a word, then free text), and waits until it did it. $3 names the request. $4 is the attempt that it
# is for, which may have ended when it arrives; empty for whichever runs. Without a supervisor, ends what runs.
weftrun_ask() {
  job=$weftrun_root/jobs/$1
  [ -d "$job" ] || return 93
  [ -z "${4-}" ] || [ ! -d "$job/go-$(($4 + 1))" ] || return 95
  # Before the look at the state: an attempt that starts now sees it.
  [ "$2" != cancel ] || true > "$job/cancelled" || return 91
  weftrun_phase "$job"
  if [ "$phase" = ended ]; then weftrun_asked_at_end "$2"; return; fi
  weftrun_alive "$job"
  if [ "$alive" = yes ]; then
    ask=$job/requests/${4:-any}.$3
    printf '%s\n' "$2" > "$ask.new" && mv "$ask.new" "$ask" || return 91
    tries=0
    while [ -e "$ask" ]; do
      tries=$((tries + 1))
      [ $((tries % 10)) != 0 ] || weftrun_alive "$job"
      [ "$alive" = yes ] && [ "$tries" -le 300 ] || break
      sleep 0.1
    done
    [ -e "$ask" ] || return 0
    [ "$alive" != yes ] || return 96
    # It may have ended by itself, and then has written its last state.
    rm -f "$ask"
    weftrun_phase "$job"
    if [ "$phase" = ended ]; then weftrun_asked_at_end "$2"; return; fi
  fi
  case $2 in
  cancel* | stop*)
    . "$job/job"
    weftrun_end "$1" 10
    how=cancelled; case $2 in stop*) how=stopped ;; esac
    printf 'phase ended\nattempt %s\nhow %s\nwhy ended after its supervisor was gone\n' "$(weftrun_last_attempt "$job")" "$how" > "$job/state.new" \
      && mv "$job/state.new" "$job/state" || return 91
    weftrun_give_back "$1" ;;
  suspend) weftrun_signal "$1" STOP ;;
  resume) weftrun_signal "$1" CONT ;;
  signal*) weftrun_signal "$1" "${2#signal }" ;;
  esac
}

# Answers $1 for the job in $job, whose attempt has ended here: one that failed or was stopped would start again with the others, unless it
# is cancelled.
weftrun_asked_at_end() {
  [ "$1" = cancel ] || return 95
  grep -q -e '^how failed' -e '^how stopped' "$job/state" || return 95
  sed 's/^how .*/how cancelled/' "$job/state" > "$job/state.new" && mv "$job/state.new" "$job/state" || return 91
}

# Keeps how the whole job ended ($2) beside submission $1.
weftrun_conclude() {
  cd "$weftrun_root/jobs/$1" || return 93
  [ -e verdict ] || { printf '%s\n' "$2" > "verdict.$$" && mv "verdict.$$" verdict; }
}

weftrun_last_attempt() { last=0; while [ -d "$1/go-$((last + 1))" ]; do last=$((last + 1)); done; printf '%s' "$last"; }

weftrun_signal() {
  signalled=$(weftrun_marked "$1")
  [ -z "$signalled" ] || kill "-$2" $signalled 2> /dev/null || :
}

# Ends every process of submission $1: TERM, and KILL after $2 seconds.
weftrun_end() {
  weftrun_signal "$1" TERM; weftrun_signal "$1" CONT
  weftrun_up; until=$((up + $2))
  while [ -n "$(weftrun_marked "$1")" ]; do
    weftrun_up
    if [ "$up" -ge "$until" ]; then
      # A container's processes are children of its engine, not of the program that started it.
      if command -v weftrun_kill_containers > /dev/null; then weftrun_kill_containers; fi
      weftrun_signal "$1" KILL
    fi
    sleep 0.1
  done
}

# Removes jobs that ended more than $1 days ago, and what cut-off programs left.
weftrun_clean() {
  for old in $(find "$weftrun_root/jobs" -mindepth 2 -maxdepth 2 -name state -mtime "+$1" 2> /dev/null); do
    old=${old%/state}; weftrun_phase "$old"
    [ "$phase" != ended ] || weftrun_remove "${old##*/}"
  done
  find "$weftrun_root" -mindepth 1 -maxdepth 1 \( -name '.new-*' -o -name '.del-*' \) -mtime +1 -exec rm -rf {} + 2> /dev/null || :
}

# Reads the place file of the job in the working folder: the numbers of the job, and of this host in it.
weftrun_place() {
  world=0 nodes=0 first=0 count=0 role= replica=0 master= address=
  while read -r key value; do
    case $key in
    submission) submission=$value ;; launch) launch=$value ;; restarts) restarts=$value ;; grace) grace=$value ;;
    limit) limit=$value ;; node) node=$value ;; port) port=$value ;;
    host)
      set -f; set -- $value; set +f   # NAME ADDRESS PORT USER RANKS ROLE REPLICA
      [ "$nodes" != 0 ] || master=$2
      if [ "$nodes" = "$node" ]; then first=$world count=$5 role=$6 replica=$7 address=$2; fi
      world=$((world + $5)); nodes=$((nodes + 1)) ;;
    esac
  done < place
}

# Exports what a process of this host sees; with a local rank in $1, what that rank sees.
weftrun_numbers() {
  export WEFTRUN_SUBMISSION="$submission" MASTER_ADDR="$master" MASTER_PORT="$port" NNODES="$nodes" NODE_RANK="$node" GROUP_RANK="$node" \
    GROUP_WORLD_SIZE="$nodes" WORLD_SIZE="$world" LOCAL_WORLD_SIZE="$count" \
    PET_MASTER_ADDR="$master" PET_MASTER_PORT="$port" PET_NNODES="$nodes" PET_NODE_RANK="$node" PET_NPROC_PER_NODE="$count"
  [ -z "${1-}" ] || export RANK="$((first + $1))" LOCAL_RANK="$1" ROLE_NAME="$role" ROLE_RANK="$((replica * count + $1))"
}

# Runs a command ($3 …) in submission $1 beside local rank $2: in the folder of its process, with the job's environment. It ends when the
# caller is gone, which closes descriptor 3.
weftrun_exec() {
  cd "$weftrun_root/jobs/$1" || return 93
  weftrun_place
  id=$1 local=$2; shift 2
  (
    weftrun_numbers "$local"
    . ./job && weftrun_environment
    case $launch:$count in per-rank:* | mpi:* | *:1) WEFTRUN_PROCESS=rank$((first + ${local:-0})) ;; *) WEFTRUN_PROCESS=node$node ;; esac
    for process in $(weftrun_marked "$id"); do
      [ -z "$local" ] || tr '\0' '\n' 2> /dev/null < "/proc/$process/environ" | grep -qx "LOCAL_RANK=$local" || continue
      folder=$(readlink "/proc/$process/cwd") && cd "$folder" 2> /dev/null && break
    done
    # It is not a process of the job, and may outlive it.
    unset WEFTRUN_SUBMISSION; export WEFTRUN_EXEC_OF="$id"
    if command -v weftrun_contained > /dev/null; then weftrun_contained "$id" "$@"; fi
    exec setsid "$@"
  ) 3<&- &
  command=$!
  { cat <&3; kill -TERM -- "-$command" "$command"; } > /dev/null 2>&1 &
  watch=$!
  exec 3<&-
  wait $command; code=$?
  kill $watch 2> /dev/null
  return "$code"
}

# Lets key line $2 in while submission $1 is here, and takes it out. The file is the user's: it is replaced whole, by one program at a time
# (a home may be shared by many hosts), and is never cut short by a full disk.
weftrun_keys() {
  keys=$(readlink -f "$HOME/.ssh/authorized_keys" 2> /dev/null) && [ -n "$keys" ] || keys=$HOME/.ssh/authorized_keys
  tries=0
  # A lock that is older than any program would hold it was left by one that was killed.
  until mkdir "$keys.weftrun" 2> /dev/null || [ "$tries" -ge 100 ]; do tries=$((tries + 1)); sleep 0.1; done
}
weftrun_put_keys() { mv -f "$keys.weftrun/new" "$keys"; put=$?; rm -rf "$keys.weftrun"; return "$put"; }
weftrun_allow_key() {
  mkdir -p "$HOME/.ssh" || return 91
  weftrun_keys
  # awk ends a last line that has no newline.
  if { [ ! -f "$keys" ] || awk 1 "$keys"; } > "$keys.weftrun/new" && { grep -q "weftrun-$1\$" "$keys.weftrun/new" || printf '%s\n' "$2" >> "$keys.weftrun/new"; }; then
    weftrun_put_keys && return 0
  fi
  rm -rf "$keys.weftrun"; return 91
}
weftrun_forget_key() {
  grep -q "weftrun-$1\$" "$HOME/.ssh/authorized_keys" 2> /dev/null || return 0
  weftrun_keys
  grep -v "weftrun-$1\$" "$keys" > "$keys.weftrun/new"
  if [ $? -le 1 ]; then weftrun_put_keys; else rm -rf "$keys.weftrun"; return 1; fi
}
