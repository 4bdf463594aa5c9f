"""A store is a dictionary of bytes."""

import gc
import json
import os
import random
import threading
import unittest
import weakref

import child
import ramfold


def value(number):
    return json.dumps({"id": number, "name": f"customer {number * 7}", "city": "Trier",
                       "orders": [number % 13, number % 17]}).encode()


class Mapping(unittest.TestCase):
    def test_it_is_a_dictionary(self):
        for codec in [None, "lz4", "zstd:3", "lzo", "deflate"]:
            with self.subTest(codec):
                chance = random.Random(7)
                store, twin = ramfold.Store(codec), {}
                for step in range(8000):
                    key = b"key %d" % chance.randrange(3000)
                    act = chance.randrange(10)
                    if act < 6:
                        new = value(step) if act else chance.randbytes(chance.randrange(9000))
                        store[key] = twin[key] = new
                    elif act < 8:
                        self.assertEqual(store.get(key), twin.get(key))
                    else:
                        self.assertEqual(store.pop(key, None), twin.pop(key, None))
                self.assertEqual(dict(store.items()), twin)
                self.assertEqual(sorted(store), sorted(twin))
                self.assertEqual(sorted(store.values()), sorted(twin.values()))
                self.assertEqual(len(store), len(twin))
                self.assertEqual(store.stats()["value_bytes"], sum(map(len, twin.values())))
                store.compact()
                store._check()
                self.assertTrue(store == twin)
                store.clear()
                self.assertEqual((len(store), store.stats()["value_bytes"]), (0, 0))

    def test_keys_and_values_that_are_no_bytes_are_named(self):
        store = ramfold.Store()
        for words, use in [
            ("a key is bytes, not int", lambda: store.__setitem__(1, b"x")),
            ("a key is bytes, not str", lambda: store["a"]),
            ("a key is bytes, not NoneType", lambda: store.get(None)),
            ("a key is bytes, not int", lambda: store.pop(2)),
            ("a key is bytes, not int", lambda: 1 in store),
            ("a key is bytes, not str", lambda: store.__delitem__("2")),
            ("a value is bytes, not str", lambda: store.__setitem__(b"1", "x")),
            ("a value is bytes, not str", lambda: store.setdefault(b"1", "x")),
        ]:
            with self.subTest(words), self.assertRaisesRegex(TypeError, words):
                use()
        self.assertEqual(len(store), 0)

    def test_values_of_every_length(self):
        lengths = [*range(0, 40), 4093, 4094, 4095, 4096, 4097, 8191, 1 << 20]
        chance = random.Random(1)
        for codec in ["lz4:8", "zstd", None]:
            store = ramfold.Store(codec)
            values = {}
            for length in lengths:
                # One that becomes smaller, and one that does not.
                values[b"%d" % length] = bytes(n % 251 for n in range(length))
                values[b"%d by chance" % length] = chance.randbytes(length)
            store.update(values)
            for key, kept in values.items():
                self.assertEqual(store[key], kept)
        with self.assertRaisesRegex(ValueError, "at most 1048576 bytes"):
            store[b"long"] = bytes((1 << 20) + 1)
        self.assertNotIn(b"long", store)

    def test_what_is_missing_or_no_bytes_is_refused(self):
        store = ramfold.Store()
        with self.assertRaises(KeyError) as missing:
            store[b"a"]
        self.assertEqual(missing.exception.args, (b"a",))
        with self.assertRaises(KeyError):
            del store[b"a"]
        for wrong in [lambda: store["a"], lambda: store.__setitem__(b"a", "b"),
                      lambda: ramfold.Store(dictionary=7), lambda: ramfold.Store(on_evict=7)]:
            with self.assertRaises(TypeError):
                wrong()
        for wrong in [lambda: ramfold.Store("gzip"), lambda: ramfold.Store(dictionary="no"),
                      lambda: ramfold.Store("lzo", dictionary=b"x" * 300),
                      lambda: ramfold.Store(None, dictionary=b"x"),
                      lambda: ramfold.Store(limit="much"), lambda: ramfold.Store(limit=0),
                      lambda: setattr(store, "limit", 0)]:
            with self.assertRaises(ValueError):
                wrong()

    def test_what_is_taken_out_is_gone(self):
        twin = {b"%d" % n: b"%d" % n * 2000 for n in range(3000)}
        for limit in [None, "64M"]:
            store = ramfold.Store(limit=limit)
            store.update(twin)
            self.assertEqual(store.pop(b"7"), twin[b"7"])
            self.assertIsNone(store.pop(b"7", None))
            with self.assertRaises(KeyError) as missing:
                store.pop(b"7")
            self.assertEqual(missing.exception.args, (b"7",))
            self.assertEqual(store.setdefault(b"7", b"new"), b"new")
            self.assertEqual(store.setdefault(b"7"), b"new")
            with self.assertRaises(TypeError):
                store.setdefault(b"none")
            taken = dict(store.popitem() for _ in range(3000))
            self.assertEqual(taken, {**twin, b"7": b"new"})
            with self.assertRaises(KeyError):
                store.popitem()
            self.assertEqual(store.stats()["value_bytes"], 0)
            store[b"8"] = b"again"
            self.assertEqual(dict(store), {b"8": b"again"})
            store._check()

    def test_views_are_those_of_a_dictionary(self):
        store = ramfold.Store()
        store.update({b"a": b"1", b"b": b"2"})
        self.assertEqual(store.items(), {(b"a", b"1"), (b"b", b"2")})
        self.assertEqual(store.items() & {(b"a", b"1")}, {(b"a", b"1")})
        self.assertIn((b"b", b"2"), store.items())
        self.assertIn(b"2", store.values())
        self.assertNotIn(b"3", store.values())
        self.assertEqual((len(store.items()), len(store.values())), (2, 2))


