"""Adapters as kvcheck starts them: a process that speaks frames, whatever its library does."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
ADAPTERS = ROOT / "tools/adapters"
os.environ["PYTHONPATH"] = str(ADAPTERS / "kvcheck_adapter")
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

from driver import SETUP, Child, Gone, append, from_wire, refuses, shown_tokens, to_wire, token_rows


def started(file=None, *options, **more):
    """A child that has greeted: the file's adapter, or the noisy one."""
    file = file or pathlib.Path(__file__).with_name("noisy_adapter.py")
    child = Child([sys.executable, "-m", "kvcheck_adapter", str(file), *options], stderr=subprocess.PIPE, **more)
    child.greeting = child.hello()
    child.ask(do="start", setup=SETUP, seed=1)
    return child


def example(*options, **more):
    return started(ADAPTERS / "numpy_example/adapter.py", *options, **more)


def new(child, out=0, layout="linear", rows=1, padding=(), **more):
    return child.ask(do="new", out=out, layout=layout, k="f32", v="f32", rows=rows, padding=list(padding), **more)


class Conversation(unittest.TestCase):
    def tearDown(self):
        if hasattr(self, "child"):
            self.child.__exit__()
            self.child.process.stderr.close()

    def test_prints_do_not_break_the_stream(self):
        self.child = started()
        self.assertEqual(self.child.greeting["name"], "noisy")
        self.assertEqual(new(self.child), {})
        self.child.process.stdin.close()
        noise = self.child.process.stderr.read().decode()
        for line in ("noise at import", "noise below Python", "noise in a call"):
            self.assertIn(line, noise)
        self.assertEqual(self.child.process.wait(600), 0)
        self.child.process.stdin = open(os.devnull, "wb")

    def test_what_the_library_raises_is_a_refusal_in_its_words(self):
        self.child = started()
        self.assertEqual(new(self.child, layout="ring:w=2"), {"refused": "ValueError: no rings"})
        self.assertEqual(new(self.child, layout="chunk:c=2"), {"unsupported": "chunks to come"})
        self.assertEqual(self.child.ask(do="fly")["failed"], "no request of this protocol: 'fly'")
        self.assertIn("misspelt", new(self.child, layout="linear:w=99")["failed"])
        self.assertEqual(new(self.child), {})
        self.assertIn("no merge", self.child.ask(do="merge", caches=[0, 0], out=1)["unsupported"])
        self.assertIn("no cache 1", self.child.ask(do="trim", cache=1, count=1)["failed"])

    def test_mistakes_in_what_a_probe_calls_are_told_and_what_the_library_raises_shows_nothing(self):
        self.child = started(pathlib.Path(__file__).with_name("mistaken_adapter.py"))
        for window, mistake in ((1, "NameError: name 'misspelt'"), (2, "ModuleNotFoundError"),
                                (3, "AttributeError: 'list' object has no attribute 'coppy'"), (4, "TypeError"),
                                (5, "TypeError"), (6, "append returned one NoneType in place of three"), (7, None), (8, None), (9, None)):
            new(self.child, layout=f"linear:w={window}")
            append(self.child, 0, [[1]])
            answer = self.child.ask(do="trim", cache=0, count=1, observe=[0])
            if mistake:
                self.assertIn(mistake, answer["failed"])
                if window != 6:
                    self.assertIn("mistaken_adapter.py, line ", answer["failed"])
            else:
                self.assertEqual("retained" in answer["states"][0], window == 7)

    def test_changed_inputs_are_told(self):
        self.child = started()
        new(self.child)
        self.assertTrue(append(self.child, 0, [[5]])["inputs_changed"])

    def test_a_child_that_ends_is_gone(self):
        self.child = started()
        new(self.child)
        with self.assertRaises(Gone):
            self.child.ask(do="finalize", cache=0)
        self.assertEqual(self.child.process.wait(600), 7)

    def test_long_work_gives_signs_of_life(self):
        self.child = started()
        new(self.child)
        self.assertEqual(self.child.ask(do="trim", cache=0, count=1), {"trimmed": 0})
        self.assertGreater(self.child.signs_of_life, 0)

    def test_requests_may_be_sent_ahead(self):
        self.child = example()
        k, v = to_wire(token_rows([[1]], 0)), to_wire(token_rows([[1]], 1))
        self.child.send(do="new", out=0, layout="linear", k="f32", v="f32", rows=1, padding=[])
        for _ in range(200):
            self.child.send(do="append", cache=0, k=k, v=v)
        self.child.send(do="observe", observe=[0])
        answers = [self.child.receive() for _ in range(202)]
        self.assertEqual(answers[:201], [{}] * 201)
        self.assertEqual(shown_tokens(answers[-1]["states"][0]), [[1] * 200])

    def test_a_broken_stream_ends_the_child_with_a_message(self):
        self.child = example()
        self.child.send_bytes(b"\1\0\0\0\0\0\0\0")
        self.child.process.stdin.close()
        self.assertEqual(self.child.process.wait(600), 1)
        self.assertIn("inside a frame", self.child.process.stderr.read().decode())
        self.child.process.stdin = open(os.devnull, "wb")


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.child = example(env={**os.environ, "TMPDIR": self.folder.name})
        new(self.child)
        append(self.child, 0, [[1, 2]])
        self.assertEqual(self.child.ask(do="save", cache=0, key="s1"), {})

    def tearDown(self):
        self.child.__exit__()
        self.child.process.stderr.close()
        self.folder.cleanup()

    def left(self):
        return os.listdir(self.folder.name)

    def test_what_was_saved_is_loaded_and_what_was_damaged_is_refused(self):
        answer = self.child.ask(do="load", key="s1", out=1, observe=[1])
        self.assertEqual(shown_tokens(answer["states"][0]), [[1, 2]])
        for how, at in (("truncate", 0), ("flip", 200), ("foreign", 0), ("version", 0)):
            self.child.ask(do="save", cache=0, key="s2")
            self.assertEqual(self.child.ask(do="damage", key="s2", how=how, at=at), {"as_put": False})
            self.assertIn("refused", self.child.ask(do="load", key="s2", out=2), how)
        self.child.ask(do="save", cache=0, key="s2")
        self.child.ask(do="damage", key="s2", how="flip", at=200)
        self.assertEqual(self.child.ask(do="damage", key="s2", how="flip", at=200), {"as_put": True})
        self.assertIn("refused", self.child.ask(do="load", key="s9", out=2))

    def test_the_folder_goes_at_the_end_of_the_input(self):
        self.assertEqual(len(self.left()), 1)
        self.child.__exit__()
        self.assertEqual(self.left(), [])

    def test_the_folder_goes_when_the_process_is_terminated(self):
        self.child.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.child.process.wait(600), 128 + signal.SIGTERM)
        self.assertEqual(self.left(), [])

    def test_the_next_one_removes_what_a_killed_one_left(self):
        self.child.process.kill()
        self.child.process.wait()
        self.assertEqual(len(self.left()), 1)
        self.child.process.stderr.close()
        self.child.process.stdin.close()
        self.child.process.stdout.close()
        first = self.left()
        self.setUp_again()
        self.assertEqual(len(self.left()), 1)
        self.assertNotEqual(self.left(), first)

    def setUp_again(self):
        self.child = example(env={**os.environ, "TMPDIR": self.folder.name})
        new(self.child)
        self.child.ask(do="save", cache=0, key="s1")


