"""Folded arrays: limits, statistics, pins, and what is refused."""

import copy
import gc
import io
import os
import pickle
import tempfile
import threading
import unittest
import weakref
from unittest import mock

import child
import numpy as np
import ramfold

MIB = 1 << 20


class Making(unittest.TestCase):
    def test_shapes_and_types(self):
        for shape in [(), 0, 5, (3, 4), (0, 7), (2, 3, 4)]:
            for order in "CF":
                array = ramfold.zeros(shape, np.float32, order)
                expected = np.zeros(shape, np.float32, order)
                np.testing.assert_array_equal(array, expected)
                self.assertEqual((array.shape, array.dtype), (expected.shape, expected.dtype))
                self.assertEqual(array.flags.f_contiguous, expected.flags.f_contiguous)
                self.assertTrue(array.is_folded and isinstance(array, np.ndarray))

    def test_elements_may_be_arrays(self):
        dtype = np.dtype(("i4", (3,)))
        for source in [np.array([1, 2, 3]), np.arange(2), np.int64(7), [1, 2, 3], [4, 5]]:
            made = ramfold.array(source, dtype)
            np.testing.assert_array_equal(made, np.array(source, dtype))

    def test_a_file_that_counts_wrongly_is_refused(self):
        class File(io.BytesIO):
            def readinto(self, into):
                return self.count

        for File.count in [-1, 4097]:
            with self.assertRaisesRegex(OSError, "read"):
                ramfold.fromfile(File(bytes(4096)), np.uint8, 4096)

    def test_copies_keep_their_order(self):
        rows = np.arange(12).reshape(3, 4)
        for source in [rows, rows.T, rows[::2, ::-1], np.float64(7), [[1, 2], [3, 4]]]:
            array = ramfold.array(source, limit="1M")
            np.testing.assert_array_equal(array, source)
        self.assertTrue(ramfold.array(rows.T).flags.f_contiguous)
        self.assertTrue(ramfold.array(rows.T, order="C").flags.c_contiguous)
        self.assertEqual(ramfold.array(rows, np.int8).dtype, np.int8)

    def test_a_type_that_leaves_something_open_is_completed(self):
        for source, dtype in [
            (["ab", "c"], "U"), (["ab", "c"], "S"), ([b"ab"], "V"), (["2020-01-01"], "M8"),
            ([3, 4], ("i4", 2)),
            (np.array(["ab", "c"]), "U"), (np.array(["ab", "c"]), "S"), (np.arange(3), "U"),
            (np.array(["2020-01-01"], "M8[D]"), "M8"), (np.array([5], "m8[s]"), "m8"),
        ]:
            with self.subTest(f"{source!r} {dtype}"):
                expected = np.array(source, dtype)
                for array in [ramfold.array(source, dtype), ramfold.asarray(source, dtype)]:
                    self.assertEqual(array.dtype, expected.dtype)
                    np.testing.assert_array_equal(array, expected)

    def test_numbers_are_shuffled_and_come_back(self):
        rng = np.random.default_rng(3)
        gaps = rng.integers(1, 1000, 1 << 18)
        for dtype in [np.int64, np.uint32, np.int16, np.float64, np.float32, np.complex64, "M8[s]",
                      "U3", np.int8, "V6"]:
            source = gaps.cumsum().astype(np.int64)
            source = source.view("V8").astype("V6") if dtype == "V6" else source.astype(dtype)
            for shuffle in ["auto", None, 2, 4, 8]:
                with self.subTest(f"{dtype} {shuffle}"):
                    array = ramfold.array(source, limit="1M", shuffle=shuffle)
                    self.assertEqual(array.page_out(), 0)
                    np.testing.assert_array_equal(array, source)

    def test_shuffled_numbers_take_half(self):
        ids = np.random.default_rng(3).integers(1, 1000, 1 << 18).cumsum()
        taken = {}
        for shuffle in ["auto", None]:
            array = ramfold.array(ids, limit="1M", shuffle=shuffle)
            array.page_out()
            taken[shuffle] = array.stats()["compressed_bytes"]
        self.assertLess(taken["auto"], taken[None] * 0.6)

    def test_what_is_wrong_is_named(self):
        zeros, limit = ramfold.zeros, ramfold.Limit
        for error, words, make in [
            (TypeError, "a shape is a number or a tuple of numbers, and has 3.5", lambda: zeros(3.5)),
            (TypeError, "a tuple of numbers, and has 'x'", lambda: zeros((2, "x"))),
            (ValueError, "a length is not negative: -1", lambda: zeros(-1)),
            (ValueError, "an array is at most 2\\*\\*62 bytes", lambda: zeros(1 << 62)),
            (ValueError, "folded memory of .* is too large", lambda: zeros(1 << 45, "u1")),
            (ValueError, "a limit is at most 2\\*\\*62 bytes", lambda: limit("1e30")),
            (ValueError, "a limit is at most 2\\*\\*62 bytes", lambda: zeros(5, limit=10**30)),
            (ValueError, "'auto' or None, not -1", lambda: limit("1M", shuffle=-1)),
            (TypeError, "a codec is text .* not 3", lambda: zeros(5, codec=3)),
            (TypeError, "a codec is text .* not 3", lambda: limit("1M", codec=3)),
            (ValueError, 'unknown algorithm ""', lambda: zeros(5, codec="")),
            (TypeError, "a density is 'fast'.* not 3", lambda: limit("1M", density=3)),
            (TypeError, "'str' object cannot be interpreted as an integer",
             lambda: ramfold.fromfile(__file__, "u1", count="5")),
        ]:
            with self.subTest(words), self.assertRaisesRegex(error, words):
                make()

    def test_other_elements_are_refused(self):
        with self.assertRaisesRegex(ValueError, "by 2, 4 or 8 bytes, 'auto' or None, not 3"):
            ramfold.zeros(5, limit="1M", shuffle=3)
        limit = ramfold.Limit("1M", shuffle=8)
        with self.assertRaisesRegex(ValueError, "give them to Limit"):
            ramfold.zeros(5, limit=limit, shuffle=8)
        self.assertEqual(ramfold.array(range(9), limit=limit).sum(), 36)

    def test_pages_become_denser_at_once_if_asked(self):
        rng = np.random.default_rng(5)
        data = np.tile(rng.integers(0, 1 << 62, 64), 1 << 14)
        data[::4] = rng.integers(0, 1 << 62, data.size // 4)
        taken = {}
        for density in ["fast", "balanced", "dense"]:
            limit = ramfold.Limit("1M", density=density)
            array = ramfold.array(data, limit=limit)
            array.page_out()
            if density == "fast":
                with self.assertRaisesRegex(ValueError, "density"):
                    limit.densify()
            else:
                limit.densify()
            taken[density] = limit.stats()["compressed_bytes"]
            self.assertIn(f"density={density!r}", repr(limit))
            self.assertTrue((array == data).all())
        self.assertLess(taken["balanced"], taken["fast"])
        self.assertLess(taken["dense"], taken["balanced"])
        with self.assertRaisesRegex(ValueError, "fast, balanced or dense"):
            ramfold.Limit("1M", density="thin")

    def test_asarray_gives_what_is_folded_already(self):
        array = ramfold.zeros(5)
        self.assertIs(ramfold.asarray(array), array)
        self.assertIsNot(ramfold.asarray(array, np.int8), array)
        self.assertIsNot(ramfold.asarray(array, limit="1M"), array)

    def test_views_are_folded_and_results_are_not(self):
        array = ramfold.zeros((100, 100), limit="1M")
        for view in [array[3:5], array.T, array.reshape(-1), array[::-1, 7], array.view(np.int64)]:
            self.assertTrue(view.is_folded)
        self.assertIs(type(array + 1), np.ndarray)
        self.assertIs(type(np.sqrt(array)), np.ndarray)
        self.assertIs(type(array.sum(axis=0)), np.ndarray)
        self.assertIs(type(array.sum()), np.float64)
        self.assertIs(type(np.concatenate([array, array])), np.ndarray)
        self.assertFalse(array.copy().is_folded)
        array += 1
        self.assertTrue(isinstance(array, ramfold.ndarray) and array.is_folded)
        with self.assertRaisesRegex(ValueError, "ramfold.array"):
            array.copy().stats()

    def test_memory_lives_as_long_as_a_view(self):
        view = ramfold.array(np.arange(MIB), limit="1M")[5:9]
        buffer = memoryview(ramfold.array(np.arange(MIB), limit="1M"))
        gc.collect()
        ramfold.zeros(MIB, limit="1M").fill(1)
        self.assertEqual(view.tolist(), [5, 6, 7, 8])
        self.assertEqual(buffer[77], 77)

    def test_what_cannot_be_is_refused(self):
        for error, text, make in [
            (TypeError, "references", lambda: ramfold.zeros(3, object)),
            (TypeError, "references", lambda: ramfold.array([[], None], dtype=object)),
            (ValueError, "at least 1048576", lambda: ramfold.zeros(3, limit=5)),
            (ValueError, "number of bytes", lambda: ramfold.zeros(3, limit="much")),
            (TypeError, "number of bytes", lambda: ramfold.zeros(3, limit=1.5)),
            (ValueError, "negative", lambda: ramfold.zeros(-3)),
            (ValueError, "no length", lambda: ramfold.zeros(3, "U")),
            (ValueError, "no length", lambda: ramfold.empty(3, "S")),
            (ValueError, "no length", lambda: ramfold.fromfile(os.devnull, "V")),
            (ValueError, "order", lambda: ramfold.zeros(3, order="X")),
            (ValueError, "gzip", lambda: ramfold.zeros(3, codec="gzip")),
            (ValueError, "give them to Limit",
             lambda: ramfold.zeros(3, limit=ramfold.Limit("1M"), codec="lz4")),
            (MemoryError, "", lambda: ramfold.zeros(1 << 47, np.uint8)),
            (MemoryError, "room",
             lambda: ramfold.zeros(9 << 20, limit=ramfold.Limit("1M", room="1M"))),
        ]:
            with self.subTest(text), self.assertRaisesRegex(error, text):
                make()

    def test_codecs(self):
        expected = np.arange(MIB // 2) // 9
        for codec in ["lz4", "zstd", "zstd:3", "lzo", "lzo-rle", "deflate"]:
            array = ramfold.array(expected, limit="1M", codec=codec)
            array.page_out()
            np.testing.assert_array_equal(array, expected)


class Limits(unittest.TestCase):
    def test_an_array_keeps_to_its_limit(self):
        array = ramfold.zeros(32 * MIB // 8, limit="2M")
        array[:] = np.arange(array.size)
        stats = array.stats()
        self.assertLessEqual(stats["resident_bytes"] + stats["staged_bytes"], 3 * MIB)
        self.assertEqual((stats["bytes"], stats["limit"]), (32 * MIB, 2 * MIB))
        self.assertEqual(array.limit, 2 * MIB)
        self.assertGreater(stats["folded_bytes"], 28 * MIB)
        self.assertEqual(array.sum(), array.size * (array.size - 1) // 2)

    def test_a_limit_may_change(self):
        array = ramfold.zeros(4 * MIB // 8, limit="1M")
        array.fill(7)
        array.limit = "16M"
        self.assertEqual(array[5:].limit, 16 * MIB)
        array.prefetch()
        self.assertEqual(array.stats()["resident_bytes"], 4 * MIB)
        array.limit = None
        self.assertIsNone(array.limit)
        self.assertTrue((array == 7).all())

    def test_arrays_share_a_limit(self):
        limit = ramfold.Limit("4M")
        arrays = [ramfold.zeros(1000, np.int64, limit=limit) for _ in range(5000)]
        for number, array in enumerate(arrays):
            array[:] = number
        stats = limit.stats()
        self.assertLessEqual(stats["resident_bytes"] + stats["staged_bytes"], 5 * MIB)
        self.assertIs(arrays[7].limit, limit)
        for number, array in enumerate(arrays):
            self.assertTrue((array == number).all(), number)
        del arrays[::2]
        others = [ramfold.zeros(1000, np.int64, limit=limit) for _ in range(2000)]
        self.assertFalse(any(array.any() for array in others), "they begin as zeros")
        for number, array in enumerate(arrays):
            self.assertTrue((array == 2 * number + 1).all(), number)
        with self.assertRaisesRegex(ValueError, "shared"):
            arrays[0].limit = "2M"
        limit.bytes = "8M"
        self.assertEqual(limit.bytes, 8 * MIB)

    def test_an_array_that_is_dropped_gives_its_memory_back(self):
        before = ramfold.stats()["compressed_bytes"]
        for _ in range(20):
            array = ramfold.zeros(8 * MIB, np.uint8, limit="1M")
            array[:] = np.random.default_rng(1).integers(0, 256, array.size, np.uint8)
            del array
        self.assertLess(ramfold.stats()["compressed_bytes"] - before, 60 * MIB)

    def test_an_array_without_a_limit_folds_when_it_is_asked_to(self):
        for size in [100_000, 4 * MIB]:
            array = ramfold.array(np.arange(size))
            self.assertIsNone(array.limit)
            self.assertEqual(array.stats()["folded_bytes"], 0)
            self.assertEqual(array.page_out(), 0)
            self.assertGreater(array.stats()["folded_bytes"], size * 7)
            np.testing.assert_array_equal(array, np.arange(size))

    def test_the_rest_of_the_last_page_leaves_too(self):
        for limit in [None, "1M", ramfold.Limit("1M")]:
            for length in [1, 1000]:
                with self.subTest(limit=limit, length=length):
                    array = ramfold.zeros(length, np.int64, limit=limit)
                    array[:] = 1
                    self.assertEqual(array.page_out(), 0)
                    self.assertEqual(array.stats()["folded_bytes"], array.stats()["bytes"])
                    self.assertEqual(array.sum(), length)
        # The last page of a part is its neighbour's too.
        array = ramfold.zeros(1024, np.int64, limit="1M")
        array[:] = 1
        array[:700].page_out()
        self.assertEqual(array.stats()["resident_bytes"], 4096)


class Pins(unittest.TestCase):
    def test_a_pinned_part_stays(self):
        array = ramfold.array(np.arange(4 * MIB // 8), limit="1M")
        with array.pinned(slice(1000, 100_000)) as part:
            self.assertIs(type(part), np.ndarray)
            self.assertGreater(array.page_out(), 0)
            with open(os.devnull, "wb", buffering=0) as null:
                self.assertEqual(null.write(part), part.nbytes)
            np.testing.assert_array_equal(part, np.arange(1000, 100_000))
        self.assertEqual(array.page_out(), 0)
        np.testing.assert_array_equal(array, np.arange(array.size))

    def test_what_cannot_be_pinned_is_refused(self):
        array = ramfold.zeros(100, limit="1M")
        with self.assertRaisesRegex(TypeError, "gives an array"), array.pinned(3):
            pass
        with self.assertRaisesRegex(IndexError, "slice"), array.pinned([1, 2]):
            pass

    @unittest.skipIf(ramfold.fault_mode() == "thread", "needs pages that are pinned for buffers")
    def test_a_buffer_pins_until_it_is_released(self):
        array = ramfold.array(np.arange(MIB // 2), limit="1M")
        view = memoryview(array[::2])
        self.assertGreater(array.page_out(), 0)
        view.release()
        self.assertEqual(array.page_out(), 0)


    @unittest.skipIf(ramfold.fault_mode() == "thread", "needs pages that are pinned for buffers")
    def test_the_last_buffer_gives_the_memory_back(self):
        buffer = memoryview(ramfold.array(np.arange(MIB // 2), limit="1M"))
        fold = weakref.ref(ramfold._ramfold.fold_of(buffer.obj))
        buffer.release()
        del buffer
        self.assertIsNone(fold())

    def test_buffers_do_not_depend_on_names_of_numpy(self):
        array = ramfold.array(np.arange(9))
        for other in [ramfold.ndarray, int, None]:
            with mock.patch.object(np, "ndarray", other):
                self.assertEqual(bytes(array), np.arange(9).tobytes())
        with self.assertRaisesRegex(TypeError, "numpy.ndarray"):
            ramfold._ramfold.exporting_type(int)


class Pickles(unittest.TestCase):
    def test_what_comes_back_is_plain(self):
        rows = np.arange(12).reshape(3, 4)
        box = np.arange(24).reshape(2, 3, 4)
        axes = [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1)]
        views = [lambda a, to=to: a.transpose(to) for to in axes]
        parts = [lambda a: a, lambda a: a[::2], lambda a: a[::-1]]
        for source, view in [(rows.T, parts[0]), *((rows, part) for part in parts),
                             *((box, view) for view in views)]:
            array, source = view(ramfold.array(source)), view(source)
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                back = pickle.loads(pickle.dumps(array, protocol))
                self.assertIs(type(back), np.ndarray)
                np.testing.assert_array_equal(back, source)
        np.testing.assert_array_equal(copy.deepcopy(ramfold.array(rows)), rows)
        np.testing.assert_array_equal(copy.copy(ramfold.array(rows)), rows)


class Files(unittest.TestCase):
    def test_a_file_is_loaded_into_folded_memory(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "a.npy")
            big = np.arange(3 * MIB // 8).reshape(-1, 3, order="A")
            for source in [big, big.T, np.zeros((0, 3)), np.float32(7), np.array(["ab", "c"])]:
                np.save(path, source)
                array = ramfold.load(path, limit="1M")
                np.testing.assert_array_equal(array, source)
                self.assertEqual(array.dtype, source.dtype)
                np.save(path, array)
                np.testing.assert_array_equal(np.load(path), source)
            big.tofile(path)
            self.assertEqual(ramfold.fromfile(path, np.int64, limit="1M").tobytes(), big.tobytes())
            part = ramfold.fromfile(path, np.int32, 1000, offset=40)
            np.testing.assert_array_equal(part, np.fromfile(path, np.int32, 1000, offset=40))

    def test_a_file_that_is_short_or_something_else_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "a.npy")
            np.save(path, np.arange(1000))
            os.truncate(path, 4000)
            with self.assertRaisesRegex(EOFError, "ends before"):
                ramfold.load(path)
            np.save(path, np.array([None]))
            with self.assertRaisesRegex(TypeError, "references"):
                ramfold.load(path)
            with open(path, "wb") as file:
                file.write(b"something else")
            with self.assertRaises(ValueError):
                ramfold.load(path)


class Threads(unittest.TestCase):
    def test_threads_that_make_the_first_array_share_a_pager(self):
        status, text = child.run("""
    import threading, ramfold
    from ramfold import _process
    made, real, barrier = [], _process._open, threading.Barrier(8)
    _process._open = lambda: (made.append(1), real())[1]
    def work():
        barrier.wait()
        ramfold.zeros(1 << 20, limit="1M")
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(len(made))
""")
        self.assertEqual((status, text), (0, "1\n"))

    def test_threads_use_an_array_while_it_is_paged_out(self):
        array = ramfold.zeros((8, MIB // 8), np.int64, limit="2M")
        over = threading.Event()

        def page_out():
            while not over.wait(0.001):
                array.page_out()

        wrong = []

        def count(row):
            for step in range(20):
                part = array[row]
                if not (part == step).all():
                    wrong.append((row, step))
                part += 1

        pager = threading.Thread(target=page_out)
        threads = [threading.Thread(target=count, args=(row,)) for row in range(8)]
        for thread in [pager, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        over.set()
        pager.join()
        self.assertEqual(wrong, [])
        self.assertTrue((array == 20).all())


if __name__ == "__main__":
    unittest.main()