class Dictionary(unittest.TestCase):
    def test_it_is_trained_and_small_values_take_less(self):
        plain = ramfold.Store(dictionary=None)
        trained = ramfold.Store()
        for number in range(5000):
            plain[b"%d" % number] = trained[b"%d" % number] = value(number)
        self.assertIsNone(plain.dictionary)
        self.assertGreater(len(trained.dictionary), 100)
        self.assertLess(trained.stats()["object_bytes"], plain.stats()["object_bytes"] * 2 // 3)
        self.assertEqual(dict(trained.items()), dict(plain.items()))
        trained._check()
        # What was learnt serves another store from its first value on.
        other = ramfold.Store(dictionary=trained.dictionary)
        other[b"x"] = value(3)
        self.assertEqual(other[b"x"], value(3))
        self.assertEqual(other.dictionary, trained.dictionary)

    def test_values_with_nothing_in_common_go_on_without(self):
        store, chance = ramfold.Store(), random.Random(3)
        twin = {b"%d" % n: chance.randbytes(5) for n in range(3000)}
        store.update(twin)
        self.assertEqual(dict(store.items()), twin)


class Limit(unittest.TestCase):
    def test_the_oldest_go_that_were_not_read(self):
        gone = {}
        store = ramfold.Store(None, limit="1M", on_evict=gone.__setitem__)
        for number in range(2000):
            store[b"%d" % number] = b"%d" % number * 500
            store[b"0"]
        self.assertLessEqual(store.stats()["resident_bytes"], 1 << 20)
        self.assertEqual(store.stats()["evicted"], len(gone))
        self.assertEqual(len(gone) + len(store), 2000)
        self.assertIn(b"0", store)
        self.assertIn(b"1999", store)
        self.assertIn(b"1", gone)
        for key, kept in [*gone.items(), *store.items()]:
            self.assertEqual(kept, key * 500)
        store._check()

    def test_a_key_that_got_another_value_is_young(self):
        for again in [lambda store: store.__setitem__(b"0", os.urandom(4000)),
                      lambda store: (store.pop(b"0"), store.setdefault(b"0", os.urandom(4000)))]:
            gone = []
            store = ramfold.Store(None, limit="1M", on_evict=lambda key, _: gone.append(key))
            for number in range(100):
                store[b"%d" % number] = os.urandom(4000)
            again(store)
            while len(gone) < 50:
                number += 1
                store[b"%d" % number] = os.urandom(4000)
            self.assertEqual(gone, [b"%d" % n for n in range(1, 51)])

    def test_a_key_that_is_set_again_and_again_takes_no_more(self):
        store = ramfold.Store(None, limit="1M")
        for _ in range(100_000):
            store[b"key" * 100] = b"value"
        self.assertLess(store.stats()["index_bytes"], 1 << 20)

    def test_a_limit_that_is_set_later(self):
        store = ramfold.Store(None)
        for number in range(1000):
            store[b"%d" % number] = bytes(2000)
        self.assertIsNone(store.limit)
        store.limit = 1 << 20
        store[b"new"] = bytes(range(200)) * 10
        self.assertEqual(store.limit, 1 << 20)
        self.assertLess(len(store), 1000)
        self.assertIn(b"new", store)

    def test_a_function_that_fails_loses_no_value(self):
        def fail(key, value):
            raise OSError("no disk")

        store, put = ramfold.Store(None, limit="1M", on_evict=fail), 0
        with self.assertRaisesRegex(OSError, "no disk"):
            for number in range(1000):
                store[b"%d" % number] = b"%d" % number * 800
                put += 1
        with self.assertRaisesRegex(OSError, "no disk"):
            store[b"more"] = bytes(3000)
        store._check()
        self.assertEqual(dict(store.items()), {b"%d" % n: b"%d" % n * 800 for n in range(put)})
        self.assertEqual(store.stats()["evicted"], 0)

    def test_a_function_that_fails_and_gives_the_key_another_value(self):
        def fail(key, value):
            store.limit = None
            store[key] = b"another"
            raise OSError("no disk")

        store = ramfold.Store(None, limit="1M", on_evict=fail)
        with self.assertRaisesRegex(OSError, "no disk"):
            for number in range(1000):
                store[b"%d" % number] = bytes(3000)
        self.assertEqual(store[b"0"], b"another")
        store._check()

    def test_no_more_goes_than_has_to(self):
        gone = []
        store = ramfold.Store(None, limit="8M", on_evict=lambda key, _: gone.append(key))
        for number in range(9):
            store[b"%d" % number] = os.urandom(1_000_000)
        self.assertEqual((gone, len(store)), ([b"0"], 8))

    def test_a_store_that_tells_its_owner_goes_with_it(self):
        class Owner:
            def __init__(self):
                self.store = ramfold.Store(limit="1M", on_evict=self.told)

            def told(self, key, value):
                pass

        owner = weakref.ref(Owner())
        gc.collect()
        self.assertIsNone(owner())

    def test_a_value_that_cannot_fit(self):
        store = ramfold.Store(None, limit=8192)
        with self.assertRaisesRegex(MemoryError, "raise `limit`"):
            store[b"a"] = os.urandom(100_000)
        store[b"b"] = b"c"
        self.assertEqual(dict(store.items()), {b"b": b"c"})


class Threads(unittest.TestCase):
    def test_threads_read_write_and_evict_at_once(self):
        for limit in [None, "2M"]:
            store, wrong = ramfold.Store(limit=limit), []

            def work(thread):
                try:
                    walk(random.Random(thread))
                except BaseException as error:
                    wrong.append(error)

            def walk(chance):
                for step in range(3000):
                    key = b"%d" % chance.randrange(800)
                    found = store.get(key)
                    if found is not None and not found.startswith(key + b":"):
                        wrong.append((key, found))
                    if step % 3 == 0:
                        store[key] = key + b":" + value(step) * chance.randrange(1, 120)
                    elif step % 31 == 0:
                        store.pop(key, None)
                    elif step % 47 == 0:
                        store.setdefault(key, key + b":")
                    elif step % 997 == 0:
                        store.clear()

            threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])
            store._check()


