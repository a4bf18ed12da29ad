"""The first block of README.md as it stands, in an empty environment, and the test below it: it fails there on the kernel that
the page names, and passes on a right one.

    tools/python/venv/bin/python tests/tools/python/readme_block.py

Exit codes: 0; 3 the package index cannot be reached; else what failed.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from test_documents import FAILING, KERNEL, ROOT

ENVIRONMENT = ROOT / "build/python/readme"


def run(*command, **how):
    print("$", *command, flush=True)
    return subprocess.run(command, **how)


def main():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```\n(.*?)^```\n", page, re.S | re.M)[1]
    assert "pip install" in block, block
    run(sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT), check=True)
    # As after its `activate`.
    activated = {**os.environ, "VIRTUAL_ENV": str(ENVIRONMENT), "PATH": f"{ENVIRONMENT}/bin:{os.environ['PATH']}"}
    activated.pop("PYTHONPATH", None)
    status = run("bash", "-e", "-c", block, cwd=ROOT, env=activated).returncode
    if status:
        return status
    pin = re.search(r"^pytest==.*$", (ROOT / "tools/python/requirements.txt").read_text(encoding="utf-8"), re.M)[0]
    run(f"{ENVIRONMENT}/bin/pip", "install", "-q", "--disable-pip-version-check", pin, check=True)
    shown = FAILING.search(page)
    for shift, expected in ((1, 1), (0, 0)):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "my_kernel.py").write_text(KERNEL.replace("SHIFT", str(shift)), encoding="utf-8")
            pathlib.Path(folder, "test_attention.py").write_text(shown["code"], encoding="utf-8")
            done = run("pytest", "-q", cwd=folder, env=activated, capture_output=True, text=True)
        first = shown["shown"].splitlines()[0]
        if done.returncode != expected or (first in done.stdout) != bool(expected):
            print(done.stdout, done.stderr, f"pytest: exit status {done.returncode}, expected {expected}, and {first!r}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
