
# The command of a run is completed as if it had been typed alone.
function _synconce_complete() {
    local first
    first=$(VARIABLE=command synconce -- "${(Q@)words[1,CURRENT]}" 2>/dev/null)
    if [[ -n $first ]]; then
        shift $first words
        (( CURRENT -= first ))
        _normal
    else
        _clap_dynamic_completer_synconce
    fi
}

compdef _synconce_complete synconce
# The first completion loads this file as the function _synconce.
[[ $funcstack[1] != _synconce ]] || _synconce_complete
