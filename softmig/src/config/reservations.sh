set -eu

now=$(date +%s)
wanted=

# Makes a reservation, or makes it what it is to be.
reservation() { # NAME START START_IN_SECONDS END END_IN_SECONDS WORD...
    name=$1
    start=$2
    begins=$3
    end=$4
    ends=$5
    shift 5
    if [ "$now" -ge "$ends" ]; then return; fi
    wanted="$wanted $name"
    if scontrol show reservation "$name" >/dev/null 2>&1; then
        # The start of one that has begun is past.
        if [ "$now" -lt "$begins" ]; then set -- "$@" StartTime="$start"; fi
        scontrol update reservation ReservationName="$name" EndTime="$end" "$@"
    else
        if [ "$now" -ge "$begins" ]; then start=now; fi
        scontrol create reservation ReservationName="$name" StartTime="$start" EndTime="$end" "$@"
    fi
}

# Deletes those of softmig that are not wanted, or no longer.
tidy() {
    there=$(scontrol -o show reservation | sed -n 's/^ReservationName=\(softmig_[^ ]*\).*/\1/p')
    for name in $there; do
        case " $wanted " in
        *" $name "*) ;;
        *) scontrol delete ReservationName="$name" ;;
        esac
    done
}
