#!/bin/bash
d=${JOB_TMP:-$(mktemp -d)}
python3 - "${JOB_ROWS:-2200000}" > $d/in <<'P'
import random, sys
random.seed(9)
w = ["error", "warning", "info", "debug", "connection", "timeout", "user", "session", "retry",
     "closed"]
for i in range(int(sys.argv[1])):
    sys.stdout.write("%08x 2026-11-%02d %s %s id=%d\n" % (
        random.getrandbits(32), i % 30 + 1, w[i * 7 % 10], w[i * 3 % 10], i))
P
LC_ALL=C $JOB_WRAP sort --buffer-size=400M --parallel=2 -o $d/out $d/in &&
    echo "sort $(md5sum < $d/out | cut -c1-32)"
[ -n "$JOB_TMP" ] || rm -rf $d
