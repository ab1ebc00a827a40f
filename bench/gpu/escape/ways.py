"""How programs get past a preloaded library, as scripts of the job; GREEDY is replaced by the program with its words."""

NAMESPACE = "unshare -Urm sh -c 'mount --bind /dev/null /etc/ld.so.preload && exec GREEDY'"
MANY = f"for n in 1 2 3 4; do export n; {NAMESPACE} & done; wait"
# Honest programs that come and go: at each moment some are making their contexts.
SHORT = "for n in 1 2 3 4; do (for m in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do (export n=$n.$m; exec GREEDY); done) & done; wait"
# An own loader that reads another file.
LOADER = "sed 's,/etc/ld.so.preload,/etc/ld.so.prelaod,g' /lib64/ld-linux-x86-64.so.2 > OWN/ld.so && chmod +x OWN/ld.so && exec OWN/ld.so GREEDY"

# The way, its script, MiB to take, what it then does, and for how many seconds at most.
WAYS = [
    ("with the library", "exec GREEDY", 61440, "kernels", 2),
    ("with the library: 60 short programs", SHORT, 512, "kernels", 0.3),
    ("user namespace: memory and time", NAMESPACE, 61440, "kernels", 8),
    ("four programs in user namespaces: time", MANY, 1024, "kernels", 5),
    ("user namespace: memory alone", NAMESPACE, 61440, "nothing", 8),
    ("user namespace: time alone", NAMESPACE, 1024, "kernels", 8),
    ("user namespace: copies alone", NAMESPACE, 1024, "copies", 8),
    ("own loader: memory and time", LOADER, 61440, "kernels", 8),
    ("LD_PRELOAD=libc.so.6", "LD_PRELOAD=libc.so.6 exec GREEDY", 61440, "kernels", 2),
]
