"""Measures what folded arrays and stores cost, beside what else there is.

    python3 figures.py                       a table: about ten minutes on two CPUs
    python3 figures.py --record DIR          the same, and a record of all runs as JSON
    python3 figures.py --lab target/release/lab     the codec and faults alone too, and the kernel's
                                             swap, as root
    python3 figures.py --quick               small sizes and one run: does it work?
    python3 figures.py --only store          one group: pages, codec, limit, inplace, store or
                                             examples

The other libraries are blosc2, lz4 and diskcache. One that is missing is named, and its rows are
left out. Each case runs in a process of its own. The cases of a group take turns, and each ratio
is of two cases of one run. Printed figures are medians over the runs.

What is read back is compared with what was written, in every case; a difference ends the program.

Memory is the growth of anonymous and shared bytes in memory (Pss_Anon + Pss_Shmem of
smaps_rollup), from the moment at which all is imported. That is all in: resident pages, and what
ramfold holds of compressed ones. Files that are mapped are not in it.
"""

import argparse
import datetime
import gc
import importlib.metadata
import importlib.util
import json
import mmap
import os
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import data
import numpy as np
import ramfold

PAGE = mmap.PAGESIZE
MIB = 1 << 20


class Sizes:
    """How much is measured. The quick form only says whether all of it works."""

    def __init__(self, quick, runs):
        self.runs = 1 if quick else runs
        self.pages = (1 if quick else 64) * MIB
        self.ids = (8 if quick else 256) * MIB
        self.limit = self.ids // 4
        self.reads = 500 if quick else 20_000
        self.values = 3000 if quick else 200_000
        self.quick = quick


def memory():
    """Anonymous and shared bytes of this process in memory."""
    gc.collect()
    with open("/proc/self/smaps_rollup") as rollup:
        found = re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", rollup.read(), re.MULTILINE)
    return 1024 * sum(map(int, found))


class Clock:
    """Seconds of a ``with`` block."""

    def __enter__(self):
        self.started = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self.started


def same(found, wanted, what):
    if not np.array_equal(found, wanted):
        raise SystemExit(f"wrong bytes: {what}")


# Pages: what a page of each array takes, and what it costs to fold it and to bring it back.

def page_case(sizes, kind, shuffle):
    source = data.array(kind, sizes.pages)
    array = ramfold.array(source, limit="1G", codec="lz4", shuffle=shuffle)
    with Clock() as out:
        array.page_out()
    stats = array.stats()
    pages = stats["folded_bytes"] // PAGE
    if stats["staged_bytes"] or pages < array.nbytes // PAGE:
        raise SystemExit(f"{kind}: not all pages left")
    touched = np.asarray(array).view(np.uint8)[::PAGE]
    with Clock() as back:
        touched.sum()
    same(array, source, kind)
    return {"bytes_per_page": stats["compressed_bytes"] / pages,
            "out_us": out.seconds * 1e6 / pages, "in_us": back.seconds * 1e6 / pages}


def pages_group(sizes, options):
    cases = [(kind, shuffle) for kind, element in data.ELEMENTS.items()
             for shuffle in (None, element)]
    runs = in_turns(sizes, cases, lambda run, case: {
        "group": "pages", "array": case[0], "shuffle": case[1],
        **in_child("page_case", options, *case)})
    for row in runs:
        plain = next(other for other in runs if other["run"] == row["run"]
                     and other["array"] == row["array"] and other["shuffle"] is None)
        for figure in ("bytes_per_page", "out_us", "in_us"):
            row[f"{figure}_ratio"] = row[figure] / plain[figure]
    return runs


# Codec: the same pages, without a region around it.

