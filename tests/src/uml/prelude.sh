# What a script given to `Uml::run` can use beside bash and Slurm's own commands.

# wait_until COMMAND: tries a shell command until it succeeds, for at most 300 s, so that a busy
# machine fails no test.
wait_until() {
    local deadline=$((SECONDS + 300))
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

# group JOB: what a job's control group is called: job_JOB, and from 26.05 on its SLUID.
group() {
    local sluid
    sluid=$(scontrol -d show job "$1" | sed -n 's/.*SLUID=\([^ ]*\).*/\1/p')
    echo "${sluid:-job_$1}"
}

# as USER COMMAND...: runs a command as a user, in the user's home.
as() {
    local user=$1
    shift
    (cd "/home/$user" && HOME=/home/$user USER=$user exec runuser -u "$user" -- "$@")
}
