# What a script given to `Uml::run` can use beside bash and Slurm's own commands.

# wait_until COMMAND: tries a shell command until it succeeds, for at most 20 s.
wait_until() {
    local deadline=$((SECONDS + 20))
    until eval "$1"; do
        if ((SECONDS > deadline)); then
            echo "waited in vain for: $1" >&2
            return 1
        fi
        sleep 0.1
    done
}

# settled: waits until no job is left and every node is idle again, epilogs included.
settled() { wait_until '[ -z "$(squeue -h)" ] && [ "$(sinfo -h -o %T)" = idle ]'; }

# as USER COMMAND...: runs a command as a user, in the user's home.
as() {
    local user=$1
    shift
    (cd "/home/$user" && HOME=/home/$user USER=$user exec runuser -u "$user" -- "$@")
}
