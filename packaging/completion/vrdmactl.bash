# bash completion of vrdmactl. In ~/.bashrc:  source <(vrdmactl completion bash)

# The names of the vdevices, asked of the daemon that the line speaks to: NAME where one vdevice has
# it, NETNS/NAME of all others, and of all when the word has a slash.
_vrdmactl_names() {
    local i dir=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            --run-dir) dir=(--run-dir "${COMP_WORDS[i + 1]}") ;;
        esac
    done
    "${COMP_WORDS[0]/#\~/$HOME}" "${dir[@]}" vdev list 2>/dev/null |
        awk -v word="${COMP_WORDS[COMP_CWORD]}" '
            $2 ~ /^(ACTIVE|DOWN|LOST)$/ { name[++rows] = $1; netns[rows] = $3; ++has[$1] }
            END {
                for (i = 1; i <= rows; i++) {
                    whole = has[name[i]] > 1 || word ~ /\//
                    print(whole ? netns[i] "/" name[i] : name[i])
                }
            }'
}

_vrdmactl_claims() {
    "${COMP_WORDS[0]/#\~/$HOME}" claim list 2>/dev/null | awk 'NR > 1 && !seen[$1]++ { print $1 }'
}

_vrdmactl_fabrics() {
    "${COMP_WORDS[0]/#\~/$HOME}" fabric list 2>/dev/null | awk 'NR > 1 { print $1 }'
}

_vrdmactl() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local words=() options="-o --output --run-dir --help" choices="" i=1
    COMPREPLY=()

    # Words before the cursor that are no options and no values of options.
    while ((i < COMP_CWORD)); do
        case ${COMP_WORDS[i]} in
            --) # behind it: another program's command line
                local command=${COMP_WORDS[i + 1]}
                if ((COMP_CWORD == i + 1)); then
                    mapfile -t COMPREPLY < <(compgen -c -- "$cur")
                else
                    compopt -o default
                    [[ $(type -t _command_offset) == function ]] && [[ -n $command ]] &&
                        _command_offset $((i + 1))
                fi
                return
                ;;
            -o | --output | --run-dir | --classes | --netns | --netdev | --parent | --tenant | --fabric | --quota | --allow | --addresses | --gid-layout | --default | --ceiling | --overcommit | --owner | --label | --reach | --peers)
                ((i++))
                ;;
            -*) ;;
            *) words+=("${COMP_WORDS[i]}") ;;
        esac
        ((i++))
    done

    case $prev in
        -o | --output)
            choices="table json"
            if [[ ${words[*]} == "cdi generate" ]]; then
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        --classes)
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        --run-dir)
            mapfile -t COMPREPLY < <(compgen -d -- "$cur")
            return
            ;;
        --netns) choices=$(ip netns list 2>/dev/null | awk '{ print $1 }') ;;
        --parent) choices=$("${COMP_WORDS[0]}" parent list 2>/dev/null | awk 'NR > 1 { print $1 }') ;;
        --allow) choices="qp1 raw-packet userfaultfd" ;;
        --gid-layout) choices="dense mlx5" ;;
        --reach) choices="host network wire" ;;
        --peers) choices="all" ;;
        --label) choices="container= namespace= pod=" ;;
        --netdev | --tenant | --fabric | --quota | --addresses | --default | --ceiling | --overcommit | --owner) return ;;
    esac
    if [[ -n $choices || $prev == --netns || $prev == --parent ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$cur")
        return
    fi

    case "${words[*]}" in
        "") choices="vdev quota tenant fabric gid class claim parent conn qp stats top watch exec doctor env cdi version completion help" options+=" --version" ;;
        vdev) choices="create list show delete" ;;
        "vdev create") options+=" --netns --netdev --parent --tenant --fabric --quota --allow --addresses --no-direct --gid-layout --owner --end-with-owner --label --if-absent" ;;
        "vdev create "*) options+=" --netns --netdev --parent --tenant --fabric --quota --allow --addresses --no-direct --gid-layout --owner --end-with-owner --label --if-absent" ;;
        quota) choices="show set" ;;
        gid | class) choices="list" ;;
        tenant) choices="show set" ;;
        fabric) choices="list set" ;;
        "fabric list") choices=$(_vrdmactl_fabrics) ;;
        "fabric set") choices=$(_vrdmactl_fabrics) options+=" --reach --peers" ;;
        "fabric set "*) options+=" --reach --peers" ;;
        claim) choices="list delete" ;;
        "claim delete") choices=$(_vrdmactl_claims) options+=" --force" ;;
        "claim delete "*) options+=" --force" ;;
        parent) choices="list show set" ;;
        "tenant set"* | "parent set"*) options+=" --default --ceiling --overcommit" ;;
        conn) choices="list stats" ;;
        qp) choices="list" ;;
        cdi) choices="generate" ;;
        "cdi generate") options+=" --classes" ;;
        completion) choices="bash" ;;
        "vdev list" | "vdev show" | "vdev delete"* | "quota show" | "quota set" | "gid list" | "conn list" | "qp list" | exec)
            choices=$(_vrdmactl_names)
            ;;
        top) options+=" --once --interval" ;;
        doctor) choices="--" options+=" --netns --to" ;;
        stats | "conn stats") choices="daemon $(_vrdmactl_names)" ;;
        "exec "*) choices="--" ;;
    esac
    [[ $cur == -* ]] && choices+=" $options"
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$cur")
}
complete -F _vrdmactl vrdmactl
