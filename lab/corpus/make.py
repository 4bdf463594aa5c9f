#!/usr/bin/env python3
"""Make page corpora from real programs: resident private anonymous pages, in address order, of seeded work.

usage: make.py OUTDIR [--mib N] [NAME...]      NAME: python node sqlite gcc redis java (default: every one installed)

Writes OUTDIR/corpus-NAME.bin (4096-byte pages, at most N MiB, default 64) and OUTDIR/corpus-NAME.va (one
little-endian u64 virtual page number per page, so that a cluster can ask whether pages are true neighbours).
Pages filled with one 8-byte word are left out and counted on the output line: a store never hands them to a codec.
When a program holds more than N MiB, runs of 64 neighbouring pages spread evenly over its memory are taken.
Packages: python3 nodejs sqlite3 g++ redis-server default-jdk-headless (Debian names); nothing is downloaded.
No root is needed: the programs are children of this script. One program at a time, under half a minute in all.
Two runs differ in most bytes (pointers, hash seeds inside the programs) and agree in what they cost within 3 %.
Dumps can hold secrets of the programs they come from: here all content is made up, still, do not commit them.
"""
import os, random, shutil, signal, socket, struct, subprocess, sys, tempfile, time

PAGE, RUN = 4096, 64

PYTHON = r'''
import ast, collections, decimal, glob, json, random, re, sys, sysconfig
random.seed(11)
lib = sysconfig.get_paths()["stdlib"]
files = sorted(glob.glob(lib + "/*/*.py"))[:260]
texts = [open(f, encoding="utf8", errors="ignore").read() for f in files]
trees = [ast.parse(t) for t in texts[:120]]
words = collections.Counter(w for t in texts for w in re.findall(r"\w+", t))
index = collections.defaultdict(list)
for i, t in enumerate(texts):
    for w in set(re.findall(r"\w+", t)): index[w].append(i)
docs = [{"user": random.randrange(10**6), "when": 1700000000 + i * 37, "path": "/srv/%s/%d" % (random.choice(files)[-20:], i),
         "ok": i % 7 != 0, "scores": [round(random.gauss(50, 15), 3) for _ in range(i % 9)],
         "tags": random.sample(["red", "green", "blue", "hot", "cold", "new"], i % 4)} for i in range(60000)]
lines = [json.dumps(d) for d in docs[:30000]]
back = [json.loads(l) for l in lines[:20000]]
money = [decimal.Decimal(random.randrange(10**8)) / 100 for _ in range(40000)]
rows = [(i, random.random(), "name%06d" % random.randrange(10**6), None) for i in range(120000)]
print("ready", flush=True); sys.stdin.readline()
'''

NODE = r'''
let s = 12345; const rnd = n => { s = (Math.imul(s, 1103515245) + 12345) >>> 0; return (s >>> 8) % n; };
class Node { constructor(k) { this.key = k; this.left = null; this.right = null; this.hits = rnd(1000); this.label = "node-" + k; } }
let root = null;
for (let i = 0; i < 150000; i++) { const n = new Node(rnd(1 << 24)); if (!root) { root = n; continue; }
  let p = root; for (;;) { if (n.key < p.key) { if (!p.left) { p.left = n; break; } p = p.left; } else { if (!p.right) { p.right = n; break; } p = p.right; } } }
const map = new Map(); for (let i = 0; i < 150000; i++) map.set("session:" + rnd(1 << 30), { id: i, at: 1700000000000 + i * 911, roles: ["user", "admin", "guest"].slice(rnd(3)), w: rnd(1000) / 7 });
const docs = []; for (let i = 0; i < 30000; i++) docs.push(JSON.stringify({ id: i, title: "Document number " + rnd(1e6), body: "lorem ipsum dolor sit amet ".repeat(rnd(8)), price: rnd(100000) / 100, tags: [rnd(9), rnd(9)] }));
const parsed = docs.map(d => JSON.parse(d));
const f = new Float64Array(500000); for (let i = 0; i < f.length; i++) f[i] = Math.sin(i / 100) * rnd(1000);
const u = new Uint32Array(1000000); for (let i = 0; i < u.length; i++) u[i] = rnd(5000);
const html = []; for (let i = 0; i < 20000; i++) html.push(`<div class="row ${i % 2 ? "odd" : "even"}"><a href="/item/${rnd(1e6)}">Item ${i}</a><span>${rnd(1e4)}</span></div>`);
globalThis.keep = [root, map, docs, parsed, f, u, html];
console.log("ready"); process.stdin.resume();
'''

