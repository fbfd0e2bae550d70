#compdef vrdmactl
# zsh completion of vrdmactl, which knows the words itself. In ~/.zshrc, after compinit:
#   source <(vrdmactl completion zsh)
_vrdmactl() {
    local -a lines candidates
    local line word help dashes=${words[(i)--]}
    if ((dashes < CURRENT)); then
        # behind it: another program's command line
        words=("${(@)words[dashes + 1, -1]}")
        ((CURRENT -= dashes))
        _normal
        return
    fi
    lines=("${(@f)$("${words[1]/#\~/$HOME}" complete -- "${(@)words[2, CURRENT - 1]}" "$PREFIX" 2>/dev/null)}")
    case ${lines[1]} in
        :files*) _files; return ;;
        :directories*) _files -/; return ;;
    esac
    for line in $lines; do
        word=${line%%$'\t'*} help=${line#*$'\t'}
        candidates+=("${word//:/\\:}${help:+:$help}")
    done
    _describe vrdmactl candidates
}
(($+functions[compdef])) && compdef _vrdmactl vrdmactl
# As a file in fpath, this is the function itself.
[[ $funcstack[1] != _vrdmactl ]] || _vrdmactl "$@"
