set -eu

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
    sacctmgr -iQ modify qos where name="$name" set "$@" \
        ${per_user:+MaxTRESPerUser="$per_user"} ${per_job:+MaxTRESPerJob="$per_job"}
}

# Allows them to those accounts, or users with a list of their own, that lack one.
allow() { # account|user QOS...
    whom=$1
    shift
    associations=$(sacctmgr -nP show assoc where cluster="$cluster" format=account,user,partition,qos)
    printf '%s\n' "$associations" | while IFS='|' read -r account user partition held; do
        case "$whom:$account:$user" in
        account:?*:) where="account where name=$account" ;;
        user:?*:?*) where="user where name=$user account=$account${partition:+ partition=$partition}" ;;
        *) continue ;;
        esac
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
