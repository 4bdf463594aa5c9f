"""Runs an example in several ways, each in a process of its own, and compares them.

An example calls ``main(run, *ways)``. ``run(way)`` does the work and gives its result. The first
way is the plain one. Memory is counted from the moment at which all is imported:

    growth    anonymous and shared bytes in memory (Pss_Anon + Pss_Shmem of smaps_rollup) once the
              result is there, less those at the beginning
    peak      the largest sum of RssAnon and RssShmem of /proc/PID/status, read every 2 ms, less
              that at the beginning

What ramfold holds of compressed pages and values is anonymous memory of the process, so both
figures have it. The ratios are those to the plain way.

    python3 EXAMPLE.py                 all ways that work here, with a table
    python3 EXAMPLE.py --json          the same for programs
    python3 EXAMPLE.py --way NAME      the result alone, in this process
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import time

import ramfold

SECONDS_BETWEEN_LOOKS = 0.002


def of_status(pid):
    """Anonymous and shared bytes in memory. The kernel counts them as it goes."""
    with open(f"/proc/{pid}/status") as status:
        found = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status.read(), re.MULTILINE)
    return 1024 * sum(map(int, found))


def of_pages(pid):
    """The same, from every page of the process. It takes milliseconds."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        found = re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", rollup.read(), re.MULTILINE)
    return 1024 * sum(map(int, found))


class Sampler(threading.Thread):
    """Looks for the largest amount of memory of another process."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.largest = 0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(SECONDS_BETWEEN_LOOKS):
            self.largest = max(self.largest, of_status(self.pid))


def measured(way):
    """Runs this program in one way, and gives what it told and took."""
    command = [sys.executable, sys.argv[0], "--child", way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as child:
        def wait_for_line():
            line = child.stdout.readline()
            if not line:
                raise SystemExit(f"{sys.argv[0]}: the process for '{way}' ended with status "
                                 f"{child.wait()}")
            return line

        def go_on():
            child.stdin.write("\n")
            child.stdin.flush()

        wait_for_line()
        low, low_of_status = of_pages(child.pid), of_status(child.pid)
        sampler = Sampler(child.pid)
        sampler.start()
        started = time.perf_counter()
        go_on()
        result = json.loads(wait_for_line())
        seconds = time.perf_counter() - started
        sampler.ended.set()
        sampler.join()
        growth = of_pages(child.pid) - low
        go_on()
    peak = max(growth, sampler.largest - low_of_status)
    return {"way": way, "result": result, "seconds": seconds, "growth": growth, "peak": peak}


def child(run, way):
    """Does the work for ``measured``, which looks at this process before and after."""
    # A package may print to standard output; the answer alone goes there.
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(what):
        print(json.dumps(what), file=answers, flush=True)
        sys.stdin.readline()

    answer("imported")
    result, kept = run(way)
    answer(result)
    del kept


def main(run, *ways, fold=None):
    """The command line of an example. ``run(way)`` gives a result, and what is to be kept of it.

    ``fold`` is a way that uses ``ramfold.fold``. It is left out where that is refused.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", help="do the work once, in this process")
    parser.add_argument("--json", action="store_true", help="print for programs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(run, options.child)
    if options.way:
        print(json.dumps(run(options.way)[0], indent=1))
        return None
    # Only here: what this call sets up is memory that the child of a folded way has to pay for.
    if fold is not None and ramfold.fault_mode() == "thread":
        ways += (fold,)
    rows = [measured(way) for way in ways]
    plain = rows[0]
    for row in rows:
        row["growth_ratio"] = row["growth"] / plain["growth"]
        row["peak_ratio"] = row["peak"] / plain["peak"]
    wrong = [row["way"] for row in rows if row["result"] != plain["result"]]
    if options.json:
        print(json.dumps(rows))
    else:
        table(rows)
    if wrong:
        raise SystemExit(f"another result than the plain way's: {', '.join(wrong)}")
    return None


def table(rows):
    print(json.dumps(rows[0]["result"], indent=1))
    print(f"\n{'':10} {'growth':>12} {'ratio':>6} {'peak':>12} {'ratio':>6} {'seconds':>8}")
    for row in rows:
        growth, peak = row["growth"] / (1 << 20), row["peak"] / (1 << 20)
        print(f"{row['way']:10} {growth:8.1f} MiB {row['growth_ratio']:6.2f} {peak:8.1f} MiB "
              f"{row['peak_ratio']:6.2f} {row['seconds']:8.2f}")
