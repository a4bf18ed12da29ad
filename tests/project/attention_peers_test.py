#!/usr/bin/env python3
"""bench/attention/peers.py on small problems: what it writes, and that its verdicts, its check of values and its refusals can
fail.

    attention_peers_test.py ATTENTION_SERVER
"""
import contextlib
import csv
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench/attention"
sys.path.insert(0, str(BENCH))
import peer_report  # noqa: E402
import peer_rows  # noqa: E402

try:
    from peer_server import Layers, Problem, exact  # noqa: E402
except ImportError:  # no NumPy
    Layers = None

SERVER = sys.argv.pop(1)
# A library that answers every line with the number that FAKE stands for, as seconds, bytes or error.
FAKE = """#!/bin/sh
echo ok
while read -r line; do
  case $line in setup*) echo "ok 4096" ;; run*) echo "ok ANSWER ANSWER" ;; *) echo "ok ANSWER" ;; esac
done
"""


def peers(*options):
    return subprocess.run([sys.executable, str(BENCH / "peers.py"), SERVER, "--rounds", "2", "--burst", "0.001", "--patience", "0",
                           *options],
                          capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)


def case_of(milliseconds, kind="decode", tokens=32768):
    """A case in which a read of any of the bytes takes 1 ms and each of the rounds is the same."""
    entries = {label: {"bytes": 1000, "seconds": [value / 1e3] * 3} for label, value in milliseconds.items()}
    return {"case": kind, "tokens": tokens, "queries": tokens if kind == "prefill" else 1, "causal": 0, "rounds": 3, "threads": 2,
            "machine": "a machine", "versions": {}, "others_cores": 0.0, "gflops": [100.0] * 3, "f16_bytes": 1000,
            "reads": {"1000": [1e-3] * 3}, "entries": entries}


