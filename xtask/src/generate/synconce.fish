# The command of a run is completed as if it had been typed alone.
function __synconce_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l last (commandline --current-token --cut-at-cursor)
    set -l first (VARIABLE=command synconce -- $words "$last" 2>/dev/null)
    if test -z "$first"
        VARIABLE=fish synconce -- $words "$last" 2>/dev/null
        return
    end
    set -l line
    if test (count $words) -gt $first
        set -l quoted (string escape -- $words)
        set line $quoted[(math $first + 1)..-1]
    end
    complete --do-complete (string join ' ' -- $line "$last")
end

complete --keep-order --exclusive --command synconce --arguments '(__synconce_complete)'
