#!/usr/bin/env python3
"""Suites of others under `pytest --kvcheck-audit`: which faults do their tolerances let through, and what does asking cost?

    audit_suites.py run NAME CHECKOUT [--python PYTHON] [--limit 2] [--revision REVISION]
                                                                      asks one suite; its findings go into audits.json
    audit_suites.py page [--check]                                    writes audits.md from audits.json, or compares

NAME: a key of SUITES; CHECKOUT: a clone of its repository, or an unpacked source distribution. PYTHON: an interpreter that
has the suite's library, pytest and kvcheck. REVISION: of a checkout that git does not know. The suite runs twice, without the audit and with it; of times that of the
processor counts, user and system, which other work on the machine does not make longer.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
DATA = HERE / "audits.json"
PAGE = HERE / "audits.md"

# What is asked of a suite: its repository, the distribution whose version is named, where pytest runs, its arguments.
SUITES = {
    "mlx": ("https://github.com/ml-explore/mlx", "mlx", "python/tests", ["test_fast_sdpa.py"]),
    "mlx_lm": ("https://github.com/ml-explore/mlx-lm", "mlx-lm", "tests", [
        "test_models.py", "-k", "rotating_kv_cache or quantized_sdpa or chunked_kv_cache or kv_shared or without_cache"]),
    "x_transformers": ("https://github.com/lucidrains/x-transformers", "torch", "tests", [
        "test_x_transformers.py", "-k", "cache or caching or parity or external_key_values"]),
}


def timed(command, folder):
    """(output, exit status, seconds of the processor) of a command and what it started."""
    before = os.times()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout + done.stderr, done.returncode, seconds


def revision_of(checkout):
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or checkout.name


def run(name, checkout, python, limit, revision):
    _, distribution, folder, arguments = SUITES[name]
    where = checkout / folder
    version = subprocess.run([python, "-c", f"from importlib.metadata import version; print(version('{distribution}'))"],
                             capture_output=True, text=True, check=True).stdout.strip()
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    plain_text, plain_status, plain = timed(pytest, where)
    with tempfile.TemporaryDirectory() as scratch:
        found = pathlib.Path(scratch) / "audit.json"
        text, status, audited = timed(
            [*pytest, "--kvcheck-audit", f"--kvcheck-audit-limit={limit}", f"--kvcheck-audit-json={found}"], where)
        if not found.is_file():
            sys.exit(f"{name}: no audit was written; pytest ended with {status}:\n{text}")
        says = json.loads(found.read_text(encoding="utf-8"))
    if (outcomes_of(plain_text), plain_status) != (outcomes_of(text), status):
        sys.exit(f"{name}: under the audit the outcomes are others:\n{plain_text}\n{text}")
    return {"revision": revision or revision_of(checkout), "library": f"{distribution} {version}", "outcomes": outcomes_of(text),
            "seconds": {"plain": round(plain, 1), "audited": round(audited, 1)}, "not_asked": says["not_asked"],
            "tests": says["tests"]}


def outcomes_of(text):
    """"14 passed, 9 skipped" of pytest's last line."""
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?|deselected|subtests passed)", text)
    return ", ".join(counts)


# ------------------------------------------------------------------------------------------------------------- the page
HEAD = """# What tolerances of others let through
Suites that judge attention and caches, run here under [`pytest --kvcheck-audit`](README.md): every assertion that passed was asked again with faults in what it was given. A
fault that passes says that the assertion cannot see it, not that the library has it. Made by `audit_suites.py page` from what `audit_suites.py run` found.

*Explained*: of assertions about the output of an attention whose inputs are known, the largest distance of two right answers (the bound of kernels of which nothing is known);
where the other side is another question (a quantized cache), what it loses comes on top. Faults of attention are those of [`kvcheck faults`](../faults/TABLE.md), asked where
the bound tells them from a right answer. A count after a fault: the assertions of the test that let it through, where not all of them did.
"""


def number(x):
    return "" if x is None else f"{x:.1e}"


def counted(passed, of):
    return ", ".join(name if n == of else f"{name} ({n} of {of})" for name, n in passed.items())


def section(name, found):
    repository, _, _, arguments = SUITES[name]
    tests = found["tests"]
    asked = sum(row["assertions"] for row in tests)
    loose = [row for row in tests if row["passed"] or row["attention"] and row["attention"]["passed"]]
    seconds = found["seconds"]
    lines = [f"\n## {' '.join(arguments[:1])} of {repository.rsplit('/', 1)[1]}",
             f"[{repository.removeprefix('https://')}]({repository}) at `{found['revision']}`, {found['library']}: `pytest "
             + " ".join(f"'{word}'" if " " in word else word for word in arguments) + f"`, {found['outcomes']}.",
             f"Asked again: {asked} assertions of {len(tests)} tests ({found['not_asked']} more were not, for their time). "
             f"Tests that let some fault through: {len(loose)}. Processor time {seconds['audited']} s in place of "
             f"{seconds['plain']} s, {seconds['audited'] / seconds['plain']:.2f} times.",
             "", "| test | tolerance | largest error | explained | faults of any array | faults of attention |",
             "|---|---|---|---|---|---|"]
    for row in tests:
        attention = row["attention"]
        lines.append("| " + " | ".join([
            row["test"].rsplit("::", 1)[-1].replace("|", "\\|"), ", ".join(row["tolerances"]), number(row["largest_error"]),
            number(attention and attention["justified"]), counted(row["passed"], row["assertions"]) or "none",
            (counted(attention["passed"], attention["assertions"]) or "none") if attention else "not known"]) + " |")
    return "\n".join(lines) + "\n"


def page(data):
    return HEAD + "".join(section(name, data[name]) for name in SUITES if name in data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("run")
    asked.add_argument("name", choices=SUITES)
    asked.add_argument("checkout", type=pathlib.Path)
    asked.add_argument("--python", default=sys.executable)
    asked.add_argument("--limit", type=float, default=2.0)
    asked.add_argument("--revision")
    commands.add_parser("page").add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.is_file() else {}
    if arguments.command == "run":
        data[arguments.name] = run(arguments.name, arguments.checkout.resolve(), arguments.python, arguments.limit,
                                   arguments.revision)
        DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if arguments.command == "page" and arguments.check:
        if PAGE.read_text(encoding="utf-8") != page(data):
            sys.exit(f"{PAGE} is not what {DATA} makes: {HERE.name}/audit_suites.py page")
        return
    PAGE.write_text(page(data), encoding="utf-8")


if __name__ == "__main__":
    main()
