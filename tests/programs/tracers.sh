#!/bin/bash
# gdb and strace, each with a client below it.
export DEBUGINFOD_URLS=
strace -f -o /dev/null /opt/programs/linked
echo "strace: $?"
gdb --batch --quiet --nx -ex 'set startup-with-shell off' -ex 'break main' -ex run -ex continue /opt/programs/maps 2>/dev/null |
    grep -E '^(libsoftmig|Breakpoint|\[Inferior 1 .* exited)' | sed -E 's/ at .*//; s/0x[0-9a-f]+/ADDRESS/; s/process [0-9]+/process N/'
LD_BIND_NOW=1 /opt/programs/linked
LD_PRELOAD=/opt/programs/libprivate.so /opt/programs/maps
/lib64/ld-linux-x86-64.so.2 /opt/programs/maps
/lib64/ld-linux-x86-64.so.2 --verify /opt/programs/maps
echo "verify: $?"
