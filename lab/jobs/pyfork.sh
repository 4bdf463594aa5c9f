#!/bin/bash
exec $JOB_WRAP /usr/bin/python3 -c '
import os, sys, zlib, random
n = int(sys.argv[1])
random.seed(3)
rows = [("user%07d" % i, random.randrange(1000), "note %d" % (i % 97)) for i in range(n)]
def work(k):
    crc = 0
    for i in range(k, len(rows), 4):
        crc = zlib.crc32(rows[i][0].encode() + bytes([rows[i][1] & 255]), crc)
    for i in range(k, len(rows), 400): rows[i] = ("changed", k, "")
    return zlib.crc32(repr(rows[k::4000]).encode(), crc)
pipes = []
for k in range(4):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, b"%d" % work(k))
        os._exit(0)
    os.close(w)
    pipes.append((pid, r))
res = []
for pid, r in pipes:
    res.append(os.read(r, 64).decode())
    assert os.waitpid(pid, 0)[1] == 0
crc = 0
for t in rows: crc = zlib.crc32(t[0].encode(), crc)
print("pyfork", *res, crc)' "${JOB_ROWS:-900000}"
