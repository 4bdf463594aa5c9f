#!/bin/bash
exec $JOB_WRAP node --max-old-space-size=1024 -e '
let s = 12345;
const rnd = () => (s = (s * 1103515245 + 12345) % 2147483648, s);
const m = new Map();
for (let i = 0; i < 500000; i++) m.set("key" + i, {
    id: i, name: "name " + (rnd() % 5000), tags: [rnd() % 100, rnd() % 100],
    nested: { a: i * 2, b: "text " + (i % 1000) } });
let h = 0;
for (let r = 0; r < 3; r++) {
    for (const [k, v] of m) {
        h = (h * 31 + v.id + v.tags[0] + v.nested.b.length + v.name.length) >>> 0;
        if (v.id % 5 === r) v.nested = { a: r, b: "changed " + r };
    }
}
const order = (x, y) => x.name < y.name ? -1 : x.name > y.name ? 1 : x.id - y.id;
const arr = [...m.values()].sort(order);
for (let i = 0; i < arr.length; i += 100) h = (h * 33 + arr[i].id) >>> 0;
const js = JSON.stringify(arr.slice(0, 100000));
const back = JSON.parse(js);
for (const b of back) h = (h * 31 + b.nested.a) >>> 0;
const buf = Buffer.alloc(64 << 20, "pattern of a buffer ");
for (let i = 0; i < buf.length; i += 4096) h = (h * 7 + buf[i]) >>> 0;
console.log("node", h, js.length);'
