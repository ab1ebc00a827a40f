set -eu

now=$(date +%s)
wanted=

# Makes a reservation, or makes it what it is to be. Slurm does not change what one with single GPUs holds.
reservation() { # NAME START START_IN_SECONDS END END_IN_SECONDS HOLDER WORD...
    name=$1
    start=$2
    begins=$3
    end=$4
    ends=$5
    holder=$6
    shift 6
    if [ "$now" -ge "$ends" ]; then return; fi
    wanted="$wanted $name"
    if [ "$now" -ge "$begins" ]; then start=; fi
    if scontrol show reservation "$name" >/dev/null 2>&1; then
        # The start of one that has begun is past.
        scontrol update reservation ReservationName="$name" ${start:+StartTime="$start"} EndTime="$end" "$holder"
    else
        scontrol create reservation ReservationName="$name" StartTime="${start:-now}" EndTime="$end" "$holder" "$@"
    fi
}

# Deletes those of softmig that are not wanted, or no longer. One with jobs in it stays until they have ended.
tidy() {
    there=$(scontrol -o show reservation)
    kept=0
    for name in $(printf '%s\n' "$there" | sed -n 's/^ReservationName=\(softmig_[^ ]*\).*/\1/p'); do
        case " $wanted " in
        *" $name "*) ;;
        *) scontrol delete ReservationName="$name" || kept=1 ;;
        esac
    done
    return $kept
}
