"""The trained model in other engines, teacher-forced through each of their caches, judged by `kvcheck agree --logits`.

    agree_engines.py KVCHECK [ENGINE[:CACHE]...] [--positions N] [--batch N] [--model FOLDER] [--keep FOLDER]

ENGINE: transformers, mlx_lm, llama_cpp, each in the environment that make_venv.sh makes, or KVCHECK_PYTHON names; left
out: those that are there.
With a CACHE only the rows of that one. --model: what the engines load; what is right is always that of golden/model.
What each is asked, row by row, stands in ROWS below. Prints a table; what is judged is one of

    noise     the engine's run beside a gold: a flip is excused by the noise floor of that engine, the largest change of
              a likely token when the same text comes in other chunks (--judge --got-noise). PASS, FAIL or MISTRUSTED
    bound     noise, and no log-probability of the gold's two most likely tokens may be off by more than float32 explains:
              the change of a margin that the bounds of kvcheck's own steps allow (`explained` of kvcheck agree, which the
              run prints; a lower bound of what any order of sums allows, as K and V are given there)
    same      beside another run of the same engine: every bit of every logit, by `kvcheck compare`. PASS or FAIL
    figures   nothing: what a format of the engine's costs
    refused   the library's own words, as far as ROWS names them

Exit codes: 0 every row says what ROWS expects; 1 one does not; 2 wrong usage, or no engine is there.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

from check_findings import environment

ADAPTERS = pathlib.Path(__file__).resolve().parent
MODEL = ADAPTERS.parents[1] / "golden/model"
REFERENCE = "reference"  # in full precision; "reference over FORMAT": over what kvcheck stores in that format


class Row(NamedTuple):
    run: str
    gold: str
    judged: str  # noise, bound, same, figures, refused
    expected: str = "PASS"  # of refused: what the library says


def plain(*caches, restored="same"):
    """Caches in full precision: alone, in a batch, restored. restored: how that is judged."""
    for cache in caches:
        yield Row(cache, REFERENCE, "bound")
    for cache in caches:
        yield Row(f"{cache}+batch", REFERENCE, "bound")
    for cache in caches:
        yield Row(f"{cache}+restored", cache, restored)


ROWS = {
    "transformers": [
        *plain("plain", "sliding", "static"),
        *(Row(cache, REFERENCE, "figures") for cache in ("fp8", "hqq8", "hqq4", "quanto4", "quanto2")),
        *(Row(f"{cache}+batch", REFERENCE, "figures") for cache in ("fp8", "hqq8", "hqq4", "quanto4", "quanto2")),
        *(Row(f"{cache}+restored", cache, "same") for cache in ("fp8", "hqq8", "hqq4", "quanto4", "quanto2")),
        Row("of_its_config", REFERENCE, "refused", "only supported for models with only full attention layers"),
    ],
    "mlx_lm": [
        *plain("plain", "sliding"),
        Row("concatenate", REFERENCE, "bound"),
        Row("concatenate+restored", "concatenate", "same"),
        *(Row(cache, REFERENCE, "figures") for cache in ("affine8", "affine4")),
        Row("affine8", "reference over affine:8:g64:f32", "noise"),
        Row("affine4", "reference over affine:4:g64:f32", "noise"),
        *(Row(f"{cache}+restored", cache, "same") for cache in ("affine8", "affine4")),
        Row("kv_bits4", REFERENCE, "refused", "NotImplementedError: RotatingKVCache Quantization NYI"),
    ],
    "llama_cpp": [
        # A restored context adds up in another order than a fresh one, so that bits differ.
        *plain("plain", "sliding", restored="bound"),
        Row("flash", "f16", "same"),  # a difference of FINDINGS.md
        *(Row(cache, REFERENCE, "figures") for cache in ("f16", "q8_0", "q8_0_q4_0", "q4_0", "unrotated_q4_0")),
        Row("f16", "reference over f16", "noise"),
        # Figures: llama.cpp multiplies queries in 8 bits with K in codes, which is an error of its own and no noise.
        Row("q8_0", "reference over hadamard:64:q8_0", "figures"),
        Row("q8_0_q4_0", "reference over hadamard:64:q8_0,hadamard:64:q4_0", "figures"),
        Row("q4_0", "reference over hadamard:64:q4_0", "figures"),
        Row("unrotated_q4_0", "reference over q4_0", "figures"),
        *(Row(f"{cache}+batch", cache, "noise") for cache in ("f16", "q8_0", "q4_0")),
        *(Row(f"{cache}+restored", cache, "noise") for cache in ("f16", "q8_0", "q4_0")),
    ],
}
OTHER_CHUNKS = "+chunk=37"  # coprime to what kernels take at a time


def cache_of(run):
    return run.split("+")[0]


def rows_of(engine, cache):
    return [row for row in ROWS[engine] if cache in ("", cache_of(row.run))]


def python_of(engine):
    return environment(ADAPTERS / engine)


def kvcheck_says(chosen, *options):
    """The output of kvcheck over golden/model."""
    command = [chosen.kvcheck, "agree", "--model", MODEL, "--text", MODEL / "held_out.txt", "--no-times", "--batch", chosen.batch,
               "--positions", chosen.positions, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def written(chosen, gold, path):
    """What the reference says."""
    over = [] if gold == REFERENCE else ["--format", gold.removeprefix("reference over ")]
    kvcheck_says(chosen, "--write-logits", path, *over)


def explained_by_float32(chosen):
    """How far kvcheck's own bounds let a margin move, in the median of the least certain tokens."""
    report = json.loads(kvcheck_says(chosen, "--format", "f32", "--json", "-"))
    return report["storages"][0]["propagated"]["median"]


