set -eu

take_over= remove=
case "${1-}" in
--take-over)
    take_over=yes
    shift
    ;;
--remove)
    remove=yes
    shift
    ;;
esac
cluster=${1:-$(scontrol show config | sed -n 's/^ClusterName *= *//p')}
if [ -z "$cluster" ]; then
    echo "$0: slurmctld does not answer; name the cluster" >&2
    exit 1
fi

# Limits for sacctmgr: those that are given, and -1 for what the QOS has besides.
limits() { # QOS FIELD NAME=AMOUNT,...
    held=$(sacctmgr -nP show qos where name="$1" format="$2")
    limits=$3
    for name in $(printf '%s' "$held" | tr ',' '\n' | sed 's/=.*//'); do
        case ",$3" in
        *",$name="*) ;;
        *) limits=$limits${limits:+,}$name=-1 ;;
        esac
    done
    printf '%s' "$limits"
}

# A QOS of these names that the site has made itself would lose its own limits.
ask() { # NAME...
    foreign=
    for name in "$@"; do
        found=$(sacctmgr -nP show qos where name="$name" format=name,description)
        case "$found" in
        '' | *'|softmig') ;;
        *) foreign="$foreign $name" ;;
        esac
    done
    if [ -n "$foreign" ] && [ -z "$take_over" ]; then
        echo "$0: QOS that softmig has not made:$foreign. Their limits would become those of policy.toml." >&2
        echo "$0: give the classes other names (qos = \"NAME\"), or run: $0 --take-over $cluster" >&2
        exit 1
    fi
}

# Makes a QOS, or makes it what it is to be.
qos() { # NAME LIMITS_PER_USER LIMITS_PER_JOB WORD...
    name=$1
    per_user=$2
    per_job=$3
    shift 3
    if [ -z "$(sacctmgr -nP show qos where name="$name" format=name)" ]; then
        sacctmgr -iQ add qos "$name"
    fi
    per_user=$(limits "$name" MaxTRESPU "$per_user")
    per_job=$(limits "$name" MaxTRES "$per_job")
    sacctmgr -iQ modify qos where name="$name" set Description=softmig "$@" \
        ${per_user:+MaxTRESPerUser="$per_user"} ${per_job:+MaxTRESPerJob="$per_job"}
}

# The associations that have QOS of their own: what each may use, and how sacctmgr finds it.
associations() { # account|user
    sacctmgr -nP show assoc where cluster="$cluster" format=account,user,partition,qos |
        while IFS='|' read -r account user partition held; do
            case "$1:$account:$user" in
            account:?*:) where="account where name=$account" ;;
            user:?*:?*) where="user where name=$user account=$account${partition:+ partition=$partition}" ;;
            *) continue ;;
            esac
            printf '%s|%s\n' "$held" "$where"
        done
}

# Allows them to those accounts, or users with a list of their own, that lack one.
allow() { # account|user QOS...
    whom=$1
    shift
    associations "$whom" | while IFS='|' read -r held where; do
        missing=
        for name in "$@"; do
            case ",$held," in
            *",$name,"*) ;;
            *) missing=$missing${missing:+,}$name ;;
            esac
        done
        if [ -n "$missing" ]; then
            # shellcheck disable=SC2086 # several words
            sacctmgr -iQ modify $where cluster="$cluster" set qos+="$missing" </dev/null
        fi
    done
}

# Takes one away from all accounts, or users, that may use it.
disallow() { # account|user QOS
    name=$2
    associations "$1" | while IFS='|' read -r held where; do
        case ",$held," in
        *",$name,"*)
            # shellcheck disable=SC2086 # several words
            sacctmgr -iQ modify $where cluster="$cluster" set qos-="$name" </dev/null
            ;;
        esac
    done
}

# Deletes those of these QOS that softmig made. First they leave all lists: Slurm 22.05 makes a list with one of them in its
# middle useless when it deletes that one, and its users have no QOS at all then.
forget() { # QOS...
    for name in "$@"; do
        case "$(sacctmgr -nP show qos where name="$name" format=name,description)" in
        *'|softmig')
            disallow account "$name"
            disallow user "$name"
            sacctmgr -iQ delete qos where name="$name"
            ;;
        esac
    done
}
