"""Arrays of code that knows nothing of ramfold, in a ``fold``."""

import concurrent.futures
import contextvars
import gc
import io
import os
import pickle
import tempfile
import threading
import unittest

import child
import numpy as np
import ramfold

MIB = 1 << 20
FOLDS = ramfold.fault_mode() == "thread"


class Refusals(unittest.TestCase):
    @unittest.skipIf(FOLDS, "folds")
    def test_it_is_refused_where_system_calls_are_not_served(self):
        with self.assertRaisesRegex(RuntimeError, "fault mode 'thread' alone.*ramfold run"):
            ramfold.fold(limit="8M")

    @unittest.skipUnless(FOLDS, "refused")
    def test_wrong_words_are_refused(self):
        for wrong in ["much", -1, "1K"]:
            with self.assertRaises(ValueError):
                ramfold.fold(limit=wrong)
        with self.assertRaises(TypeError):
            ramfold.fold(limit=ramfold.Limit("1M"), room="1G")
        with self.assertRaisesRegex(TypeError, "density"):
            ramfold.fold(limit=ramfold.Limit("1M"), density="dense")
        with self.assertRaises(TypeError):
            pickle.dumps(ramfold.fold(limit="1M"))


@unittest.skipUnless(FOLDS, "refused")
class Folding(unittest.TestCase):
    def assert_out(self, fold):
        """All pages leave, so that what comes next brings them back."""
        gc.collect()
        self.assertEqual(fold.page_out(), 0)
        self.assertEqual(fold.stats()["resident_bytes"], 0)

    def test_the_limit_holds_and_every_value_is_right(self):
        with ramfold.fold(limit="4M") as fold:
            array = np.arange(8 * MIB)
            self.assertIs(type(array), np.ndarray)
            double = array * 2
        self.assertLess(fold.stats()["resident_bytes"], 5 * MIB)
        self.assertEqual(fold.stats()["arrays"], 2)
        plain = np.arange(8 * MIB)
        np.testing.assert_array_equal(array, plain)
        np.testing.assert_array_equal(double, plain * 2)
        self.assertGreater(fold.stats()["pages_out"], 20_000)
        del array, double
        self.assertEqual((fold.stats()["arrays"], fold.stats()["folded_bytes"]), (0, 0))

    def test_whatever_makes_arrays(self):
        def make():
            rng = np.random.default_rng(5)
            numbers = rng.integers(0, 1000, 100_000)
            yield numbers
            yield np.sort(numbers)
            yield np.concatenate([numbers, numbers[::-1]])
            yield np.fromiter((n * n for n in range(50_000)), np.int64)
            yield np.array([str(n) for n in range(30_000)])
            yield numbers.astype(np.float32).reshape(100, 1000) @ np.ones((1000, 100), np.float32)
            yield np.where(numbers > 500, numbers, -1)
            yield np.frombuffer(bytes(range(256)) * 1000, np.uint8).copy()
            yield np.array([object] * 20_000, dtype=object)
            yield np.unique(numbers, return_counts=True)[1]
            yield np.linalg.inv(np.eye(200) + 1)
            yield np.fft.rfft(numbers[:65536].astype(float))
            yield np.zeros((300, 300), order="F")

        plain = list(make())
        with ramfold.fold(limit="1M", least=0) as fold:
            folded = list(make())
        self.assertGreater(fold.stats()["arrays"], 12)
        self.assert_out(fold)
        for expected, array in zip(plain, folded, strict=True):
            np.testing.assert_array_equal(array, expected)

    def test_files_and_buffers(self):
        numbers = np.arange(MIB)
        with tempfile.TemporaryDirectory() as place, ramfold.fold(limit="1M") as fold:
            path = os.path.join(place, "a.npy")
            array = numbers + 0
            self.assert_out(fold)
            np.save(path, array)
            self.assert_out(fold)
            np.testing.assert_array_equal(np.load(path), numbers)
            array.tofile(path)
            self.assert_out(fold)
            for count in [-1, 500_000]:
                read = np.fromfile(path, np.int64, count)
                self.assert_out(fold)
                np.testing.assert_array_equal(read, numbers[:count if count > 0 else None])
            into = np.zeros(MIB, np.int64)
            self.assert_out(fold)
            with open(path, "rb") as file:
                self.assertEqual(file.readinto(into), 8 * MIB)
            np.testing.assert_array_equal(into, numbers)
            self.assert_out(fold)
            with open(path, "wb", 0) as file:
                self.assertEqual(file.write(into), 8 * MIB)
            self.assert_out(fold)
            np.testing.assert_array_equal(np.load(io.BytesIO(_saved(into))), numbers)
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(into)), numbers)

    def test_arrays_that_change_their_size(self):
        for first, second in [(10, 100_000), (100_000, 10), (100_000, 99_000), (60_000, 400_000),
                              (400_000, 60_000), (9000, 8000), (8000, 9000)]:
            with self.subTest(f"{first} to {second}"), ramfold.fold(limit="1M") as fold:
                array = np.arange(first)
                self.assert_out(fold)
                array.resize(second, refcheck=False)
                self.assert_out(fold)
                kept = min(first, second)
                stats = fold.stats()
                taken = stats["resident_bytes"] + stats["folded_bytes"]
                # A touch may bring zeros behind the array along.
                self.assertLessEqual(taken, second * 8 + (128 << 10))
                np.testing.assert_array_equal(array[:kept], np.arange(kept))
                self.assertFalse(array[kept:].any())
                self.assertEqual(fold.stats()["arrays"], int(second * 8 >= 64 << 10
                                                             or first * 8 >= 64 << 10))
                array.resize(first, refcheck=False)
                np.testing.assert_array_equal(array[:kept], np.arange(kept))

    def test_a_block_ends_and_its_arrays_stay(self):
        with ramfold.fold(limit="1M") as outer:
            with ramfold.fold(limit="2M") as inner:
                first = np.zeros(MIB)
            second = np.zeros(MIB)
            with self.assertRaises(ZeroDivisionError), inner:
                third = np.zeros(MIB)
                with inner:
                    raise ZeroDivisionError
            fourth = np.zeros(MIB)
        fifth = np.zeros(MIB)
        self.assertEqual((inner.stats()["arrays"], outer.stats()["arrays"]), (2, 2))
        del outer, inner
        gc.collect()
        for array in [first, second, third, fourth, fifth]:
            array[:] = 7
            self.assertEqual(array.sum(), 7 * MIB)

    def test_small_arrays_are_plain(self):
        with ramfold.fold(limit="1M", least="1M") as fold:
            small = np.zeros(MIB // 8 - 1)
            self.assertEqual(fold.stats()["arrays"], 0)
            large = np.zeros(MIB // 8)
            self.assertEqual(fold.stats()["arrays"], 1)
        del small, large

    def test_memory_of_arrays_that_ended_is_taken_again(self):
        with ramfold.fold(limit="64M", least=0) as fold:
            array = np.arange(40_000)
            for _ in range(300):
                array = array * 2 % 1009
            self.assertLess(fold.stats()["first_touches"], 1000, "not 300 times 79 pages")
            del array
            self.assertGreater(fold.stats()["resident_bytes"], 0)
            for length in [1, 7, 512, 40_000]:
                for _ in range(20):
                    np.full(length, 0x5A5A5A5A5A5A5A5A)
                    self.assertFalse(np.zeros(length, np.int64).any(), length)
            before = np.full(40_000, 7)
            address = before.ctypes.data
            del before
            longer = np.full(40_961, 8)
            self.assertNotEqual(longer.ctypes.data, address, "another number of pages")
            self.assertEqual(fold.page_out(), 0)
            self.assertEqual(fold.stats()["resident_bytes"], 0, "nothing is kept then")
            kept = np.full(40_000, 9)
        self.assertLess(fold.stats()["resident_bytes"], 800_000, "nor after the block")
        del kept
        self.assertEqual(fold.stats()["resident_bytes"], 0)
        self.assertTrue((longer == 8).all())

    def test_what_ended_makes_room_for_what_comes(self):
        with ramfold.fold(limit="64M", room="4M") as fold:
            lengths = [100_000, 200_000, 300_000, 400_000]
            for _ in range(50):
                for length in lengths:
                    self.assertTrue((np.full(length // 8, 3) == 3).all())
            self.assertEqual(fold.stats()["arrays"], 0)
            self.assertEqual(np.full((4 << 20) // 8, 5).min(), 5, "all of the room")

    def test_a_limit_may_be_shared_and_changed(self):
        limit = ramfold.Limit("8M")
        own = ramfold.zeros(MIB, limit=limit)
        with ramfold.fold(limit=limit) as fold:
            array = np.ones(4 * MIB)
        own[:] = 1
        self.assertLess(limit.stats()["resident_bytes"], 9 * MIB)
        fold.limit.bytes = "2M"
        self.assertEqual(array.sum() + own.sum(), 5 * MIB)
        self.assertLess(limit.stats()["resident_bytes"], 3 * MIB)

    def test_used_up_room_is_a_memory_error(self):
        with ramfold.fold(limit="1M", room="8M") as fold:
            kept = [np.full(MIB // 8, number) for number in range(7)]
            with self.assertRaises(MemoryError):
                np.zeros(MIB)
            kept.append(np.full(MIB // 8, 7))
            with self.assertRaises(MemoryError):
                np.zeros(MIB // 8)
            with self.assertRaises(MemoryError):
                kept[5].resize(MIB, refcheck=False)
            del kept[3]
            kept.insert(3, np.full(MIB // 8, 3))
        self.assert_out(fold)
        for number, array in enumerate(kept):
            self.assertTrue((array == number).all())

    def test_other_threads_make_plain_arrays_unless_they_have_the_context(self):
        counts = []
        with ramfold.fold(limit="1M") as fold:
            def work():
                array = np.zeros(MIB)
                counts.append(fold.stats()["arrays"])
                del array

            inside = contextvars.copy_context()
            outside = contextvars.Context()
            for context in [outside, inside]:
                thread = threading.Thread(target=context.run, args=(work,))
                thread.start()
                thread.join()
        self.assertEqual(counts, [0, 1])

    def test_threads_compute_while_everything_leaves(self):
        wrong = []
        done = threading.Event()
        with ramfold.fold(limit="2M", least=0) as fold:
            def compute(seed):
                rng = np.random.default_rng(seed)
                for _ in range(30):
                    numbers = rng.integers(0, 1 << 40, rng.integers(1, 60_000))
                    if (np.sort(numbers)[::-1] != -np.sort(-numbers)).any():
                        wrong.append(seed)

            def leave():
                while not done.wait(0.002):
                    fold.page_out()

            with concurrent.futures.ThreadPoolExecutor() as pool:
                leaving = pool.submit(leave)
                computed = [pool.submit(contextvars.copy_context().run, compute, seed)
                            for seed in range(4)]
                try:
                    for result in computed:
                        result.result()
                finally:
                    done.set()
                leaving.result()
        self.assertEqual(wrong, [])
        self.assertGreater(fold.stats()["pages_in"], 100)

    def test_a_block_that_ends_elsewhere_is_refused(self):
        fold = ramfold.fold(limit="1M")

        def block():
            with fold:
                yield

        begun = block()
        contextvars.copy_context().run(next, begun)
        with self.assertRaisesRegex(RuntimeError, "in the task, the thread or the generator"):
            begun.close()
        with fold:
            self.assertEqual(np.zeros(MIB).sum(), 0)

    def test_a_forked_child_makes_plain_arrays(self):
        status, text = child.run("""
            import os, numpy as np, ramfold

            def refused(work):
                try:
                    work()
                except RuntimeError:
                    return True

            limit = ramfold.Limit("1M")
            with ramfold.fold(limit=limit) as fold:
                array = np.ones(1 << 20)
                pid = os.fork()
                if pid == 0:
                    other = np.arange(1 << 20)
                    other.resize(1 << 21, refcheck=False)
                    assert other[:1 << 20].sum() == (1 << 19) * ((1 << 20) - 1)
                    del array, other
                    assert refused(fold.page_out)
                    assert refused(lambda: ramfold.fold(limit=limit))
                    with ramfold.fold(limit="1M") as own:
                        assert np.ones(1 << 20).sum() == 1 << 20
                        kept = np.ones(1 << 20)
                        assert own.stats()["arrays"] == 1
                    os._exit(0)
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), array.sum() == 1 << 20)
        """)
        self.assertEqual((status, text), (0, "0 True\n"))

    def test_a_child_that_follows_references_of_its_parent_is_told(self):
        status, text = child.run("""
            import os, numpy as np, ramfold
            with ramfold.fold(limit="1M"):
                array = np.array([object() for _ in range(20_000)])
                pid = os.fork()
                if pid == 0:
                    del array
                    os._exit(0)
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) < 0)
        """)
        self.assertEqual(status, 0)
        self.assertIn("True\n", text)
        self.assertIn("RAMFOLD_FAULT_MODE=protection", text)

    def test_the_interpreter_ends_with_a_fold_open(self):
        status, text = child.run("""
            import numpy as np, ramfold
            kept = []
            fold = ramfold.fold(limit="1M", least=0).__enter__()
            kept.append(np.arange(1 << 20))
            print(kept[0].sum())
        """)
        self.assertEqual((status, text), (0, "549755289600\n"))


def _saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()

