#!/usr/bin/env python3
"""Proves that check_types.py can fail: a clean tree passes, and each way to define a name twice is found."""

import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import check_types

OTHER = "namespace kvcheck {{\n{}\n}}  // namespace kvcheck\n"
HEADER = """namespace kvcheck {
class Forward;
struct Question {
  int x = 0;
};
class Store : public Base {
 public:
  struct State;
};
inline int Twice(int x) { return 2 * x; }
inline constexpr int kTwo = 2;
}  // namespace kvcheck
"""
CLEAN = {
    "tools/a/question.h": HEADER,
    "tools/a/question.cc": OTHER.format("struct Store::State {\n};\nclass Question;"),
    "tools/b/own.cc": "namespace kvcheck {\nnamespace {\nstruct Question {};\n}  // namespace\n}  // namespace kvcheck\n",
    "optimized/b/other.h": OTHER.format("namespace optimized {\nstruct Question {};\n}  // namespace kvcheck::optimized"),
    "tools/b/overload.h": OTHER.format("inline long Twice(long x) { return 2 * x; }"),
}
BROKEN = [
    "struct Question {};",
    "struct Question {",
    "enum class Question : uint8_t { kYes };",
    "class Store final : public Base {",
    "class Store",
    "inline int Twice(int x) { return x + x; }",
]


def run(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = check_types.main(["check_types.py", root])
        return code, out.getvalue()


class CheckTypes(unittest.TestCase):
    def test_clean_tree_passes(self):
        self.assertEqual(run(CLEAN), (0, ""))

    def test_second_definitions_are_found(self):
        for line in BROKEN:
            with self.subTest(line):
                code, out = run({**CLEAN, "bench/c/second.h": OTHER.format(line)})
                self.assertEqual(code, 1)
                self.assertEqual(out.count("\n"), 1)
                self.assertIn("bench/c/second.h", out)

    def test_nothing_to_check_is_an_error(self):
        self.assertEqual(run({})[0], 2)


if __name__ == "__main__":
    unittest.main()
