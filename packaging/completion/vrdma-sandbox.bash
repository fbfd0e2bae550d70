# bash completion of vrdma-sandbox
_vrdma_sandbox() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} i
    COMPREPLY=()
    for ((i = COMP_CWORD - 1; i > 0; i--)); do
        [[ ${COMP_WORDS[i]} == -- ]] || continue
        # behind it: another program's command line
        if ((COMP_CWORD == i + 1)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
        else
            compopt -o default
            [[ $(type -t _command_offset) == function ]] && _command_offset $((i + 1))
        fi
        return
    done
    case $prev in
        --log)
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        --allow)
            mapfile -t COMPREPLY < <(compgen -W "qp1 raw-packet userfaultfd" -- "$cur")
            return
            ;;
        --vdevices | --quota | --wait | --loss | --reorder | --duplicate | --corrupt | --mark | --delay | --jitter | --queue | \
            --rate | --behind | --seed) return ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "-- --demo --vdevices --pair --two-tenants --root --wait --log \
        --quota --allow --no-direct --loss --reorder --duplicate --corrupt --mark --delay --jitter --queue --rate \
        --behind --right-checksum --all --seed --help --version" -- "$cur")
}
complete -F _vrdma_sandbox vrdma-sandbox
