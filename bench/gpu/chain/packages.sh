#!/bin/sh
# Downloads the packages that chain.py starts a Slurm from: packages.sh FOLDER, on Debian 12. They also run on younger systems.
set -eu
mkdir -p "${1:?where to}"
cd "$1"
apt-get download slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 liblua5.1-0 libjson-c5 libhwloc15 libyaml-0-2 libdbus-1-3 libnuma1 libpmix2