class States(unittest.TestCase):
    def setUp(self):
        self.child = example()

    def tearDown(self):
        self.child.__exit__()
        self.child.process.stderr.close()

    def test_an_append_shows_what_its_queries_see(self):
        new(self.child, layout="ring:w=3", rows=2, padding=[1, 0])
        state = append(self.child, 0, [[-1, 1, 2, 3, 4], [10, 11, 12, 13, 14]], observe=[0])["states"][0]
        self.assertEqual(state["queries"], 5)
        self.assertEqual(shown_tokens(state), [[2, 3, 4], [12, 13, 14]])
        self.assertEqual((state["offsets"], state["unfed"]), ([4, 5], [0, 0]))
        self.assertEqual(from_wire(state["visible"]).shape[:2], (2, 5))

    def test_between_appends_a_probe_shows_what_is_retained(self):
        new(self.child, rows=2)
        append(self.child, 0, [[1, 2, 3], [4, 5, 6]])
        answer = self.child.ask(do="trim", cache=0, count=1, observe=[0])
        self.assertEqual(answer["trimmed"], 1)
        self.assertEqual(shown_tokens(answer["states"][0]), [[1, 2], [4, 5]])
        self.assertNotIn("visible", answer["states"][0])
        self.child.ask(do="filter", cache=0, rows=[1])
        self.child.ask(do="extract", cache=0, row=0, out=1)
        states = append(self.child, 1, [[7]], observe=[0, 1])["states"]
        self.assertEqual([shown_tokens(state) for state in states], [[[4, 5]], [[4, 5, 7]]])

    def test_a_new_cache_shows_no_column(self):
        state = new(self.child, rows=2, observe=[0])["states"][0]
        self.assertEqual((state["rows"], state["queries"], state["k"][0][1]), (2, 0, [2, 2, 0, 8]))

    def test_a_state_follows_a_change_through_shared_storage(self):
        file = pathlib.Path(__file__).with_name("sharing_adapter.py")
        with started(file) as child:
            new(child)
            append(child, 0, [[1, 2]])
            shown = child.ask(do="copy", cache=0, out=1, observe=[0, 1])["states"]
            self.assertEqual([shown_tokens(state) for state in shown], [[[1, 2]], [[1, 2]]])
            child.ask(do="trim", cache=0, count=1)
            shown = child.ask(do="trim", cache=1, count=1, observe=[0, 1])["states"]
            self.assertEqual([shown_tokens(state) for state in shown], [[[]], [[]]])  # they are one list
            child.process.stderr.close()

    def test_arrays_of_an_earlier_append_that_change_are_told(self):
        file = pathlib.Path(__file__).with_name("adopting_adapter.py")
        with started(file) as child:
            new(child)
            self.assertNotIn("inputs_changed", append(child, 0, [[1, 2]]))
            self.assertTrue(append(child, 0, [[3]]).get("inputs_changed"))
            child.process.stderr.close()

    def test_a_filter_of_rows_that_are_not_there_is_the_librarys_to_refuse(self):
        file = pathlib.Path(__file__).with_name("adopting_adapter.py")
        with started(file) as child:
            child.ask(do="new", out=0, layout="linear", k="f32", v="f32", rows=2, padding=[1, 0])
            self.assertEqual(child.ask(do="filter", cache=0, rows=[5]), {})
            child.process.stderr.close()

    def test_dropped_caches_are_gone(self):
        new(self.child)
        self.assertEqual(self.child.ask(do="observe", drop=[0]), {})
        self.assertEqual(self.child.ask(do="observe", observe=[0]), {"states": [None]})


