#!/usr/bin/env python3
"""The tables of bench/*.md are those that bench/tables.py makes of bench/results/, and a table that is not is seen.

    bench_tables_test.py
"""
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import tables  # noqa: E402

RUNS = "run,machine,date,commit,command\nold,a,2026-01-01,1234567,x\nnew,a,2026-02-01,89abcde,x\n"
DATA = "run,what,at,limit,value\nold,f16,1K,>= 2,3\nold,f16,2K,>= 2,1.5\nnew,f16,1K,>= 2,10000\nnew,bf16,1K,stated,1\n"


class Tables(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        results, tables.RESULTS = tables.RESULTS, self.path
        self.addCleanup(setattr, tables, "RESULTS", results)
        (self.path / "runs.csv").write_text(RUNS)
        (self.path / "data.csv").write_text(DATA)

    def page(self, mark, inside=""):
        page = self.path / "page.md"
        page.write_text(f"before\n<!-- table: {mark} -->\n{inside}<!-- end of table -->\nafter\n")
        return page

    def test_pages_show_what_the_data_make(self):
        result = subprocess.run([sys.executable, "-B", str(BENCH / "tables.py"), "--check"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_rows_are_chosen_by_their_columns(self):
        page = self.page("data run=new columns=what,value")
        self.assertEqual(tables.main([str(page)]), 0)
        self.assertEqual(page.read_text().splitlines()[2:6], ["| what | value |", "|---|---|", "| f16 | 10000 |", "| bf16 | 1 |"])
        self.assertEqual(tables.main(["--check", str(page)]), 0)

    def test_a_number_changed_by_hand_is_seen(self):
        page = self.page("data run=new columns=value")
        tables.main([str(page)])
        page.write_text(page.read_text().replace("10000", "10001"))
        sys.stderr, stderr = io.StringIO(), sys.stderr
        self.addCleanup(setattr, sys, "stderr", stderr)
        self.assertEqual(tables.main(["--check", str(page)]), 1)
        self.assertIn("10001", page.read_text())

    def test_values_go_across_and_are_bold_where_they_meet_their_limit(self):
        text = tables.table("data run=old|new what=f16 rows=what,limit across=run,at show=value bold=limit")
        self.assertEqual(text, "| what | limit | old, 1K | old, 2K | new, 1K |\n|---|---|---|---|---|\n"
                               "| f16 | >= 2 | **3** | 1.5 | **10000** |\n")
        with self.assertRaises(tables.Wrong):  # two values for one place
            tables.table("data what=f16 rows=what across=at show=value")

    def test_a_cell_may_quote_another(self):
        self.assertEqual(tables.resolved("{data; run=new; what=f16; value; ,} and {data; run=old; at=2K; value}"), "10,000 and 1.5")
        for wrong in ("{data; what=f16; value}", "{data; run=none; value}", "{data; run=new; what=f16; nothing}", "{none; value}"):
            with self.assertRaises(tables.Wrong):
                tables.resolved(wrong)

    def test_a_row_needs_a_run_that_says_everything(self):
        tables.check_runs()
        (self.path / "data.csv").write_text(DATA + "other,f16,1K,>= 2,3\n")
        with self.assertRaises(tables.Wrong):
            tables.check_runs()
        (self.path / "data.csv").write_text(DATA)
        (self.path / "runs.csv").write_text(RUNS.replace("1234567", ""))
        with self.assertRaises(tables.Wrong):
            tables.check_runs()

    def test_printed_tables_are_added_under_their_run(self):
        printed = "text\n| what | at | limit | value |\n|---|---|---|---|\n| f32 | 4K | >= 1 | **7** |\n"
        tables.add("data", "new", printed)
        self.assertEqual((self.path / "data.csv").read_text(), DATA + "new,f32,4K,>= 1,7\n")
        for name, run, text in (("data", "other", printed), ("data", "new", printed.replace("limit", "most")), ("data", "new", "")):
            with self.assertRaises(tables.Wrong):
                tables.add(name, run, text)

    def test_a_mark_without_end_is_seen(self):
        page = self.path / "page.md"
        page.write_text("<!-- table: data -->\n")
        with self.assertRaises(tables.Wrong):
            tables.main(["--check", str(page)])


if __name__ == "__main__":
    unittest.main()
