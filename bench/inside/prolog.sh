#!/bin/bash
# A prolog as a shell script would be, for comparison only: reads the tag, works out the limits, writes them.
[[ "$SLURM_JOB_EXTRA $SLURM_JOB_COMMENT" =~ softmig=1:([a-z0-9_]+):([0-9]+)/([0-9]+):([0-9]+):(hard|soft) ]] || exit 0
shards=${BASH_REMATCH[2]} per_gpu=${BASH_REMATCH[3]} mib=${BASH_REMATCH[4]} mode=${BASH_REMATCH[5]}
gpus=
for information in /proc/driver/nvidia/gpus/*/information; do
    minor= uuid=
    while IFS=: read -r key value; do
        case $key in
            "GPU UUID") uuid=${value//[[:space:]]/} ;;
            "Device Minor") minor=${value//[[:space:]]/} ;;
        esac
    done <"$information"
    [[ ,$SLURM_JOB_GPUS, == *,$minor,* ]] && gpus+="gpu=$uuid"$'\n'
done
umask 022
run=/run/softmig-bash
[[ -d $run ]] || mkdir -p "$run"
new=$(mktemp "$run/.XXXXXX") || exit 1
printf 'uid=%d\nmemory_mib=%d\npercent=%d\nmode=%s\n%s' \
    "$SLURM_JOB_UID" "$mib" $((100 * shards / per_gpu)) "$mode" "$gpus" >"$new" &&
    chmod 644 "$new" && mv -f "$new" "$run/$SLURM_JOB_ID.conf"
