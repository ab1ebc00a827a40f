#!/bin/bash
# su, a set-uid program, and its relatives: runuser, setpriv, chroot, unshare.
su alice -c /opt/programs/linked
echo "su: $?"
su --login bob -c '/opt/programs/maps; id -un'
setpriv --reuid=alice --regid=alice --init-groups su --version
runuser -u alice -- /opt/programs/maps
chroot / /opt/programs/maps
unshare --mount --pid --fork --mount-proc /opt/programs/maps
