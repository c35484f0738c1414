_clap_complete_NAME() {
    local typed=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]}") space=true
    compopt +o nospace 2>/dev/null && space=false
    # $2 ends at the cursor, and lacks the quote that the word begins with if that is open.
    case $typed in
        "$2"* | [!\"\']*) words[COMP_CWORD]=$2 ;;
        *) words[COMP_CWORD]=${typed:0:1}$2 ;;
    esac
    # Without -d, and with `COMPREPLY=( $(…) )`, names with line ends or with `*` become others.
    IFS=$'\v' read -r -d '' -a COMPREPLY < <(
        _CLAP_IFS=$'\v' _CLAP_COMPLETE_INDEX=$COMP_CWORD _CLAP_COMPLETE_COMP_TYPE=$COMP_TYPE \
            _CLAP_COMPLETE_SPACE=$space VARIABLE=bash "PROGRAM" -- "${words[@]}"
    )
    case $(printf %s "${COMPREPLY[@]}") in
        # Readline then quotes them as the word that was typed is, and ends folders with `/` itself.
        *[!A-Za-z0-9_./:=@%+,-]*) compopt -o filenames 2>/dev/null && COMPREPLY=("${COMPREPLY[@]%/}") ;;
    esac
    if [[ $space == false && ${COMPREPLY-} =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
}
if ((BASH_VERSINFO[0] > 4 || BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4)); then
    complete -o nospace -o bashdefault -o nosort -F _clap_complete_NAME BINARY
else
    complete -o nospace -o bashdefault -F _clap_complete_NAME BINARY
fi
