#!/bin/bash
# systemd's tools: they run with a library of their own, with sandboxes, and as root early in a boot.
# They say nothing of themselves, so the loader is asked what it would put into each.
for tool in systemd-tmpfiles systemd-analyze systemd-escape systemd-id128 systemd-sysusers /lib/systemd/systemd; do
    if LD_TRACE_LOADED_OBJECTS=1 "$tool" | grep -q /libsoftmig.so; then echo "libsoftmig: mapped"; else echo "libsoftmig: not mapped"; fi
done
here=$(mktemp -d)
printf 'd /made 0750 - - -\nf /made/file 0640 - - - text\n' >"$here/made.conf"
systemd-tmpfiles --create --root="$here" "$here/made.conf"
stat -c '%a' "$here/made" "$here/made/file"
systemd-analyze calendar --base-time='2026-01-01 00:00:00 UTC' daily | grep Normalized
systemd-analyze timespan 90min | head -n 2
systemd-escape 'a b/c'
systemd-id128 show | head -n 1
/lib/systemd/systemd --version | head -n 1
rm -r "$here"
