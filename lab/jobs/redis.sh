#!/bin/bash
d=${JOB_TMP:-$(mktemp -d)}
cd $d
rm -f s dump.rdb
$JOB_WRAP redis-server --port 0 --unixsocket $d/s --save '' --dir $d --enable-debug-command yes \
    --daemonize no --logfile $d/log --activedefrag no > /dev/null &
p=$!
ask() { redis-cli -s $d/s "$@"; }
for i in $(seq 100); do ask ping > /dev/null 2>&1 && break; sleep 0.1; done
/usr/bin/python3 - <<'P' | ask --pipe > $d/pipe.log
import random, sys
random.seed(11)
w = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()
o = sys.stdout.write
for i in range(200_000):
    v = "{\"id\":%d,\"name\":\"%s %s\",\"tags\":[%s],\"text\":\"%s\"}" % (
        i, random.choice(w), random.choice(w),
        ",".join(str(random.randrange(1000)) for _ in range(20)),
        " ".join(random.choice(w) for _ in range(100)))
    k = "user:%d" % i
    o("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(k), k, len(v), v))
for i in range(0, 200_000, 3):
    k = "user:%d" % i
    o("*3\r\n$6\r\nAPPEND\r\n$%d\r\n%s\r\n$5\r\n-more\r\n" % (len(k), k))
P
a=$(ask debug digest)
ask bgsave > /dev/null
for i in $(seq 300); do
    ask info persistence | grep -q rdb_bgsave_in_progress:0 && break
    sleep 0.1
done
st=$(ask info persistence | tr -d '\r' | grep rdb_last_bgsave_status)
ask debug reload nosave > /dev/null
b=$(ask debug digest)
ask info server > /dev/null
[ -n "$JOB_HOOK" ] && $JOB_HOOK $p
ask shutdown nosave
wait $p
[ "$a" = "$b" ] && reload=reload-same || reload=RELOAD-DIFFERS
echo "redis $a $st $reload"
[ -n "$JOB_TMP" ] || rm -rf $d
