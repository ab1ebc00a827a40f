#!/bin/bash
# sshd on loopback, root's or alice's own, and a session of alice's: a command, a terminal, a file copied over.
set -e
here=$(mktemp -d)
trap 'kill "$daemon" 2>/dev/null; rm -rf "$here"' EXIT
if [ "$(id -u)" = 0 ]; then mkdir -p /run/sshd; fi
ssh-keygen -q -t ed25519 -N '' -f "$here/host"
ssh-keygen -q -t ed25519 -N '' -f "$here/alice"
cp "$here/alice.pub" "$here/authorized"
chmod 755 "$here"
/usr/sbin/sshd -D -f /dev/null -p 2222 -h "$here/host" -o ListenAddress=127.0.0.1 -o PidFile=none -o LogLevel=QUIET \
    -o "AuthorizedKeysFile=$here/authorized" -o StrictModes=no -o Subsystem="sftp internal-sftp" &
daemon=$!
options=(-F none -q -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -i "$here/alice")
for _ in $(seq 200); do
    (: </dev/tcp/127.0.0.1/2222) 2>/dev/null && break
    sleep 0.05
done
set +e
ssh -p 2222 "${options[@]}" alice@127.0.0.1 /opt/programs/linked
echo "session: $?"
ssh -p 2222 -tt "${options[@]}" alice@127.0.0.1 /opt/programs/maps </dev/null | tr -d '\r'
scp -P 2222 "${options[@]}" alice@127.0.0.1:/opt/programs/shell.sh "$here/copy"
cmp /opt/programs/shell.sh "$here/copy" && echo "copied"
grep -q /libsoftmig.so "/proc/$daemon/maps" && echo "libsoftmig: mapped" || echo "libsoftmig: not mapped"
