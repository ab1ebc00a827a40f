set -eu

remove=
if [ "${1:-}" = --remove ]; then remove=yes; fi
now=$(date +%s)
wanted=
left=0

# Whether a reservation is on the nodes and has the GPUs that it is to have.
is_right() { # SHOWN WORD...
    shown=,$(printf '%s' "$1" | tr ' ' ','),
    shift
    for word in "$@"; do
        case $word in
        Nodes=*)
            there=$(printf '%s\n' "$shown" | sed 's/.*,Nodes=\(.*\),NodeCnt=.*/\1/')
            there=$(scontrol show hostnames "$there" | sort)
            [ "$there" = "$(scontrol show hostnames "${word#Nodes=}" | sort)" ] || return 1
            ;;
        TRES=*)
            case $shown in
            *",${word##*,},"*) ;;
            *) return 1 ;;
            esac
            ;;
        esac
    done
}

# Makes a reservation, or makes it what it is to be. Slurm does not change what one with single GPUs holds: one that is
# on other nodes, or without its GPUs, is made anew.
reservation() { # NAME BEGINS ENDS HOLDER WORD...
    name=$1
    begins=$2
    ends=$3
    holder=$4
    shift 4
    if [ -n "$remove" ]; then return; fi
    if [ "$now" -ge "$ends" ]; then return; fi
    wanted="$wanted $name"
    # Seconds since 1970: in an hour of autumn the clocks show each time twice. The start of one that has begun is past.
    start=
    if [ "$now" -lt "$begins" ]; then start=uts$begins; fi
    there=$(scontrol -o show reservation "$name" 2>/dev/null) || there=
    if [ -n "$there" ] && ! is_right "$there" "$@"; then
        if ! scontrol delete ReservationName="$name"; then
            echo "$name is on other nodes, or without its GPUs: run this again when the jobs in it have ended" >&2
            left=1
            return
        fi
        there=
    fi
    if [ -n "$there" ]; then
        scontrol update reservation ReservationName="$name" ${start:+StartTime="$start"} EndTime="uts$ends" "$holder"
    else
        scontrol create reservation ReservationName="$name" StartTime="${start:-now}" EndTime="uts$ends" "$holder" "$@"
    fi
}

# Deletes those of softmig that are not wanted, or no longer. One with jobs in it stays until they have ended.
tidy() {
    there=$(scontrol -o show reservation)
    kept=$left
    for name in $(printf '%s\n' "$there" | sed -n 's/^ReservationName=\(softmig_[^ ]*\).*/\1/p'); do
        case " $wanted " in
        *" $name "*) ;;
        *) scontrol delete ReservationName="$name" || kept=1 ;;
        esac
    done
    return $kept
}
