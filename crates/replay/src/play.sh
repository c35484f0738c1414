# Plays what a rank printed: `@SECONDS` waits, `=TEXT` is a line, `~TEXT` is the end of a log without a newline.
rank=${RANK:-${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${JOB_COMPLETION_INDEX:-0}}}}}
play() {
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      @*) [ -n "$INSTANT" ] || sleep "${line#@}" ;;
      =*) printf '%s\n' "${line#=}" ;;
      ~*) printf '%s' "${line#?}" ;;
    esac
  done
}
