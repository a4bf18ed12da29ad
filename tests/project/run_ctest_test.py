"""What tools/run_ctest.py says of tests that did not run, and where."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "run_ctest.py"
TESTS = """
add_test(passes true)
add_test(skips sh -c "echo noise; echo SKIPPED: no engine here; exit 77")
set_tests_properties(skips PROPERTIES SKIP_RETURN_CODE 77)
add_test(skips_as_well sh -c "echo SKIPPED: no engine here; exit 77")
set_tests_properties(skips_as_well PROPERTIES SKIP_RETURN_CODE 77)
add_test(google sh -c "echo a_test.cc:7: Skipped; echo no such processor; echo")
set_tests_properties(google PROPERTIES SKIP_REGULAR_EXPRESSION "Skipped")
"""


class RunCtest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_tool(self, tests, notes=None, *arguments):
        folder = pathlib.Path(self.folder.name)
        (folder / "CTestTestfile.cmake").write_text(tests)
        if notes:
            (folder / "notes").write_text(notes)
        return subprocess.run([sys.executable, str(TOOL), str(folder / "notes"), "--test-dir", str(folder), *arguments],
                              capture_output=True, text=True, timeout=600)

    def test_reasons_come_before_the_closing_summary(self):
        done = self.run_tool(TESTS, "live tests: --all\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        before, after = done.stdout.split("== what did not run, and why\n")
        self.assertIn("Start 1: passes", before)
        self.assertIn("  no engine here: skips, skips_as_well\n  no such processor: google\n  live tests: --all\n\n100% tests passed", after)
        self.assertRegex(after, r"Total Test time[^\n]*\n(.|\n)*skips \(Skipped\)")

    def test_nothing_is_said_where_all_ran(self):
        done = self.run_tool("add_test(passes true)\n")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("what did not run", done.stdout)
        self.assertIn("100% tests passed", done.stdout.splitlines()[-3])

    def test_a_failure_is_ctests(self):
        self.assertEqual(self.run_tool("add_test(fails false)\n").returncode, 8)
        self.assertNotEqual(self.run_tool("add_test(passes true)\n", None, "-R", "nothing", "--no-tests=error").returncode, 0)


if __name__ == "__main__":
    unittest.main()