SQLITE = """pragma page_size=4096;
create table item(id integer primary key, sku text, name text, price real, qty int, made int, note text);
with recursive c(i, r) as (select 1, 12345 union all select i+1, (r*1103515245+12345) & 2147483647 from c where i < 420000)
insert into item select i, printf('SKU-%08x', r), 'Item number ' || (r % 90000), (r % 1000000)/100.0, r % 500, 1600000000 + i*61,
  case r % 5 when 0 then null when 1 then 'back order' when 2 then 'ships in ' || (r % 30) || ' days' else substr('The quick brown fox jumps over the lazy dog', 1 + r % 30) end from c;
create index item_sku on item(sku); create index item_made on item(made, qty);
create table event(item int, kind text, at int, body text);
insert into event select id, case qty % 3 when 0 then 'view' when 1 then 'sale' else 'return' end, made + qty, name || ' / ' || sku from item where id % 2 = 0;
select 'ready';
"""

GCC = r'''
#include <bits/stdc++.h>
using namespace std;
template <int N> struct S { map<string, vector<array<int, N>>> m; regex r{"a+(b|c)*"}; variant<int, string, double> v;
  int go(int x) { vector<pair<int, string>> q; for (int i = 0; i < x; i++) { q.emplace_back(i * N, to_string(i)); m[q.back().second].push_back({}); }
    sort(q.begin(), q.end(), [](auto &a, auto &b) { return a.second < b.second; }); smatch k; string t = q.empty() ? "" : q[0].second;
    if (regex_search(t, k, r)) x += k.size(); unordered_map<string, set<int>> u; for (auto &p : q) u[p.second].insert(p.first + N); ostringstream o; for (auto &p : u) o << p.first << p.second.size();
    visit([&](auto &z) { o << z; }, v); return x + o.str().size() + accumulate(q.begin(), q.end(), 0, [](int s, auto &p) { return s + p.first; }); } };
'''

JAVA = r'''
import java.util.*;
public class Work {
  record Order(long id, String customer, double total, int[] lines, List<String> tags) {}
  static Object[] keep;
  public static void main(String[] a) throws Exception {
    Random r = new Random(7); Map<String, Order> byKey = new HashMap<>(); List<Order> list = new ArrayList<>(); TreeMap<Long, String> tree = new TreeMap<>();
    for (int i = 0; i < 200000; i++) { int[] l = new int[r.nextInt(8)]; for (int j = 0; j < l.length; j++) l[j] = r.nextInt(5000);
      Order o = new Order(1000000L + i, "customer-" + r.nextInt(40000), r.nextInt(1000000) / 100.0, l, r.nextBoolean() ? List.of("new", "eu") : List.of());
      list.add(o); byKey.put("order:" + Long.toHexString(r.nextLong()), o); if (i % 2 == 0) tree.put(r.nextLong(), o.customer() + "/" + i); }
    StringBuilder b = new StringBuilder(); for (int i = 0; i < 300000; i++) b.append("line ").append(i).append(": ").append(r.nextInt(1000)).append('\n');
    double[] d = new double[400000]; for (int i = 0; i < d.length; i++) d[i] = r.nextGaussian(); LinkedList<Integer> q = new LinkedList<>(); for (int i = 0; i < 200000; i++) q.add(r.nextInt());
    keep = new Object[]{byKey, list, tree, b, d, q}; System.gc(); System.out.println("ready"); System.in.read();
  }
}
'''


