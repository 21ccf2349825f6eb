
# The command of a run is completed as if it had been typed alone.
_synconce() {
    local first
    first=$(VARIABLE=command synconce -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
    if [[ -n $first ]]; then
        compopt +o nospace 2>/dev/null
        if declare -F _command_offset >/dev/null; then
            _command_offset "$first"
        elif [[ $first -eq $COMP_CWORD ]]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$2")
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$2")
        fi
    else
        _clap_complete_synconce "$@"
    fi
}
complete -o nospace -o bashdefault -o nosort -F _synconce synconce
