#!/usr/bin/env python3
"""Proves that check_includes.py can fail: a clean tree passes, and each forbidden line is found."""

import contextlib
import io
import os
import tempfile
import unittest

import check_includes

CLEAN = {
    "reference/spec/a.h": "#include <string>\n#include <fmt/format.h>\n",
    "reference/numerics/b.h": '#include "reference/spec/a.h"\n#include <Eigen/Core>\n',
    "reference/numerics/oracle.cc": "#include <boost/multiprecision/cpp_bin_float.hpp>\n",
    "reference/data/d.h": '#include "reference/numerics/b.h"\n',
    "reference/formats/c.h": '  #  include "reference/data/d.h"\n',
    "reference/attention/e.cc": '#include "reference/formats/c.h"\n',
    "reference/cache/e.cc": '#include "reference/formats/c.h"\n',
    "reference/judge/f.h": '#include "reference/numerics/b.h"\n',
    "reference/trace/f.h": '#include "reference/judge/f.h"\n',
    "optimized/g.h": '#include "reference/spec/a.h"\n#include <hwy/highway.h>\n',
    "golden/h.h": '#include "reference/numerics/b.h"\n#include <hdf5.h>\n',
    "fuzz/i.h": '#include "reference/judge/f.h"\n',
    "fuzz/targets/j.cc": '#include "golden/h.h"\n#include "tools/corridor/k.h"\n',
    "tools/corridor/k.h": '#include "golden/h.h"\n#include "optimized/g.h"\n#include <unistd.h>\n',
    "tools/campaign/k.h": '#include "tools/corridor/k.h"\n#include "fuzz/i.h"\n',
    "tools/kvcheck/commands.h": '#include "tools/campaign/k.h"\n#include <CLI/CLI.hpp>\n#include <iostream>\n',
    "tests/golden/l_test.cc": '#include "tools/corridor/k.h"\n#include <gtest/gtest.h>\n',
    "bench/m_bench.cc": '#include "optimized/g.h"\n#include <benchmark/benchmark.h>\n',
    "reference/numerics/oracle-inl.h": "#include <boost/multiprecision/cpp_int.hpp>\n",
    "reference/numerics/oracle50.cc": '#include "reference/numerics/oracle-inl.h"\n',
    "reference/numerics/exp-inl.h": "#include <cmath>\n",
    "reference/attention/kernel-inl.h": '#include "reference/numerics/exp-inl.h"\n',
    "tests/golden/helper.h": '#include <string>\n',
    "tests/golden/n_test.cc": '#include "helper.h"\n',
    "tools/adapters/cpp/o.h": "#include <msgpack.hpp>\n",
    "tools/adapters/cpp/p.cc": '#include "o.h"\n',
    "tests/tools/q_test.cc": '#include "tools/adapters/cpp/o.h"\n',
    # Not a source of the project.
    "build/x.h": '#include "tests/golden/l_test.cc"\n',
    "tools/adapters/lib/venv/pyvenv.cfg": "version = 3.11.2\n",
    "tools/adapters/lib/venv/include/lib/y.h": '#include "lib/z.h"\n',
}

