_clap_complete_synconce() {
    local IFS=$'\013'
    local _CLAP_COMPLETE_INDEX=${COMP_CWORD}
    local _CLAP_COMPLETE_COMP_TYPE=${COMP_TYPE}
    if compopt +o nospace 2> /dev/null; then
        local _CLAP_COMPLETE_SPACE=false
    else
        local _CLAP_COMPLETE_SPACE=true
    fi
    local words=("${COMP_WORDS[@]}")
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        words[COMP_CWORD]="$2"
    fi
    COMPREPLY=( $( \
        _CLAP_IFS="$IFS" \
        _CLAP_COMPLETE_INDEX="$_CLAP_COMPLETE_INDEX" \
        _CLAP_COMPLETE_COMP_TYPE="$_CLAP_COMPLETE_COMP_TYPE" \
        _CLAP_COMPLETE_SPACE="$_CLAP_COMPLETE_SPACE" \
        SYNCONCE_COMPLETE="bash" \
        "synconce" -- "${words[@]}" \
    ) )
    if [[ $? != 0 ]]; then
        unset COMPREPLY
    elif [[ $_CLAP_COMPLETE_SPACE == false ]] && [[ "${COMPREPLY-}" =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
}
if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -o nospace -o bashdefault -o nosort -F _clap_complete_synconce synconce
else
    complete -o nospace -o bashdefault -F _clap_complete_synconce synconce
fi


# The command of a run is completed as if it had been typed alone.
_synconce() {
    local first
    first=$(SYNCONCE_COMPLETE=command synconce -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
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
