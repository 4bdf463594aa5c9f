#!/usr/bin/env python3
"""Make the corpora on which pagelz's shipped tables are trained: programs outside the six of make.py.

usage: train.py OUTDIR [--mib N] [NAME...]     NAME: perl bash awk tcl rustc rust cxx go git sort vim postgres
                                               (default: every one installed)

Writes OUTDIR/corpus-NAME.bin as make.py does, at most N MiB (default 24) of each. No Python, Node, SQLite, gcc,
Redis or Java is among them, because tables are judged on those. (g++ builds one of the programs and is not measured.)
Packages: perl bash mawk tcl git coreutils vim g++ postgresql (Debian names), a Rust toolchain and Go.
Then `cargo run --release -p lab -- codec-tables OUTDIR/*.bin` writes codec/src/algorithms/pagelz/shipped.rs.
"""
import os, random, shutil, signal, subprocess, sys, time
from make import make, rss, start, until_ready

PERL = r'''
srand(7); my (%users, @docs, %index, @rows);
for my $i (0..60000) { my $k = sprintf("user%06d", int rand 1e6);
  $users{$k} = { name => "Name $i", mail => "$k\@example.org", age => int(rand 90), tags => [map { ("red","green","blue")[rand 3] } 0..int rand 4], score => rand() * 100 }; }
for my $i (0..40000) { push @docs, join(" ", map { ("alpha","beta","gamma","delta","epsilon","zeta")[rand 6] } 0..int rand 12); $index{$_}{$i} = 1 for split / /, $docs[-1]; }
push @rows, [$_, rand(), "row$_", undef, $_ * 3] for 0..60000;
$| = 1; print "ready\n"; <STDIN>;
'''

BASH = r'''
declare -A m; declare -a l; RANDOM=5
for ((i = 0; i < 60000; i++)); do m["key-$((RANDOM * 32768 + RANDOM))"]="value $i of $RANDOM"; l[i]="$i:$RANDOM:/usr/share/doc/$((RANDOM % 900))/copyright"; done
echo ready; read -r _
'''

AWK = r'''BEGIN { srand(3); for (i = 0; i < 150000; i++) { a["host" int(rand() * 40000) ".example.net"] += i; b[i] = sprintf("%d GET /item/%d HTTP/1.1 200 %d", 1700000000 + i, rand() * 9999, rand() * 50000); c[i % 977, int(rand() * 99)] = rand() } print "ready"; fflush(); getline }'''

TCL = r'''
expr {srand(9)}
for {set i 0} {$i < 60000} {incr i} { dict set d "k[expr {int(rand()*1e6)}]" [list $i [expr {rand()}] "string $i" [expr {$i * 7}]]; lappend l [list point $i [expr {$i % 360}]]; set arr($i) "text of line $i" }
puts ready; flush stdout; gets stdin
'''

RUSTC = r'''
use std::collections::*; use std::fmt::Debug;
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)] pub struct P { a: u64, b: String, c: Vec<u32>, d: Option<Box<P>> }
pub fn show<T: Debug + Clone, const N: usize>(x: &[T; N]) -> Vec<String> { let mut m = BTreeMap::new(); let mut h = HashMap::new(); for (i, y) in x.iter().enumerate() { m.insert(format!("{y:?}"), i); h.entry(i % 7).or_insert_with(Vec::new).push(y.clone()); } m.keys().cloned().chain(h.values().map(|v| format!("{v:?}"))).collect() }
'''

RUST = r'''
use std::collections::*; use std::io::Write;
#[derive(Clone)] struct Order { id: u64, customer: String, total: f64, lines: Vec<(u32, u16)>, paid: bool, next: Option<Box<Order>> }
#[derive(Clone, Copy)] #[repr(C)] struct Row { key: u32, kind: u16, flags: u16, at: u64, price: f32, left: i32 }
fn main() {
    let mut s = 11_u64; let mut r = move |n: u64| { s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (s >> 33) % n };
    let (mut tree, mut hash, mut rows, mut text) = (BTreeMap::new(), HashMap::new(), Vec::new(), Vec::new());
    for i in 0..60000_u64 { let o = Order { id: i, customer: format!("customer-{}", r(9000)), total: r(1000000) as f64 / 100.0, lines: (0..r(6)).map(|_| (r(5000) as u32, r(20) as u16)).collect(), paid: r(2) == 0, next: None }; if i % 3 == 0 { tree.insert(r(1 << 40), Order { next: Some(Box::new(o.clone())), ..o.clone() }); } hash.insert(format!("order:{:x}", r(1 << 50)), o); }
    for i in 0..300000_u64 { rows.push(Row { key: r(1 << 20) as u32, kind: r(9) as u16, flags: (r(4) * 16) as u16, at: 1700000000000 + i * 61, price: r(10000) as f32 / 100.0, left: r(500) as i32 - 10 }); }
    for i in 0..60000_u64 { text.push(format!("{{\"id\":{i},\"level\":\"{}\",\"message\":\"request {} took {} us\"}}", ["info", "warn", "error"][r(3) as usize], r(1 << 30), r(90000))); }
    println!("ready"); std::io::stdout().flush().unwrap(); let mut l = String::new(); std::io::stdin().read_line(&mut l).unwrap();
    println!("{} {} {} {} {}", tree.len(), hash.len(), rows.iter().map(|r| r.key as u64 + r.at + r.kind as u64 + r.flags as u64 + r.left as u64 + r.price as u64).sum::<u64>(), text.len(), hash.values().map(|o| o.id + o.lines.len() as u64 + o.total as u64 + o.paid as u64 + o.customer.len() as u64).sum::<u64>());
}
'''

