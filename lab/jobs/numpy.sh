#!/bin/bash
OPENBLAS_NUM_THREADS=1 exec $JOB_WRAP /usr/bin/python3 -c '
import numpy as np, zlib
r = np.random.default_rng(7)
n = 6_000_000
key = r.integers(0, 50_000, n)
val = r.normal(1000, 30, n).round(2)
day = np.sort(r.integers(0, 3650, n))
crc = 0
for k in range(3):
    o = np.argsort(key, kind="stable")
    s = np.add.reduceat(val[o], np.flatnonzero(np.r_[True, np.diff(key[o]) > 0]))
    crc = zlib.crc32(s.round(2).tobytes(), crc)
    h = np.histogram2d(day, val, bins=(50, 50))[0]
    crc = zlib.crc32(h.tobytes(), crc)
    val = val + (key & 3)
    crc = zlib.crc32(val[:: 7].tobytes(), crc)
print("numpy", crc, len(s))'