class Typed(unittest.TestCase):
    def test_values_of_other_types(self):
        store = ramfold.TypedStore(ramfold.Store(), lambda v: json.dumps(v).encode(), json.loads)
        store.update({"a": [1, 2], "b": None})
        self.assertEqual(dict(store), {"a": [1, 2], "b": None})
        self.assertIn("a", store)
        del store["a"]
        with self.assertRaises(KeyError):
            store["a"]
        self.assertEqual(len(store), 1)
        self.assertEqual(store.setdefault("c", 7), 7)
        self.assertEqual(store.setdefault("c", 8), 7)
        self.assertEqual(store.items() & {("c", 7)}, {("c", 7)})
        self.assertEqual((store.pop("c"), store.pop("c", 9)), (7, 9))
        with self.assertRaises(KeyError) as missing:
            store.pop("c")
        self.assertEqual(missing.exception.args, ("c",))
        self.assertEqual(store.popitem(), ("b", None))

    def test_what_cannot_be_read_is_not_lost(self):
        def loads(value):
            raise KeyError("a field")

        store = ramfold.TypedStore(ramfold.Store(), str.encode, loads)
        store.update({"a": "1", "b": "2"})
        for take in [lambda: store.pop("a"), store.popitem]:
            with self.assertRaisesRegex(KeyError, "a field"):
                take()
        self.assertEqual(dict(store.store), {b"a": b"1", b"b": b"2"})
        with self.assertRaisesRegex(KeyError, "a field"):
            store.get("a", 7)
        self.assertEqual(store.get("c", 7), 7)
        store.clear()
        store = ramfold.TypedStore(ramfold.Store(), str.encode, bytes.decode)
        store.store[b"\xff"] = b"its key is no text"
        with self.assertRaises(UnicodeDecodeError):
            store.popitem()
        self.assertEqual(dict(store.store), {b"\xff": b"its key is no text"})
        store.clear()
        self.assertEqual(len(store), 0)

    def test_values_that_go_while_all_are_looked_at_are_left_out(self):
        store = ramfold.TypedStore(ramfold.Store(), str.encode, bytes.decode)
        store.update({str(number): "x" for number in range(100)})
        for key, _ in store.items():
            other = str((int(key) + 1) % 100)
            store.pop(other, None)
        self.assertLess(len(store), 100)


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class Fork(unittest.TestCase):
    def test_a_child_may_drop_it_and_end_with_it(self):
        for end in ["del store; gc.collect(); os._exit(7)", "sys.exit(7)"]:
            for trained in ["None", "'train'"]:
                status, text = child.run(f"""
    import gc, os, sys, ramfold
    store = ramfold.Store(dictionary={trained})
    for number in range(3000): store[b"%d" % number] = b"value %d" % number * 20
    if (pid := os.fork()) == 0:
        {end}
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    store._check()
    print(store[b"7"] == b"value 7" * 20)
""")
                self.assertEqual((status, text), (0, "7\nTrue\n"), end)

    def test_a_child_is_refused_with_a_word_and_may_make_its_own(self):
        store = ramfold.Store()
        store[b"a"] = b"b"
        child = os.fork()
        if child == 0:
            try:
                store[b"a"]
            except RuntimeError as error:
                own = ramfold.Store()
                own[b"c"] = b"d"
                if "spawn" in str(error) and own[b"c"] == b"d":
                    os._exit(7)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 7)
        self.assertEqual(store[b"a"], b"b")


if __name__ == "__main__":
    unittest.main()