CXX = r'''
#include <bits/stdc++.h>
using namespace std; struct N { long key; string name; double w; N *l = 0, *r = 0; vector<short> v; }; struct R { int id; char code[12]; float x, y; short q; char ok; };
int main() { mt19937 g(3); map<string, set<int>> m; unordered_map<long, N *> u; deque<R> d; vector<double> s; vector<int> n; list<string> t; N *root = 0;
  for (int i = 0; i < 60000; i++) { N *x = new N{(long)g(), "node " + to_string(i), g() / 1e6}; x->v.resize(g() % 9, i % 100); u[x->key] = x; N **p = &root; while (*p) p = x->key < (*p)->key ? &(*p)->l : &(*p)->r; *p = x; m["word" + to_string(g() % 9000)].insert(i); t.push_back("a line of text with number " + to_string(g() % 1000)); }
  for (int i = 0; i < 200000; i++) { R r{i, {}, float(g() % 1000) / 10, float(i) / 3, short(g() % 300), char(i % 2)}; snprintf(r.code, 12, "C%07u", unsigned(g() % 10000000)); d.push_back(r); s.push_back(sin(i / 50.0) * (g() % 100)); n.push_back(g() % 5000); n.push_back(i); }
  puts("ready"); fflush(stdout); getchar(); printf("%zu", m.size() + u.size() + d.size() + s.size() + n.size() + t.size()); }
'''

GO = r'''
package main
import ("bufio"; "fmt"; "math/rand"; "os")
type Item struct { ID int64; Name string; Tags []string; Price float64; Next *Item; Seen map[string]int }
func main() {
	r := rand.New(rand.NewSource(5)); byName := map[string]*Item{}; var all []*Item; var last *Item; var lines []string; nums := make([]int32, 0); fl := make([]float64, 0)
	for i := 0; i < 50000; i++ { it := &Item{ID: int64(i), Name: fmt.Sprintf("item-%d", r.Intn(1<<30)), Price: float64(r.Intn(100000)) / 100, Next: last, Seen: map[string]int{}}; for j := 0; j < r.Intn(4); j++ { it.Tags = append(it.Tags, []string{"new", "sale", "old"}[r.Intn(3)]); it.Seen[fmt.Sprint(r.Intn(99))] = j }; byName[it.Name] = it; all = append(all, it); last = it; lines = append(lines, fmt.Sprintf("%d level=info msg=\"served %d\" took=%dus", 1700000000+i, r.Intn(9999), r.Intn(5000))) }
	for i := 0; i < 500000; i++ { nums = append(nums, int32(r.Intn(3000))); fl = append(fl, r.NormFloat64()) }
	fmt.Println("ready"); bufio.NewReader(os.Stdin).ReadString('\n'); fmt.Println(len(byName), len(all), len(lines), len(nums), len(fl), last.Name)
}
'''

SQL = """set work_mem = '400MB';
create table item as select i as id, 'SKU-' || md5(i::text) as sku, 'Item number ' || (i % 9000) as name, (i * 7919 % 100000)::numeric / 100 as price, now() as made, i % 7 = 0 as ok from generate_series(1, 200000) i;
select count(*) from (select a.sku, b.name, a.price, b.made from item a join item b on a.id = b.id * 2 order by a.price, b.sku offset 1) x, lateral (select pg_sleep(case when x.price = -1 then 1 else 0 end)) y where x.price >= 0 and (select pg_sleep(60)) is not null;
"""


def text(name): return lambda tmp: (until_ready(start(COMMANDS[name])), None)


COMMANDS = {"perl": ["perl", "-e", PERL], "bash": ["bash", "-c", BASH], "awk": ["awk", AWK]}
perl, bash, awk = text("perl"), text("bash"), text("awk")


def file(tmp, name, content):
    with open(f"{tmp}/{name}", "w") as f: f.write(content)
    return f"{tmp}/{name}"


