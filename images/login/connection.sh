#!/bin/sh
# Serves one connection: sshd starts it in the place of its own program for that (SshdSessionPath), which follows.
#
# Before anybody is logged in, sshd reads files of users as root, lines of any length: one endless line in somebody's
# authorized_keys would take all memory of the login node, and end it with all sessions. So each process of a connection
# has room for its own data only, and where the machine lets the pod make cgroups, all connections share one with a limit
# (images/login/sshd.py). A session has neither: PAM gives the room back (images/login/sshd.py), and its user's cgroup
# takes it.
#
# stdout is the client. What fails is told to sshd's log, and the connection is served.
ulimit -S -d 32768
waiting=/sys/fs/cgroup/connections/cgroup.procs
[ ! -w "$waiting" ] || echo 0 > "$waiting"
exec /usr/lib/openssh/sshd-session "$@"