def start(argv, stdin="", **kw):
    env = dict(os.environ, PYTHONHASHSEED="0", LC_ALL="C", **kw)
    fixed = ["setarch", os.uname().machine, "-R"] if shutil.which("setarch") else []
    p = subprocess.Popen(fixed + argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
    p.stdin.write(stdin); p.stdin.flush()
    return p


def until_ready(p):
    for line in p.stdout:
        if line.strip() == "ready":
            time.sleep(0.3)
            return p
    raise RuntimeError("the program ended before it was ready")


def rss(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"): return int(line.split()[1]) // 1024
    return 0


def children(pid):
    return [int(x) for x in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def python(tmp): return until_ready(start([sys.executable, "-c", PYTHON])), None
def node(tmp): return until_ready(start(["node", "--max-old-space-size=1024", "-e", NODE])), None
def sqlite(tmp): return until_ready(start(["sqlite3", ":memory:"], SQLITE)), None


def java(tmp):
    open(tmp + "/Work.java", "w").write(JAVA)
    subprocess.run(["javac", "-d", tmp, tmp + "/Work.java"], check=True)
    return until_ready(start(["java", "-Xmx300m", "-Xms64m", "-XX:+UseSerialGC", "-cp", tmp, "Work"])), None


def gcc(tmp):
    src = GCC + "".join(f"int f{i}(int x) {{ S<{i}> s; return s.go(x) + {i}; }}\n" for i in range(1, 60))
    open(tmp + "/big.cc", "w").write(src)
    p = start(["g++", "-O2", "-std=c++17", "-S", "-o", "/dev/null", tmp + "/big.cc"])
    cc1 = None
    for _ in range(6000):
        if p.poll() is not None: raise RuntimeError("the compiler ended before it was large enough")
        cc1 = cc1 or next((c for c in children(p.pid) if "cc1plus" in open(f"/proc/{c}/comm").read()), None)
        if cc1 and rss(cc1) >= 420: break
        time.sleep(0.01)
    os.kill(cc1, signal.SIGSTOP)
    return p, cc1


def redis(tmp):
    sock = tmp + "/r.sock"
    p = start(["redis-server", "--port", "0", "--unixsocket", sock, "--save", "", "--appendonly", "no", "--dir", tmp, "--activedefrag", "no"])
    for _ in range(200):
        if os.path.exists(sock): break
        time.sleep(0.05)
    time.sleep(0.2)
    c = socket.socket(socket.AF_UNIX); c.connect(sock)
    rnd, sent = random.Random(5), 0
    f = c.makefile("rb")
    def send(cmds):
        c.sendall(b"".join(b"*%d\r\n" % len(a) + b"".join(b"$%d\r\n%s\r\n" % (len(x), x) for x in a) for a in cmds))
        for _ in cmds: f.readline()
    def enc(*a): return [str(x).encode() for x in a]
    for base in range(0, 90000, 500):
        batch = []
        for i in range(base, base + 500):
            batch.append(enc("SET", f"session:{rnd.getrandbits(64):016x}", '{"user":%d,"cart":[%s],"csrf":"%032x","seen":%d}' % (rnd.randrange(10**6), ",".join(str(rnd.randrange(5000)) for _ in range(rnd.randrange(6))), rnd.getrandbits(128), 1700000000 + i)))
            batch.append(enc("HSET", f"user:{i}", "name", f"User {rnd.randrange(9000)}", "mail", f"u{i}@example.org", "score", rnd.randrange(1000), "lang", rnd.choice(["en", "de", "fr"])))
            batch.append(enc("ZADD", f"board:{i % 40}", rnd.randrange(10**6), f"player:{i}"))
            batch.append(enc("RPUSH", f"queue:{i % 300}", f"job-{i}-" + "x" * rnd.randrange(40)))
        send(batch)
    return p, None


def dump(pid, path, mib):
    pages, same = [], 0
    with open(f"/proc/{pid}/mem", "rb", 0) as mem, open(f"/proc/{pid}/pagemap", "rb", 0) as pm:
        for line in open(f"/proc/{pid}/maps"):
            f = line.split()
            if f[1][1] != "w" or f[1][3] != "p" or (len(f) > 5 and f[5].startswith(("[vv", "[vs"))): continue
            a, z = (int(x, 16) // PAGE for x in f[0].split("-"))
            at = a
            while at < z:
                n = min(z - at, 1 << 16)
                pm.seek(at * 8)
                ent = struct.unpack(f"<{n}Q", pm.read(n * 8))
                pages += [at + i for i, e in enumerate(ent) if e >> 63 & 1 and not e >> 61 & 1]  # present, and not of a file
                at += n
        limit = mib * 256
        runs = [pages[i:i + RUN] for i in range(0, len(pages), RUN)]
        step, acc, picked = min(1.0, limit * 1.0 / max(1, len(pages))), 0.0, []
        for r in runs:
            acc += step
            if acc >= 0.999999: acc -= 1; picked.append(r)
        n = 0
        with open(path + ".bin", "wb") as o, open(path + ".va", "wb") as v:
            for r in picked:
                for vpn in r:
                    mem.seek(vpn * PAGE)
                    try: d = mem.read(PAGE)
                    except OSError: continue
                    if d == d[:8] * 512: same += 1; continue
                    if n < limit: o.write(d); v.write(struct.pack("<Q", vpn)); n += 1
    return len(pages), n, same


NEED = {"python": [], "node": ["node"], "sqlite": ["sqlite3"], "gcc": ["g++"], "redis": ["redis-server"], "java": ["java", "javac"]}


def main():
    args, mib = sys.argv[1:], 64
    if "--mib" in args:
        i = args.index("--mib"); mib = int(args[i + 1]); del args[i:i + 2]
    if not args or args[0].startswith("-"): sys.exit(__doc__)
    make(args[0], args[1:] or list(NEED), mib, NEED, globals())


def make(out, names, mib, need, programs):
    os.makedirs(out, exist_ok=True)
    for name in names:
        lacks = [x for x in need[name] if not shutil.which(x)]
        if lacks: print(f"{name}: left out, {lacks[0]} is not installed"); continue
        t = time.time()
        with tempfile.TemporaryDirectory() as tmp:
            os.chmod(tmp, 0o755)
            p, pid = programs[name](tmp)
            try: total, kept, same = dump(pid or p.pid, f"{out}/corpus-{name}", mib)
            finally:
                if pid: os.kill(pid, signal.SIGKILL)
                p.kill(); p.wait()
        print(f"{name}: {total} anonymous pages, {kept} written, {same} same-filled left out, {time.time() - t:.0f} s", flush=True)


if __name__ == "__main__":
    main()
