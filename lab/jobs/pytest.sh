#!/bin/bash
d=$(mktemp -d)
tests="test_fork1 test_mmap test_dict test_list test_array test_bytes test_json test_zlib
    test_threading test_select test_epoll test_posix test_wait4 test_tempfile test_buffer
    test_memoryview test_struct"
export PYTHONDONTWRITEBYTECODE=1
out=$(TMPDIR=$d $JOB_WRAP /usr/bin/python3 -m test --tempdir $d $tests |
    sed -n 's/^\(All .* tests OK\|.* tests* failed.*\|Result: .*\|Tests result: .*\|    test_.*\)$/\1/p' |
    sed 's/ in .*//' | tr '\n' ';')
rm -rf $d
echo "pytest $out"
