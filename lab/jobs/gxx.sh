#!/bin/bash
d=${JOB_TMP:-$(mktemp -d)}
python3 - > $d/heavy.cc <<'P'
heads = "map regex functional string vector algorithm unordered_map memory variant"
print("\n".join("#include <%s>" % name for name in heads.split()))
for i in range(28):
    print("struct S%d { int a[%d]; std::string s; "
          "bool operator<(const S%d& o) const { return s < o.s; } };" % (i, i + 1, i))
    print("int f%d(std::vector<S%d>& v) { "
          "std::map<S%d, std::unordered_map<int, std::shared_ptr<S%d>>> m; "
          "std::sort(v.begin(), v.end()); "
          "for (auto& x : v) m[x][x.a[0]] = std::make_shared<S%d>(x); "
          "std::variant<int, S%d, std::string> u = v[0]; "
          "std::function<int(int)> g = "
          "[&](int k) { return k + (int)m.size() + (int)u.index(); }; "
          "return g(%d); }" % (i, i, i, i, i, i, i))
P
cd $d
$JOB_WRAP g++ -std=c++17 -O1 -S -o heavy.s heavy.cc &&
    echo "gxx $(md5sum < heavy.s | cut -c1-32) $(wc -c < heavy.s)"
[ -n "$JOB_TMP" ] || rm -rf $d