def tcl(tmp): return until_ready(start(["tclsh", file(tmp, "a.tcl", TCL)])), None


def large_enough(p, mib):
    for _ in range(6000):
        if p.poll() is not None: raise RuntimeError("the program ended before it was large enough")
        if rss(p.pid) >= mib: break
        time.sleep(0.01)
    os.kill(p.pid, signal.SIGSTOP)
    return p, None


def rustc(tmp):
    uses = "".join(f"pub fn f{i}(x: u64) -> Vec<String> {{ let p = P {{ a: x, b: x.to_string(), c: vec![{i}; 3], d: None }}; show::<P, {i}>(&std::array::from_fn(|_| p.clone())) }}\n" for i in range(1, 500))
    return large_enough(start(["rustc", "--edition", "2021", "--crate-type", "lib", "-Copt-level=2", "-o", tmp + "/x.rlib", file(tmp, "big.rs", RUSTC + uses)]), 330)


def rust(tmp):
    subprocess.run(["rustc", "-O", "--edition", "2021", "-o", tmp + "/rust", file(tmp, "a.rs", RUST)], check=True, stderr=subprocess.DEVNULL)
    return until_ready(start([tmp + "/rust"])), None


def cxx(tmp):
    subprocess.run(["g++", "-O2", "-o", tmp + "/cxx", file(tmp, "a.cc", CXX)], check=True)
    return until_ready(start([tmp + "/cxx"])), None


def go(tmp):
    env = dict(os.environ, GOCACHE=tmp + "/cache", GOFLAGS="-mod=mod", GO111MODULE="off")
    subprocess.run(["go", "build", "-o", tmp + "/prog", file(tmp, "a.go", GO)], check=True, env=env, cwd=tmp)
    return until_ready(start([tmp + "/prog"])), None


def git(tmp):
    subprocess.run(["git", "init", "-q", tmp + "/repo"], check=True)
    rnd, p = random.Random(2), start(["git", "-C", tmp + "/repo", "fast-import", "--quiet", "--depth=0"])
    for i in range(60000):
        data = f"file {i} of {rnd.getrandbits(64):x}\n"
        p.stdin.write(f"blob\nmark :{i + 1}\ndata {len(data)}\n{data}\n")
    p.stdin.write("commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 2\nx\n\n")
    for i in range(60000): p.stdin.write(f"M 100644 :{i + 1} src/dir{rnd.randrange(300)}/module_{i}.c\n")
    p.stdin.write("\nprogress ready\n"); p.stdin.flush()
    for line in p.stdout:
        if "ready" in line: break
    return p, None


def sort(tmp):
    rnd, p = random.Random(4), start(["sort", "-S", "300M"])
    for i in range(250000):
        p.stdin.write(f"10.0.{rnd.randrange(256)}.{rnd.randrange(256)} - - [25/Nov/2026:10:{i // 60 % 60:02}:{i % 60:02} +0000] \"GET /page/{rnd.randrange(4000)} HTTP/1.1\" 200 {rnd.randrange(90000)}\n")
    p.stdin.flush(); time.sleep(1)
    return p, None


def vim(tmp):
    lines = "".join(f"{i:06} {random.Random(i).choice(['let', 'if', 'for', 'return'])} value_{i % 977} = {i * 31 % 1000}; // comment {i}\n" for i in range(150000))
    p = start(["vim", "-es", "-n", "-u", "NONE", file(tmp, "text", lines)], "%s/value/other/\n")
    time.sleep(4)
    return p, None


def postgres(tmp):
    os.chown(tmp, 65534, 65534)
    run = dict(user=65534, group=65534, cwd=tmp, env=dict(os.environ, HOME=tmp, LC_ALL="C"))
    subprocess.run(["initdb", "-D", tmp + "/db", "-A", "trust", "--no-sync", "-E", "UTF8"], check=True, stdout=subprocess.DEVNULL, **run)
    p = subprocess.Popen(["postgres", "--single", "-j", "-D", tmp + "/db", "postgres"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, **run)
    p.stdin.write(SQL.replace(";\n", ";\n\n")); p.stdin.flush()
    time.sleep(6)
    return p, None


NEED = {"perl": ["perl"], "bash": ["bash"], "awk": ["awk"], "tcl": ["tclsh"], "rustc": ["rustc"], "rust": ["rustc"], "cxx": ["g++"], "go": ["go"],
        "git": ["git"], "sort": ["sort"], "vim": ["vim"], "postgres": ["postgres", "initdb"]}

if __name__ == "__main__":
    args, mib = sys.argv[1:], 24
    if "--mib" in args:
        i = args.index("--mib"); mib = int(args[i + 1]); del args[i:i + 2]
    if not args or args[0].startswith("-"): sys.exit(__doc__)
    make(args[0], args[1:] or list(NEED), mib, NEED, globals())
