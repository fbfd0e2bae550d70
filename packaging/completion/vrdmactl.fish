# fish completion of vrdmactl, which knows the words itself. In ~/.config/fish/config.fish:
#   vrdmactl completion fish | source
function __vrdmactl_candidates
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    if contains -- -- $words
        # behind it: another program's command line
        set -l place (contains -i -- -- $words)
        set -l behind $words[(math $place + 1)..-1]
        complete -C (string join ' ' -- (string escape -- $behind) $current)
        return
    end
    set -l lines ($words[1] complete -- $words[2..-1] "$current" 2>/dev/null)
    switch "$lines[1]"
        case ':files*' ':directories*'
            __fish_complete_path $current
        case '*'
            string join \n -- $lines
    end
end
complete -c vrdmactl -f -a '(__vrdmactl_candidates)'
