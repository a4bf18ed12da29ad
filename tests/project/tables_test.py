#!/usr/bin/env python3
"""Proves that what the tables of implementations and of kinds of cases say is said nowhere else.

Outside the registry no text lists implementations, nothing casts to learn who answers, and nothing
tests a kind of case by its name. Comments are not looked at.
"""

import os
import re
import sys
import unittest

ROOT = os.path.abspath(sys.argv.pop() if len(sys.argv) > 1 and os.path.isdir(sys.argv[-1])
                       else os.path.join(os.path.dirname(__file__), "../.."))
ROOMS = ("reference", "optimized", "golden", "fuzz", "tools")
REGISTRY = ("tools/corridor/registry.", "tools/corridor/implementations.")
# Who stands in the table; the adapters' header is no part of the project.
OWN_NAMES = {"optimized", "model", "reference", "simulated"}
SKIPPED = ("tools/adapters/", "fuzz/targets/")
COMMENT = re.compile(r"//[^\n]*|^#include[^\n]*", re.M)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def sources():
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), ROOT).replace(os.sep, "/")
                if name.endswith((".h", ".cc")) and not path.startswith(SKIPPED):
                    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                        yield path, COMMENT.sub("", file.read())


def lists_of_names(text):
    """Strings that name a parameter of an implementation, and two names of the table in a file."""
    strings = STRING.findall(text)
    found = [s for s in strings
             if re.search(r"simulated:PLAN|fault:ID|optimized:portable|\bsmall_kernel\b", s)
             and not s.startswith("name=small_kernel")]
    named = sorted(OWN_NAMES.intersection(strings))
    return found + (named if len(named) > 1 else [])


def tests_of_kinds(text):
    return re.findall(r'\b[kK]ind(?:\(\)|\.text|Name\([^)]*\))?\s*[=!]=\s*"(?:cache|codec|attention|tensor)"', text)


class Tables(unittest.TestCase):
    def test_only_the_registry_lists_implementations(self):
        read = 0
        for path, text in sources():
            read += 1
            if path.startswith(REGISTRY) or path == "tools/faults/fault_table.h":
                continue
            self.assertEqual(lists_of_names(text), [], path)
        self.assertGreater(read, 300)

    def test_the_registry_itself_would_be_found(self):
        with open(os.path.join(ROOT, "tools/corridor/implementations.cc"), encoding="utf-8") as file:
            self.assertNotEqual(lists_of_names(COMMENT.sub("", file.read())), [])

    def test_nobody_casts_to_learn_who_answers(self):
        for path, text in sources():
            for cast in re.findall(r"dynamic_cast<[^>]*>", text):
                self.assertIsNone(re.search("Remote|Factory|Implementation|Kernel", cast),
                                  f"{path}: {cast}")

    def test_nothing_tests_a_kind_by_its_name(self):
        self.assertEqual(len(tests_of_kinds('if (kind == "cache" || answerer.kind != "codec")')), 2)
        for path, text in sources():
            self.assertEqual(tests_of_kinds(text), [], path)

    def test_running_and_judging_draw_nothing(self):
        for path, _ in sources():
            if path.startswith(("tools/corridor/", "tools/compare/", "tools/process/")):
                with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                    self.assertNotIn('#include "fuzz/', file.read(), path)


if __name__ == "__main__":
    unittest.main()