class Engine:
    def __init__(self, name, cache, program, model, explained, folder):
        self.name, self.program, self.model, self.folder, self.noise = name, program, model, folder / name, {}
        self.explained = explained
        self.rows = rows_of(name, cache)
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, reference):
        runs = {}  # in the order in which they are asked for
        for row in self.rows:
            more = [cache_of(row.run), cache_of(row.run) + OTHER_CHUNKS] if row.judged in ("noise", "bound") else []
            runs.update(dict.fromkeys([row.run, *more, *([] if row.gold.startswith(REFERENCE) else [row.gold])]))
        subprocess.run([python_of(self.name), ADAPTERS / self.name / "agree.py", reference, self.folder, *runs,
                        "--model", self.model], check=True, stdin=subprocess.DEVNULL)

    def path(self, run):
        return self.folder / f"{run}.safetensors"

    def asked(self, command):
        return subprocess.run([self.program, *map(str, command)], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def agreement(self, gold, got, *options):
        done = self.asked(["agree", "--logits", gold, got, *options, "--json", "-"])
        if done.returncode == 2:
            sys.exit(f"{self.name}: {got}: {done.stderr}")
        return json.loads(done.stdout)["gots"][0]

    def noise_of(self, run):
        """How far a likely token moves when the same text comes in other chunks, through the same cache."""
        cache = cache_of(run)
        if cache not in self.noise:
            self.noise[cache] = self.agreement(self.path(cache), self.path(cache + OTHER_CHUNKS))["largest"]
        return self.noise[cache]

    def judge(self, row, golds):
        """(verdict, what is shown beside it)."""
        refused = self.folder / f"{row.run}.refused"
        if refused.exists():
            said = refused.read_text().strip().splitlines()[0]
            return ("PASS" if row.judged == "refused" and row.expected in said else "REFUSED"), ["", "", "", "", "", said]
        if row.judged == "refused":
            return "FAIL", [""] * 5 + ["is answered"]
        gold = golds.get(row.gold) or self.path(row.gold)
        judged = row.judged in ("noise", "bound")
        noise = self.noise_of(row.run) if judged else 0
        report = self.agreement(gold, self.path(row.run), *(["--judge", "--got-noise", noise] if judged else []))
        figures = report["figures"]
        cells = [f"{100 * figures['top1']['value']:.2f}", f"{figures['kl_mean']['value']:.2g}", f"{figures['kl_max']:.2g}",
                 f"{report['largest']:.2g}", f"{len(report['flips'])} ({report['excused']})"]
        if row.judged in ("noise", "bound"):
            beyond = row.judged == "bound" and not report["largest"] <= self.explained
            return "FAIL" if beyond else report["outcome"], [*cells, f"noise {noise:.2g}"]
        if row.judged == "same":
            done = self.asked(["compare", gold, self.path(row.run), "--quiet"])
            return {0: "PASS", 1: "FAIL"}.get(done.returncode, done.stderr.strip()), [*cells, "every bit"]
        return "", [*cells, f"perplexity {figures['perplexity_ratio']['value']:.4f}"]


def table_of(engine, golds):
    """Prints the rows of an engine. How many say something else than is expected."""
    others = 0
    for row in engine.rows:
        verdict, cells = engine.judge(row, golds)
        expected = {"figures": "", "refused": "PASS"}.get(row.judged, row.expected)
        others += verdict != expected
        note = "" if verdict == expected else f", expected {expected}"
        print("| " + " | ".join([engine.name, row.run, row.gold, *cells, verdict + note]) + " |",
              flush=True)
    return others


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcheck")
    parser.add_argument("engines", nargs="*", metavar="ENGINE[:CACHE]")
    parser.add_argument("--positions", type=int, default=1536)
    parser.add_argument("--batch", type=int, default=3)
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--keep", type=pathlib.Path, help="keep the dumps in this folder")
    chosen = parser.parse_args()
    asked = [tuple(word.partition(":")[::2]) for word in chosen.engines]
    for name, cache in asked:
        if name not in ROWS or not rows_of(name, cache):
            parser.error(f"{name}:{cache}: there are {', '.join(ROWS)}, and the caches that ROWS names")
    asked = asked or [(name, "") for name in ROWS if python_of(name)]
    missing = [name for name, _ in asked if not python_of(name)]
    if missing or not asked:
        parser.error(f"no environment of {', '.join(missing or ROWS)}: tools/adapters/make_venv.sh NAME makes it")
    with tempfile.TemporaryDirectory(prefix="kvcheck-engines-") as temporary:
        folder = chosen.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        golds = {}
        for gold in dict.fromkeys([REFERENCE, *(row.gold for name, cache in asked for row in rows_of(name, cache))]):
            if gold.startswith(REFERENCE):
                golds[gold] = folder / f"{gold.translate(str.maketrans(' :,', '_--'))}.safetensors"
                written(chosen, gold, golds[gold])
        explained = explained_by_float32(chosen)
        print(f"{chosen.positions} positions of {MODEL.name}, at least, in {chosen.batch} ragged rows; float32 explains {explained:.2g}\n")
        print("| engine | run | beside | top-1 % | KL mean | KL max | largest | flips (excused) | | verdict |")
        print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
        others = 0
        for name, cache in asked:
            engine = Engine(name, cache, chosen.kvcheck, chosen.model, explained, folder)
            engine.run(golds[REFERENCE])
            others += table_of(engine, golds)
    print(f"\n{others} rows say something else than expected" if others else "\nevery row says what is expected")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