# (file, forbidden line, what the report must say)
FORBIDDEN = [
    ("reference/spec/a.h", '#include "reference/numerics/b.h"', "may not include"),
    ("reference/numerics/b.h", '#include "reference/judge/f.h"', "may not include"),
    ("reference/numerics/b.h", '#include "reference/data/d.h"', "may not include"),
    ("reference/numerics/b.h", "#include <boost/multiprecision/cpp_int.hpp>", "belongs to"),
    ("reference/data/d.h", '#include "reference/numerics/oracle-inl.h"', "belongs to"),
    ("reference/data/d.h", '#include "reference/formats/c.h"', "may not include"),
    ("reference/formats/c.h", '#include "reference/judge/f.h"', "may not include"),
    ("reference/attention/e.cc", '#include "reference/judge/f.h"', "may not include"),
    ("reference/attention/e.cc", "#include <Eigen/Core>", "belongs to"),
    ("reference/attention/e.cc", "#include <immintrin.h>", "standard library"),
    ("reference/judge/f.h", '#include "reference/formats/c.h"', "may not include"),
    ("reference/judge/f.h", "#include <unistd.h>", "standard library"),
    ("reference/judge/f.h", '#include "reference/trace/f.h"', "may not include"),
    ("optimized/g.h", '#include "reference/formats/c.h"', "may not include"),
    ("optimized/g.h", '#include "reference/numerics/b.h"', "may not include"),
    ("golden/h.h", '#include "reference/formats/c.h"', "may not include"),
    ("golden/h.h", '#include "tools/corridor/k.h"', "may not include"),
    ("fuzz/i.h", '#include "optimized/g.h"', "may not include"),
    ("fuzz/targets/j.cc", '#include "tests/golden/l_test.cc"', "may not include"),
    ("tools/corridor/k.h", '#include "tests/golden/l_test.cc"', "may not include"),
    ("tools/corridor/k.h", '#include "bench/m_bench.cc"', "may not include"),
    ("tools/corridor/k.h", "#include <hdf5.h>", "belongs to"),
    ("tools/corridor/k.h", "#include <CLI/CLI.hpp>", "belongs to"),
    ("tools/corridor/k.h", "#include <iostream>", "belongs to"),
    ("tools/corridor/k.h", '#include "tools/campaign/k.h"', "may not include"),
    ("tools/corridor/k.h", '#include "fuzz/i.h"', "may not include"),
    ("tools/campaign/k.h", '#include "tools/kvcheck/commands.h"', "may not include"),
    ("tools/n.h", "#include <string>", "stands in no room"),
    ("tools/corridor/k.h", "#include <gtest/gtest.h>", "belongs to"),
    ("tests/golden/l_test.cc", '#include "bench/m_bench.cc"', "may not include"),
    ("bench/m_bench.cc", '#include "tests/golden/l_test.cc"', "may not include"),
    ("tools/corridor/k.h", '#include "../golden/h.h"', "no path from the repository root"),
    ("tools/corridor/k.h", '#include "h.h"', "no path from the repository root"),
    ("tests/golden/n_test.cc", '#include "absent.h"', "no path from the repository root"),
    ("tests/golden/n_test.cc", '#include "../golden/helper.h"', "no path from the repository"),
    ("tools/corridor/k.h", '#include "golden/absent.h"', "does not exist"),
    ("tools/corridor/k.h", "#include <golden/h.h>", "is a file of the project"),
    ("tools/adapters/cpp/o.h", '#include "reference/spec/a.h"', "may not include"),
    ("tools/corridor/k.h", '#include "tools/adapters/cpp/o.h"', "may not include"),
    ("tools/corridor/k.h", "#include <msgpack.hpp>", "belongs to"),
    ("server/n.h", "#include <string>", "stands in no room"),
]


def run(tree):
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            code = check_includes.main(["check_includes.py", root])
        return code, output.getvalue()


class CheckIncludes(unittest.TestCase):
    def test_clean_tree_passes(self):
        code, output = run(CLEAN)
        self.assertEqual(code, 0, output)
        self.assertIn("27 files, 39 includes, 0 against", output)

    def test_each_forbidden_include_is_found_alone(self):
        for path, line, reason in FORBIDDEN:
            with self.subTest(path=path, line=line):
                text = CLEAN.get(path, "") + line + "\n"
                code, output = run({**CLEAN, path: text})
                self.assertEqual(code, 1, output)
                self.assertIn(reason, output)
                self.assertIn(f"{path}:", output)
                self.assertIn(", 1 against", output)

    def test_empty_tree_proves_nothing(self):
        code, output = run({})
        self.assertEqual(code, 2, output)


if __name__ == "__main__":
    unittest.main()
