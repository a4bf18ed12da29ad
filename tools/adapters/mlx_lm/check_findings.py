"""Runs the programs of findings/ and compares what they print with what FINDINGS.md says.

    tools/adapters/mlx_lm/venv/bin/python tools/adapters/mlx_lm/check_findings.py [NAME...]

Exit codes: 0 every program printed what stands there; 1 one did not, or a program or section has no counterpart;
2 mlx-lm is not installed.
"""
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 600


def quoted():
    """{name of the program: what FINDINGS.md says that it prints}."""
    found = {}
    for section in re.split(r"^### ", (HERE / "FINDINGS.md").read_text(), flags=re.M)[1:]:
        title = section.splitlines()[0]
        for name, text in re.findall(r"^`findings/(\w+)\.py` prints\n```\n(.*?)```$", section, flags=re.M | re.S):
            found[name] = text
        if not re.search(r"^`findings/", section, flags=re.M):
            raise SystemExit(f"FINDINGS.md: '{title}' quotes no program")
    return found


def printed(name):
    done = subprocess.run([sys.executable, str(HERE / "findings" / f"{name}.py")], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout + (done.stderr if done.returncode else "")


def main(names):
    if importlib.util.find_spec("mlx_lm") is None:
        print("mlx-lm is not installed: tools/adapters/make_venv.sh mlx_lm", file=sys.stderr)
        return 2
    said = quoted()
    programs = {path.stem for path in (HERE / "findings").glob("*.py")}
    failures = [f"findings/{name}.py stands in no section of FINDINGS.md" for name in sorted(programs - set(said))]
    failures += [f"FINDINGS.md names findings/{name}.py, which is not there" for name in sorted(set(said) - programs)]
    chosen = sorted(set(names) & programs if names else programs & set(said))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, text in zip(chosen, pool.map(printed, chosen)):
            if text != said[name]:
                failures.append(f"findings/{name}.py prints\n{text}FINDINGS.md says\n{said[name]}")
    print("\n".join([*failures, f"{len(chosen)} programs run, {len(failures)} failures"]))
    return 1 if failures or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
