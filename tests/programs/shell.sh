#!/bin/bash
# bash: traps, background jobs, pipes, substitutions, limits, coprocesses; and a client started from it.
say_library() {
    local maps
    maps=$(</proc/$BASHPID/maps)
    if [[ $maps == *"/libsoftmig.so"* ]]; then echo "libsoftmig: mapped"; else echo "libsoftmig: not mapped"; fi
}
say_library
trap 'echo "signal"' USR1
kill -USR1 $$
umask
(umask 077; umask)
ulimit -n
(exit 3)
echo "subshell: $?"
sleep 0.01 &
wait $!
echo "background: $?"
seq 1 1000 | sort -rn | head -n 3
diff <(echo one) <(echo two)
coproc cat
echo "through a coprocess" >&"${COPROC[1]}"
read -r line <&"${COPROC[0]}"
echo "$line"
eval "exec ${COPROC[1]}>&-"
wait
/opt/programs/linked
echo "client: $?"
exec 3>&1
/opt/programs/linked | tail -n 3 >&3
env -i /opt/programs/maps
nohup /opt/programs/maps
timeout 10 /opt/programs/maps
