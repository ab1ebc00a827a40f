#!/bin/sh
# The first process of the guest that tests/src/uml.rs boots: makes a machine with cgroup v2, GPUs without a driver and a
# running Slurm, runs the test's script, leaves what came of it on the share, and powers off.
#
# The share is a folder of the host. It brings
#   settings  values for this script       layer/   a tree laid out like /, to be laid over it
#   script    the test's own, for bash     driver/  what the NVIDIA driver shows in /proc/driver
#   fstab, prelude.sh, overlay.ko
# and takes back
#   stdout, stderr, exit_code  of the script        logs/    Slurm's and munge's
#   outputs/  what the script left in $OUT          failed   why it never came to the script
#
# A process costs 20 to 50 ms here, hence dash, and builtins wherever they do.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
share=/mnt
. $share/settings # HOST NODE MINORS USERS SCRIPT_SECONDS

say() {
    read -r uptime _ </proc/uptime
    echo "softmig-uml: $uptime s: $*"
}

# The power goes off asynchronously, and an init that returned would be a panic: nothing after this runs.
power_off() {
    mkdir -p $share/logs
    cp /cluster/log/*.log /cluster/munge/munged.log $share/logs/ 2>/dev/null
    sync
    echo o >/proc/sysrq-trigger
    while :; do sleep 1; done
}

fail() {
    say "failed: $*"
    echo "$*" >$share/failed
    power_off
}

# The root is a folder of the host, mounted read-only: lays a tmpfs over it and makes the result the root. Not by chroot
# alone, since the kernel makes no user namespace for a process in a chroot, and tests want to make one.
copy_on_write_root() {
    mount -t proc proc /proc || exit
    # What insmod and pivot_root do; minimal roots lack them. 313 is finit_module, 155 is pivot_root.
    perl -e 'open my $f, "<", shift or die "$!\n"; my $none = ""; syscall(313, fileno $f, $none, 0) and die "$!\n"' \
        $share/overlay.ko || fail "the kernel did not take overlay.ko"
    mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/upper /run/work /run/root &&
        mount -t overlay -o lowerdir=/,upperdir=/run/upper,workdir=/run/work overlay /run/root &&
        cd /run/root && mount --move /dev dev && mount --move $share .$share && mount --move /proc proc &&
        perl -e 'my $here = "."; syscall(155, $here, $here) and die "$!\n"' &&
        exec chroot . /bin/sh $share/init.sh in_root </dev/console >/dev/console 2>&1
    fail "no copy-on-write root"
}

mount_all() {
    umount -l / || fail "the read-only root stayed"
    mkdir /dev/pts /dev/shm
    mount --all --fstab $share/fstab || fail "no file systems"
    ln -s /proc/self/fd /dev/fd
    ln -s /proc/self/fd/0 /dev/stdin
    ln -s /proc/self/fd/1 /dev/stdout
    ln -s /proc/self/fd/2 /dev/stderr
}

name_machine() {
    echo "$HOST" >/proc/sys/kernel/hostname
    echo "127.0.0.1 localhost $HOST" >/etc/hosts
    # glibc looks up IPv4 names for Slurm only where there is an address that is not the loopback's.
    ip link set lo up && ip address add 10.99.0.1/32 dev lo || fail "no network"
    for user in $USERS; do
        IFS=: read -r name id group gid <<END
$user
END
        echo "$name:x:$id:$gid::/home/$name:/bin/bash" >>/etc/passwd
        grep -q "^$group:" /etc/group || echo "$group:x:$gid:" >>/etc/group
        echo "$name:*:19000::::::" >>/etc/shadow # su turns away who has no line here
        install -d -o "$id" -g "$gid" "/home/$name"
    done
}

# An open that the control group lets through fails with ENXIO, as no driver answers; one that it forbids, with EPERM.
make_gpus() {
    cp -r $share/driver/. /proc/driver/
    for minor in $MINORS 255; do
        device=/dev/nvidia$minor
        [ "$minor" = 255 ] && device=/dev/nvidiactl
        mknod -m 666 "$device" c 195 "$minor" || fail "no $device"
    done
}

# All of it is root's then, whoever built it, with the modes that an installer gives; folders that exist stay as they are.
lay_over() {
    tar -C $share/layer --owner=0 --group=0 --mode=u=rwX,go=rX -cf - . |
        tar -C / --no-overwrite-dir --keep-directory-symlink -xpf - || fail "could not lay the test's files over the root"
}

start_slurm() {
    mkdir -p /cluster/log /cluster/run /cluster/state /cluster/spool /cluster/munge
    # systemd would have made this group and handed these controllers down; slurmd makes its scope below it.
    mkdir /sys/fs/cgroup/system.slice
    for group in /sys/fs/cgroup /sys/fs/cgroup/system.slice; do
        echo "+cpu +memory +pids" >$group/cgroup.subtree_control || fail "no controllers for $group"
    done
    (umask 077 && head -c 128 /dev/urandom >/cluster/munge/munge.key)
    munged --force --num-threads=2 --key-file=/cluster/munge/munge.key --socket=/cluster/munge/munge.socket \
        --pid-file=/cluster/munge/munged.pid --log-file=/cluster/munge/munged.log \
        --seed-file=/cluster/munge/munge.seed || fail "munged did not start"
    slurmctld -i || fail "slurmctld did not start"
    slurmd -N "$NODE" || fail "slurmd did not start"
    tries=0
    until [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] || fail "the node did not become idle: $(sinfo -h -N -o '%N %T %E' 2>&1)"
        sleep 0.1
    done
}

run_script() {
    mkdir -p $share/outputs && chmod 1777 $share/outputs
    cd /root || fail "no /root"
    OUT=$share/outputs timeout -k 2 "$SCRIPT_SECONDS" bash -c '. "$0" && . "$1"' $share/prelude.sh $share/script \
        </dev/null >$share/stdout 2>$share/stderr
    echo $? >$share/exit_code
}

[ "$1" = in_root ] || copy_on_write_root
mount_all
name_machine
make_gpus
lay_over
say "starting Slurm"
start_slurm
say "Slurm is up"
run_script
say "the script has ended"
power_off
