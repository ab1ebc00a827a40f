#!/bin/bash
# sudo, a set-uid program with plugins and PAM: as root, as another user, refused, and with an environment kept.
sudo -n /opt/programs/linked
echo "as root: $?"
sudo -n -u bob /opt/programs/maps
echo "as bob: $?"
sudo -n -u bob sudo -n /opt/programs/maps 2>&1
echo "not allowed: $?"
sudo -n --preserve-env=HOME env -i /opt/programs/maps
sudo -n -l | tail -n 1