def codec_group(sizes, options):
    if options.lab is None:
        missing("lab (--lab target/release/lab): no times of the codec alone")
        return []
    lab = pathlib.Path(options.lab).resolve()
    with tempfile.TemporaryDirectory() as directory:
        for kind in data.ELEMENTS:
            array = data.array(kind, sizes.ids)
            pages = array.view(np.uint8)[:array.nbytes // PAGE * PAGE].reshape(-1, PAGE)
            pages[::8].tofile(os.path.join(directory, f"corpus-{kind}.bin"))
        command = [lab, "codecs", "--corpora", directory, "--algorithm", "lz4,zstd:1",
                   "--unit", "1", "--shuffle", "4,8", "--runs", str(sizes.runs),
                   f"--record={directory}"]
        if sizes.quick:
            command.append("--quick")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        record = next(pathlib.Path(directory).rglob("*.json"))
        found = json.loads(record.read_text())["runs"]
    # There are rows of means over all arrays too, and of each array shuffled as no one would.
    wanted = [row for row in found if row["corpus"] in data.ELEMENTS
              and row["dictionary"] == "none"
              and row["shuffle"] in (0, data.ELEMENTS[row["corpus"]])]
    figures = ("bytes_per_page", "compress_us", "decompress_us", "compress_ratio",
               "decompress_ratio")
    return [{"group": "codec", "array": row["corpus"], "codec": row["codec"],
             "shuffle": row["shuffle"] or None, "run": row["run"],
             **{figure: row[figure] for figure in figures}} for row in wanted]


# Limit: ids with a quarter of them in memory.

def ids_file(sizes, directory):
    """The ids as a file, which is mapped: so they are no memory of the process that reads them."""
    path = os.path.join(directory, "ids.npy")
    if not os.path.exists(path):
        np.save(path, data.array("ids", sizes.ids))
    return path


def limit_case(sizes, system, path):
    source = np.load(path, mmap_mode="r")
    source.sum()
    if system == "blosc2":
        import blosc2
    before = memory()
    with Clock() as fill:
        if system == "ramfold":
            array = ramfold.empty(source.shape, source.dtype, limit=sizes.limit)
            array[:] = source
        elif system == "plain":
            array = np.empty(source.shape, source.dtype)
            array[:] = source
        else:
            compression = {"codec": blosc2.Codec.LZ4, "filters": [blosc2.Filter.SHUFFLE],
                           "typesize": 8, "nthreads": 1, "clevel": 5}
            array = blosc2.asarray(source, chunks=(1 << 17,), blocks=(PAGE // 8,),
                                   cparams=compression, dparams={"nthreads": 1})
    held = memory() - before
    sums = []
    for _ in range(3):
        with Clock() as whole:
            total = array.sum() if system != "blosc2" else np.add.reduce(array[:])
        sums.append(whole.seconds)
    same(total, source.sum(), "sum")
    held = max(held, memory() - before)
    places = random.Random(data.SEED).choices(range(len(source)), k=sizes.reads)
    with Clock() as reads:
        found = [array[place] for place in places]
    same(np.array(found, np.int64).ravel(), source[places], "random elements")
    held = max(held, memory() - before)
    with Clock() as free:
        del array
    return {"share": held / source.nbytes, "fill_seconds": fill.seconds,
            "sum_us_per_page": statistics.median(sums) * 1e6 / (source.nbytes / PAGE),
            "element_us": reads.seconds * 1e6 / sizes.reads, "free_seconds": free.seconds,
            "free_ratio": free.seconds / fill.seconds}


def limit_group(sizes, options):
    systems = ["ramfold", "plain"] + ["blosc2"] * has("blosc2")
    if options.lab is None:
        missing("lab (--lab target/release/lab): no pages of `lab faultin` beside an array's")
    with tempfile.TemporaryDirectory() as directory:
        path = ids_file(sizes, directory)

        def run_case(run, system):
            if system == "faultin":
                return {"group": "limit", "system": system, **faultin(sizes, options, path)}
            return {"group": "limit", "system": system,
                    **in_child("limit_case", options, system, path)}

        runs = in_turns(sizes, systems + ["faultin"] * (options.lab is not None), run_case)
    for row in runs:
        of_run = {other["system"]: other for other in runs if other["run"] == row["run"]}
        row["sum_ratio"] = row["sum_us_per_page"] / of_run["plain"]["sum_us_per_page"]
        if "blosc2" in of_run:
            row["element_ratio"] = row["element_us"] / of_run["blosc2"]["element_us"]
        if "faultin" in of_run:
            for figure in ("sum_us_per_page", "element_us"):
                row[f"{figure}_vs_faultin"] = row[figure] / of_run["faultin"][figure]
    return runs


def faultin(sizes, options, path):
    """What the study of faults measures of the same pages, in the fault mode of arrays here."""
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "rows.json")
        pages = os.path.join(directory, "pages.bin")
        ids = np.load(path, mmap_mode="r").view(np.uint8)
        ids[:ids.nbytes // PAGE * PAGE].tofile(pages)
        subprocess.run([options.lab, "faultin", "--mode", ramfold.fault_mode(), "--threads", "1",
                        "--around", "on", "--algorithm", "lz4", "--corpus", pages, "--mib",
                        str(ids.nbytes // MIB), "--runs", "1", "--json", out],
                       check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(pathlib.Path(out).read_text())["rows"]
    of_order = {row["order"]: row["faultin_ns_per_page"] / 1000 for row in rows
                if row["handler"] == "region"}
    return {"sum_us_per_page": of_order["sequential"], "element_us": of_order["random"]}


# In place: passes over an array in less memory, ours and the kernel's.

def parts(count):
    """Sorted ids piece by piece, so that no second array of them is in memory."""
    draw, start, last = np.random.default_rng(data.SEED), 0, 0
    while start < count:
        part = last + np.cumsum(draw.geometric(1 / 500, min(1 << 17, count - start)))
        yield start, part
        start, last = start + len(part), part[-1]


def inplace_case(sizes, system):
    count = sizes.ids // 8
    if system == "ramfold":
        array = ramfold.empty(count, np.int64, limit=sizes.ids // 2)
    else:
        array = np.empty(count, np.int64)
    for start, part in parts(count):
        array[start:start + len(part)] = part
    passes = []
    for _ in range(3):
        with Clock() as one:
            array += 1
        passes.append(one.seconds)
    for start, part in parts(count):
        same(array[start:start + len(part)], part + 3, "a += 1")
    return {"pass_us_per_page": statistics.median(passes) * 1e6 / (array.nbytes / PAGE)}


def in_group(options, system, group=None):
    """The case in a memory group of its own: its figures, and what the group and the swap took.

    ``None`` if it did not come to its end in the group."""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory, "group.json")
        command = [options.lab, "swapped", "--out", out]
        command += [] if group is None else ["--group", str(group)]
        done = subprocess.run(
            [*command, "--", *child_command("inplace_case", options, system)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            if "wrong bytes" in done.stderr or group is None:
                raise SystemExit(f"{system}: {done.stderr}")
            return None
        took = json.loads(out.read_text())
    return {**json.loads(done.stdout), "group_bytes": float(group or took["peak_bytes"]),
            "held_bytes": float((group or took["peak_bytes"]) + took.get("store_bytes", 0))}


def group_of(options, size, probes=8):
    """The group that holds this much together with its swap, within 3 %; otherwise the one nearest
    to it in which the case comes to its end."""
    low, high, best = size // 10, size, None
    for _ in range(probes):
        group = (low + high) // 2
        row = in_group(options, "kernel", group)
        held = None if row is None else row["held_bytes"]
        print(f"group of {group / MIB:.0f} MiB: "
              f"{'did not end' if held is None else f'{held / MIB:.0f} MiB in all'}",
              file=sys.stderr)
        if held is not None and (best is None or abs(held - size) < abs(best[1] - size)):
            best = (group, held)
        if held is not None and abs(held / size - 1) < 0.03:
            break
        if held is None or held < size:
            low = group
        else:
            high = group
    return best and best[0]


def inplace_group(sizes, options):
    if options.lab is None:
        missing("lab (--lab target/release/lab): no passes beside the kernel's swap")
        return []
    systems, group = ["plain", "ramfold"], None
    if sizes.quick:
        missing("the kernel's swap, in the short form")
    else:
        group = group_of(options, int(in_group(options, "ramfold")["held_bytes"]))
        systems += ["kernel"] * (group is not None)
    runs = in_turns(sizes, systems, lambda run, system: {
        "group": "inplace", "system": system,
        **in_group(options, system, group if system == "kernel" else None)})
    for row in runs:
        of_run = {other["system"]: other for other in runs if other["run"] == row["run"]}
        row["pass_ratio"] = row["pass_us_per_page"] / of_run["plain"]["pass_us_per_page"]
        if "kernel" in of_run:
            row["pass_vs_kernel"] = row["pass_us_per_page"] / of_run["kernel"]["pass_us_per_page"]
            row["held_vs_kernel"] = row["held_bytes"] / of_run["kernel"]["held_bytes"]
    return runs


# Store: a mapping with many values.

def as_they_are(value):
    return value


def by_lz4():
    """How the values of a dict are compressed, and back."""
    import lz4.block
    return lz4.block.compress, lz4.block.decompress


def set_some(kept, some, compress):
    """Seconds that it takes. A dict of compressed values pays for no method in Python."""
    with Clock() as clock:
        if compress is as_they_are:
            for key, value in some:
                kept[key] = value
        else:
            for key, value in some:
                kept[key] = compress(value)
    return clock.seconds


def get_all(kept, order, decompress):
    with Clock() as clock:
        if decompress is as_they_are:
            for key in order:
                kept[key]
        else:
            for key in order:
                decompress(kept[key])
    return clock.seconds


def mapping(system, directory):
    if system == "diskcache":
        import diskcache
        return diskcache.Cache(directory, eviction_policy="none", size_limit=1 << 40)
    if system.startswith("Store"):
        return ramfold.Store(*system.split()[1:])
    return {}


def used(system, directory):
    """All in. The files of diskcache are in memory, and of the process they are no part."""
    files = pathlib.Path(directory).rglob("*") if system == "diskcache" else []
    return memory() + sum(512 * path.stat().st_blocks for path in files)


def store_case(sizes, system, kind, directory):
    compress, decompress = by_lz4() if system == "dict of lz4" else (as_they_are, as_they_are)
    if system == "diskcache":
        import diskcache as _
    # What makes the values is there before.
    for _ in data.values(kind, 10):
        pass
    before, kept, setting, some = memory(), mapping(system, directory), 0.0, []
    for key, value in zip(data.keys(sizes.values), data.values(kind, sizes.values)):
        some.append((key, value))
        if len(some) == 1000:
            setting += set_some(kept, some, compress)
            some.clear()
    del key, value
    held = used(system, directory) - before
    order = list(data.keys(sizes.values))
    draw = random.Random(data.SEED)
    draw.shuffle(order)
    getting = get_all(kept, order, decompress)
    for key, value in zip(data.keys(sizes.values), data.values(kind, sizes.values)):
        if decompress(kept[key]) != value:
            raise SystemExit(f"wrong value: {system}, {kind}")
    row = {"bytes_per_value": held / sizes.values, "set_us": setting * 1e6 / sizes.values,
           "get_us": getting * 1e6 / sizes.values}
    if system.startswith("Store"):
        stats = kept.stats()
        row["of_store"] = {name: stats[name] / sizes.values for name in
                           ("object_bytes", "resident_bytes", "overhead_bytes", "index_bytes")}
    return row


def store_group(sizes, options):
    systems = ["dict", "Store", "Store lz4", "Store zstd:1"]
    systems += ["dict of lz4"] * has("lz4") + ["diskcache"] * has("diskcache")
    cases = [(system, kind) for kind in data.VALUES for system in systems]

    def run_case(run, case):
        # diskcache takes as long as all others together, and only stands beside them.
        if case[0] == "diskcache" and run > 0:
            return None
        # /dev/shm is memory.
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            inside = os.path.join(directory, "cache")
            return {"group": "store", "system": case[0], "values": case[1],
                    **in_child("store_case", options, *case, inside)}

    runs = in_turns(sizes, cases, run_case)
    for row in runs:
        of_run = {other["system"]: other for other in runs
                  if other["run"] == row["run"] and other["values"] == row["values"]}
        row["memory_ratio"] = row["bytes_per_value"] / of_run["dict"]["bytes_per_value"]
        if "dict of lz4" in of_run:
            row["set_ratio"] = row["set_us"] / of_run["dict of lz4"]["set_us"]
            row["get_ratio"] = row["get_us"] / of_run["dict of lz4"]["get_us"]
    return runs


# Examples: programs that people write, plain and folded. They compare their results themselves.

EXAMPLES = {"pandas_groupby.py": "pandas", "sklearn_fit.py": "sklearn",
            "torch_dataset.py": "torch", "sqlite_cache.py": "sqlite3"}


def examples_group(sizes, options):
    if sizes.quick:
        missing("examples in the short form: tests/test_examples.py runs them")
        return []
    folder = pathlib.Path(__file__).resolve().parents[1] / "examples"
    cases = [name for name, package in EXAMPLES.items() if has(package)]
    rows = []
    for run in range(sizes.runs):
        for name in cases:
            done = subprocess.run([sys.executable, folder / name, "--json"], check=True,
                                  stdout=subprocess.PIPE, text=True)
            for found in json.loads(done.stdout):
                figures = {figure: float(found[figure]) for figure in
                           ("growth", "growth_ratio", "peak", "peak_ratio", "seconds")}
                rows.append({"group": "examples", "example": name, "way": found["way"],
                             **figures, "run": run})
    return rows


# What runs the cases, and keeps what they say.

def missing(what):
    print(f"missing: {what}", file=sys.stderr)


def has(package):
    found = importlib.util.find_spec(package) is not None
    if not found:
        missing(package)
    return found


def in_turns(sizes, cases, measure):
    """A row of each case in each run. The order of the cases is drawn for every run."""
    rows, draw = [], random.Random(data.SEED)
    for run in range(sizes.runs):
        for case in draw.sample(cases, len(cases)):
            row = measure(run, case)
            if row is not None:
                rows.append({**row, "run": run})
    return rows


def child_command(name, options, *arguments):
    command = [sys.executable, __file__, "--child", json.dumps([name, *arguments])]
    return command + ["--quick"] * options.quick


def in_child(name, options, *arguments):
    """Calls a function of this program in a process of its own."""
    done = subprocess.run(child_command(name, options, *arguments), stdout=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        raise SystemExit(f"{name}{arguments} ended with status {done.returncode}")
    return json.loads(done.stdout)


def medians(runs):
    """A row of each case: its medians, with the least and the largest figure of the runs."""
    groups = {}
    for row in runs:
        keys = tuple((name, value) for name, value in row.items()
                     if name != "run" and (value is None or isinstance(value, str)
                                           or name == "shuffle"))
        groups.setdefault(keys, []).append(row)
    rows = []
    for keys, group in groups.items():
        row = {**dict(keys), "runs": len(group)}
        for name, value in group[0].items():
            if isinstance(value, float):
                figures = [other[name] for other in group]
                row |= {name: statistics.median(figures), f"{name}_min": min(figures),
                        f"{name}_max": max(figures)}
            elif isinstance(value, dict):
                row[name] = value
        rows.append(row)
    return rows


def table(rows):
    for row in rows:
        keys = [str(value) for name, value in row.items()
                if name not in ("runs", "of_store") and not isinstance(value, float)]
        figures = [f"{name} {value:.4g}" for name, value in row.items()
                   if isinstance(value, float) and not name.endswith(("_min", "_max"))]
        print(f"{' '.join(keys):32} {'  '.join(figures)}")


def machine():
    """Where this runs, as records of `lab` say it."""
    def field(path, name):
        found = re.search(rf"^{name}\s*:\s*(.*)$", pathlib.Path(path).read_text(), re.MULTILINE)
        return found.group(1) if found else "unknown"

    root = pathlib.Path(__file__).resolve().parents[2]
    git = ["git", "-C", root, "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"
    now = datetime.datetime.now(datetime.UTC)
    return {"cpu": field("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
            "kernel": os.uname().release,
            "memory_bytes": 1024 * int(field("/proc/meminfo", "MemTotal").split()[0]),
            "commit": commit, "date": f"{now:%F}", "seconds": int(now.timestamp()),
            "python": sys.version.split()[0], "numpy": np.__version__,
            "ramfold": ramfold.__version__, "fault_mode": ramfold.fault_mode()}


def record(directory, only, values, rows, runs):
    """Writes a record, which no other one is overwritten by."""
    here = machine()
    versions = {package: importlib.metadata.version(package)
                for package in ("blosc2", "lz4", "diskcache") if importlib.util.find_spec(package)}
    command = shlex.join(["python3", "python/bench/figures.py", *sys.argv[1:]])
    study = "python"
    if only is not None:
        study = f"python-{only}"
    path = pathlib.Path(directory, f"{here['date']}-{study}-{here['commit']}.json")
    number = 2
    while path.exists():
        path = path.with_name(f"{here['date']}-{study}-{here['commit']}-{number}.json")
        number += 1
    content = {"study": "python", "command": command,
               "machine": here | {"peers": versions}, "values": values, "rows": rows,
               "runs": runs}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"record: {path}")


GROUPS = {"pages": pages_group, "codec": codec_group, "limit": limit_group,
          "inplace": inplace_group, "store": store_group, "examples": examples_group}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small sizes, one run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each case")
    parser.add_argument("--only", choices=GROUPS, help="measure one group")
    parser.add_argument("--lab", metavar="PATH", help="the program `lab`, for the codec alone")
    parser.add_argument("--record", metavar="DIR", help="write all runs there")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = Sizes(options.quick, options.runs)
    if options.child:
        name, *arguments = json.loads(options.child)
        print(json.dumps(globals()[name](sizes, *arguments)))
        return
    values = {kind: dict(zip(("length", "shrunk"), data.shrunk(kind))) for kind in data.VALUES}
    for kind, told in values.items():
        print(f"values of {kind}: {told['length']:.0f} bytes, zlib level 1 shrinks them "
              f"{told['shrunk']:.2f} times")
    runs = []
    for name, group in GROUPS.items():
        if options.only in (None, name):
            found = group(sizes, options)
            table(medians(found))
            runs += found
    if options.record:
        record(options.record, options.only, values, medians(runs), runs)


if __name__ == "__main__":
    main()
