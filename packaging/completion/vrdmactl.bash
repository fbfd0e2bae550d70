# bash completion of vrdmactl, which knows the words itself. In ~/.bashrc:  source <(vrdmactl completion bash)
_vrdmactl() {
    local cur words line typed rest i candidates=()
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] || continue
        # behind it: another program's command line
        if ((COMP_CWORD == i + 1)); then
            mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
        else
            compopt -o default
            [[ $(type -t _command_offset) == function ]] && _command_offset $((i + 1))
        fi
        return
    done
    # From the line, because COMP_WORDS has pid:7/red0 in several words.
    line=${COMP_LINE:0:COMP_POINT}
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur=${words[${#words[@]} - 1]}
    mapfile -t candidates < <("${COMP_WORDS[0]/#\~/$HOME}" complete -- "${words[@]:1}" 2>/dev/null)
    case ${candidates[0]} in
        :files*) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        :directories*) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
        *)
            for line in "${candidates[@]}"; do
                line=${line%%$'\t'*}
                [[ $line == *= ]] && compopt -o nospace 2>/dev/null
                # bash replaces what follows the last of these characters.
                [[ $cur == *[:=]* ]] && line=${line#"${cur%"${cur##*[:=]}"}"}
                # Users of containers choose some of these names. What is typed stays as it is.
                typed=$cur
                [[ $cur == *[:=]* ]] && typed=${cur##*[:=]}
                if [[ $line == "$typed" ]]; then
                    :
                elif [[ $line == "$typed"* ]]; then
                    printf -v rest %q "${line#"$typed"}"
                    line=$typed$rest
                else
                    printf -v line %q "$line"
                fi
                COMPREPLY+=("$line")
            done
            ;;
    esac
}
complete -F _vrdmactl vrdmactl