def lines_of(*cases):
    """(what, must, aim) as printed."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        peer_report.print_report(cases)
    rows = [row.strip("| ").split(" | ") for row in printed.getvalue().splitlines() if row.startswith("| ")]
    return {row[1]: row[-2:] for row in rows if len(row) == 6 and row[0] != "part"}, printed.getvalue()


class AttentionPeers(unittest.TestCase):
    def test_ours_is_measured_in_every_case_and_taken_up_again(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "results.jsonl")
            options = ("--peers", "none", "--tokens", "257", "--prefill", "129", "--cold", "4", "--json", str(file))
            done = peers(*options)
            self.assertEqual((done.returncode, done.stdout.count("\n### ")), (0, 7), done.stderr)
            cases = [json.loads(line) for line in file.read_text().splitlines()]
            again = peers(*options, "--resume")
            self.assertEqual((again.returncode, again.stderr, again.stdout), (0, "", done.stdout))
            other = peers(*options, "--cold", "5", "--resume")
            self.assertEqual((other.returncode, other.stderr), (0, "measuring layers, 257 tokens\n"))
        self.assertEqual([case["case"] for case in cases], ["decode", "layers", "layout", "prefill", "prefill", "batch"])
        self.assertEqual([case.get("cold", 0) for case in cases], [0, 4 << 20, 0, 0, 0, 0])
        for case in cases:
            self.assertTrue(case["entries"])
            for label, entry in case["entries"].items():
                self.assertIn(f"| {label} |", done.stdout)
                self.assertEqual(len(entry["seconds"]), 2)
                self.assertGreater(min(entry["seconds"]), 0)
                # At worst the sums of 128 products of q.k and of 257 of P.V are rounded to f32 one after the other.
                self.assertLess(entry["error"], (128 + 257) * 2.0 ** -24)
        heads, tokens = (cases[2]["entries"][f"ours 4-bit, {layout}-major"]["bytes"] for layout in ("head", "token"))
        self.assertEqual((heads, tokens), (2 * 257 * 8 * 72, 2 * 257 * 8 * 72))

    def fake(self, answer):
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder, "library")
            library.write_text(FAKE.replace("ANSWER", answer))
            library.chmod(0o755)
            return peers("--cases", "decode", "--tokens", "64", "--peers", "mlx", "--python", f"mlx={library}")

    def test_wrong_values_are_not_timed(self):
        right, wrong, nan = self.fake("0.01"), self.fake("0.5"), self.fake("nan")
        self.assertEqual((right.returncode, wrong.returncode, nan.returncode), (0, 1, 1))
        self.assertIn("| MLX f32 | 10.000 ", right.stdout)
        for done in (wrong, nan):
            self.assertNotIn("| MLX f32 |", done.stdout)
            self.assertIn("MLX f32 is not measured: its values are off by", done.stderr)

    def test_a_library_that_is_not_there_is_left_out_with_a_line(self):
        done = peers("--cases", "decode", "--tokens", "64", "--peers", "ggml", "--python", "ggml=/nowhere/python")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ggml is not measured: ", done.stderr)
        self.assertIn("| ours f16 |", done.stdout)

    def test_a_limit_is_met_or_missed_by_what_was_measured(self):
        fast, _ = lines_of(case_of({"ours bf16": 1.5, "torch bf16, folded": 3}))
        slow, _ = lines_of(case_of({"ours bf16": 1.6, "torch bf16, folded": 2}))
        self.assertEqual(fast["bf16: share of reading"], ["0.65 met", "0.85 missed"])
        layers, _ = lines_of(case_of({"ours bf16": 1.6, "torch bf16, folded": 2}, "layers"))
        self.assertEqual(layers["bf16: share of reading"], ["0.65 missed", "0.85 missed"])
        self.assertEqual(slow["bf16: share of reading"], ["0.65 missed", "0.85 missed"])
        self.assertEqual(fast["bf16: times as fast as torch bf16 folded"], ["1.5 met", "-"])
        self.assertEqual(slow["bf16: times as fast as torch bf16 folded"], ["1.5 missed", "-"])
        batch = "f16: time of one call over four"
        fast, _ = lines_of(case_of({"ours f16, one call": 3.5, "ours f16, four calls": 4}, "batch"))
        slow, _ = lines_of(case_of({"ours f16, one call": 4.1, "ours f16, four calls": 4}, "batch"))
        self.assertEqual((fast[batch], slow[batch]), (["1 met", "0.9 met"], ["1 missed", "0.9 missed"]))

    def test_a_limit_between_the_quartiles_is_said_to_be_near(self):
        case = case_of({"ours bf16": 1.5})
        case["entries"]["ours bf16"]["seconds"] = [1.6e-3, 1.5e-3, 1.4e-3]  # shares of 0.625, 0.667 and 0.714
        rows, _ = lines_of(case)
        self.assertEqual(rows["bf16: share of reading"], ["0.65 met, within quartiles", "0.85 missed"])

    def test_cases_that_others_disturbed_are_named(self):
        case = case_of({"ours bf16": 1.5})
        self.assertNotIn("Other programs ran", lines_of(case)[1])
        self.assertIn("not to be relied on are decode, 32768 tokens.", lines_of({**case, "others_cores": 0.5})[1])

    def test_torch_counts_by_its_faster_way(self):
        rows, _ = lines_of(case_of({"ours f32": 5, "torch f32, enable_gqa": 6, "torch f32, K and V repeated": 4}, "prefill"))
        self.assertEqual(rows["f32: times as fast as torch f32, K and V repeated"], ["1 missed", "-"])

    def test_what_was_not_measured_is_listed(self):
        rows, printed = lines_of(case_of({"ours bf16": 1.5}))
        self.assertNotIn("bf16: times as fast as torch bf16 folded", rows)
        self.assertIn("* decode, 32768 tokens: bf16: times as fast as torch bf16 folded (torch bf16, folded was not measured)", printed)
        self.assertIn("* prefill: no case of it", printed)

    def test_rows_of_the_data_have_the_columns_of_the_files(self):
        cases = [case_of({"ours bf16": 1.5, "torch bf16, folded": 3}),
                 case_of({"ours f32": 5, "torch f32, enable_gqa": 6, "torch f32, K and V repeated": 4}, "prefill")]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "runs.csv").write_text("run\nmine\n")
            (folder / "file.json").write_text("".join(json.dumps(case) + "\n" for case in cases))
            peer_rows.main(folder / "file.json", "mine", folder)
            rows = {path.stem: list(csv.reader(path.read_text().splitlines())) for path in folder.glob("attention_*.csv")}
            with self.assertRaises(SystemExit):
                peer_rows.main(folder / "file.json", "yours", folder)
        for name in ("attention_times", "attention_prefill", "attention_required", "attention_reads"):
            with (BENCH.parent / "results" / f"{name}.csv").open() as file:
                columns = next(csv.reader(file))
            self.assertEqual({len(row) for row in rows[name]}, {len(columns)}, name)
        self.assertIn(["mine", "decode", "32768", "bf16: share of reading", ">= 0.65", ">= 0.85", "0.667", "0.667", "0.667"],
                      rows["attention_required"])
        self.assertIn(["mine", "prefill", "32768, all visible", "f32: times as fast as torch f32", ">= 1", "-", "0.800", "0.800",
                       "0.800"], rows["attention_required"])


@unittest.skipIf(Layers is None, "NumPy is not there")
class AttentionLayers(unittest.TestCase):
    """peer_server.py with a library that notes what it is asked to do."""

    class Library:
        def __init__(self, fails_at=None):
            self.done, self.count, self.fails_at = [], 0, fails_at

        def start(self, problem):
            layer = self.count
            self.count += 1
            if layer == self.fails_at:
                raise MemoryError("no room")

            def run():
                self.done.append(layer)

            run.prepare = lambda: None
            run.close = lambda: self.done.append(f"close {layer}")
            values = exact(problem.q, problem.k, problem.v, False)
            held = [problem.q, problem.k, problem.v]
            return run, 1000, lambda: values * (1, 1, 1.5, float("nan"), 1)[layer], held

    def layers(self, cold, fails_at=None):
        library = self.Library(fails_at)
        return library, lambda: Layers(library, Problem({"format": "f32", "tokens": "3", "cold": str(cold)}))

    def test_runs_take_layers_in_turn_and_every_layer_is_checked(self):
        library, start = self.layers(2500)
        layers = start()
        for _ in range(7):
            layers.next_run()()
        self.assertEqual(library.done, [0, 1, 2, 0, 1, 2, 0])
        self.assertAlmostEqual(layers.error(), 0.5)
        layers.close()
        self.assertEqual(library.done[7:], ["close 0", "close 1", "close 2"])
        self.assertTrue(math.isnan(self.layers(5000)[1]().error()))
        for cold in (0, 2000):
            library, start = self.layers(cold)
            self.assertEqual(start().error(), 0)
            self.assertEqual(library.count, max(1, cold // 1000))

    def test_layers_before_one_that_fails_are_given_back(self):
        library, start = self.layers(5000, fails_at=2)
        self.assertRaises(MemoryError, start)
        self.assertEqual(library.done, ["close 0", "close 1"])


if __name__ == "__main__":
    unittest.main()