class Starting(unittest.TestCase):
    def run_file(self, text):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "some.py")
            file.write_text(text)
            return subprocess.run([sys.executable, "-m", "kvcheck_adapter", str(file)], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=600)

    def test_what_cannot_be_used_is_said(self):
        done = self.run_file("import nowhere_to_be_found")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("nowhere_to_be_found", done.stderr)
        done = self.run_file("x = 1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("0 subclasses", done.stderr)

    def test_a_folder_without_its_environment_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "requirements.txt").write_text("some-library==1\n")
            done = subprocess.run([str(ADAPTERS / "start.sh"), folder], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 2)
        self.assertIn("make_venv.sh " + os.path.basename(folder), done.stderr)

    def test_kvcheck_python_is_the_one_that_is_taken_and_named_where_it_lacks_packages(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "requirements.txt").write_text("numpy==1\nsome-library[extra]==1\n")
            pathlib.Path(folder, "requirements-alone.txt").write_text("other-library==1\n")
            done = subprocess.run([str(ADAPTERS / "start.sh"), folder], capture_output=True, text=True, timeout=600,
                                  env={**os.environ, "KVCHECK_PYTHON": sys.executable})
            bare = pathlib.Path(folder, "bare")  # a Python without packages
            bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
            bare.chmod(0o755)
            other = subprocess.run([str(ADAPTERS / "tutorial/run")], capture_output=True, text=True, timeout=600,
                                   env={**os.environ, "KVCHECK_PYTHON": str(bare)})
        self.assertEqual((other.returncode, "KVCHECK_PYTHON lacks: msgpack numpy" in other.stderr), (2, True), other.stderr)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{sys.executable} of KVCHECK_PYTHON lacks: other-library some-library", done.stderr)

    def test_kvcheck_python_wins_over_a_venv_that_exists(self):
        with tempfile.TemporaryDirectory() as folder:
            tutorial = pathlib.Path(folder, "tutorial")
            shutil.copytree(ADAPTERS / "tutorial", tutorial)
            own = tutorial / "venv/bin/python"
            own.parent.mkdir(parents=True)
            own.write_text("#!/bin/sh\necho this is the venv >&2\nexit 2\n")
            own.chmod(0o755)
            command = [str(ADAPTERS / "start.sh"), str(tutorial)]
            with Child(command, env={**os.environ, "KVCHECK_PYTHON": sys.executable}) as child:
                self.assertEqual(child.hello()["name"], "tutorial")
            alone = {name: value for name, value in os.environ.items() if name != "KVCHECK_PYTHON"}
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=alone)
            self.assertIn("this is the venv", done.stderr)

    def test_versions_other_than_the_pinned_ones_are_warned_of(self):
        with tempfile.TemporaryDirectory() as folder:
            tutorial = pathlib.Path(folder, "tutorial")
            shutil.copytree(ADAPTERS / "tutorial", tutorial)
            info = pathlib.Path(folder, "packages", "some_library-1.5.dist-info")
            info.mkdir(parents=True)
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-library\nVersion: 1.5\n")
            (info / "direct_url.json").write_text('{"url": "file:///home/me/some-library", "dir_info": {"editable": true}}')
            environment = {**os.environ, "KVCHECK_PYTHON": sys.executable, "PYTHONPATH": str(info.parent)}
            for pin, said in (("1.5", " of /home/me/some-library is judged, 1.5 is pinned"),
                              ("2.0", " of /home/me/some-library is judged, 2.0 is pinned")):
                (tutorial / "requirements.txt").write_text(f"some-library=={pin}\nnumpy==1\nmsgpack==1\n")
                with Child([str(ADAPTERS / "start.sh"), str(tutorial)], env=environment) as child:
                    self.assertEqual(child.hello()["warnings"], ["some-library 1.5" + said])
            (info / "direct_url.json").unlink()
            (tutorial / "requirements.txt").write_text("numpy==1\n")
            (tutorial / "requirements-alone.txt").write_text("some-library==2.0\n")
            with Child([str(ADAPTERS / "start.sh"), str(tutorial)], env=environment) as child:
                self.assertEqual(child.hello()["warnings"], ["some-library 1.5 is judged, 2.0 is pinned"])
            (tutorial / "requirements-alone.txt").unlink()
            (tutorial / "requirements.txt").write_text("some-library==1.5\n")
            with Child([str(ADAPTERS / "start.sh"), str(tutorial)], env=environment) as child:
                self.assertNotIn("warnings", child.hello())

    def test_the_example_refuses_options_that_it_does_not_know(self):
        for options in (["--borken"], ["--brok"], ["broken"], ["--broken", "1"]):
            self.assertIn(options[-1], refuses([str(ADAPTERS / "numpy_example/run"), *options]))
        self.assertIsNone(refuses([str(ADAPTERS / "numpy_example/run"), "--broken"]))

    def test_make_venv_refuses_what_is_no_adapter(self):
        done = subprocess.run([str(ADAPTERS / "make_venv.sh"), "nothing"], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 2)

    def test_the_example_runs_by_its_folder(self):
        with Child([str(ADAPTERS / "numpy_example/run")]) as child:
            self.assertEqual(child.hello()["name"], "numpy-example")


if __name__ == "__main__":
    unittest.main()
