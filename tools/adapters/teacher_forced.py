"""Feeds an engine a text token by token, whatever it would say itself, through a cache of its own, and writes what it says
as safetensors, for `kvcheck agree --logits`. The common part of NAME/agree.py, which run in NAME's environment:

    agree.py GOLD FOLDER RUN... --model FOLDER

GOLD is a file of `kvcheck agree --write-logits`, whose tokens are fed. Each RUN writes FOLDER/RUN.safetensors, with logits
in float32, sequence after sequence. A RUN is the name of a cache and words, in this order, as far as they are wanted:

    plain                 each sequence alone: chunks of 128 tokens, the last eighth token by token
    plain+chunk=37        chunks of 37
    plain+batch           all sequences of GOLD at once, as ragged rows of one batch
    plain+restored        the cache is saved in the middle of each sequence, and goes on from the file

With --times a line of JSON for each RUN: tokens, wall seconds and processor seconds of prefill and decode.

An engine is a class:

    caches                {name: what it is, in words}
    start(name, lengths)  a state for rows of these lengths; one row where there is no batch
    feed(state, tokens)   the next tokens: a list per row of integers, as many in each, PADDING before a row begins.
                          (rows, tokens, vocabulary) in float32; what is said for padding is ignored
    save(state, path), load(path)   the library's own
    version               of the library
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time

import numpy as np
from safetensors.numpy import load_file, save_file

CHUNK = 128
PADDING = -1


def sequences_of(gold):
    """The tokens of each sequence."""
    tensors = load_file(gold)
    if "tokens" not in tensors or "sequence" not in tensors:
        sys.exit(f"{gold}: no file of `kvcheck agree --write-logits`: it has no tokens and sequence")
    number = tensors["sequence"]
    return [tensors["tokens"][number == i].tolist() for i in range(number[-1] + 1)], tensors["next"]


def steps_of(columns, chunk):
    """How many tokens each call is given: those of kvcheck's own path (tools/agree/path.h), without drafts."""
    decoded = columns // 8
    whole, rest = divmod(columns - decoded, chunk)
    return [chunk] * whole + ([rest] if rest else []) + [1] * decoded


def words_of(run):
    name, *words = run.split("+")
    found = {"name": name, "chunk": CHUNK, "batch": False, "restored": False}
    for word in words:
        key, _, value = word.partition("=")
        if key not in found or key == "name" or bool(value) != (key == "chunk"):
            sys.exit(f"{run}: `{word}` is none of chunk=N, batch, restored")
        found[key] = int(value) if value else True
    return found


class Times:
    def __init__(self):
        self.spent = {kind: {"tokens": 0, "wall": 0.0, "processor": 0.0} for kind in ("prefill", "decode")}

    def feed(self, engine, state, tokens):
        wall, processor = time.perf_counter(), time.process_time()
        said = engine.feed(state, tokens)
        spent = self.spent["decode" if len(tokens[0]) == 1 else "prefill"]
        spent["tokens"] += sum(token != PADDING for row in tokens for token in row)
        spent["wall"] += time.perf_counter() - wall
        spent["processor"] += time.process_time() - processor
        return said


def fed(engine, rows, words, times):
    """What is said of rows (lists of tokens) in one batch: (tokens, vocabulary) of each. Shorter ones begin later."""
    longest = max(map(len, rows))
    padded = [[PADDING] * (longest - len(row)) + row for row in rows]
    state = engine.start(words["name"], list(map(len, rows)))
    said, at = [], 0
    is_saved = not words["restored"]
    for step in steps_of(longest, words["chunk"]):
        if not is_saved and at >= longest // 2:
            is_saved = True
            with tempfile.TemporaryDirectory(prefix="kvcheck-engine-") as folder:
                path = str(pathlib.Path(folder) / "cache")
                engine.save(state, path)
                state = engine.load(path, words["name"])
        said.append(times.feed(engine, state, [row[at:at + step] for row in padded]))
        at += step
    said = np.concatenate(said, axis=1)
    return [said[i, longest - len(row):] for i, row in enumerate(rows)]


def write(path, engine, run, logits, following):
    save_file({"logits": np.ascontiguousarray(logits, dtype=np.float32), "next": following.astype(np.int32)}, path,
              {"engine": engine.version, "cache": engine.caches[words_of(run)["name"]], "run": run})


def main(make_engine):
    """Errors: a run that the engine refuses ends with what the library raised, in FOLDER/RUN.refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gold")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--model", type=pathlib.Path, required=True, help="the folder of the model")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    rows, following = sequences_of(chosen.gold)
    engine = make_engine(chosen)
    for run in chosen.runs:
        words = words_of(run)
        refused = chosen.folder / f"{run}.refused"
        refused.unlink(missing_ok=True)
        if words["name"] not in engine.caches:
            parser.error(f"{run}: this engine has the caches {', '.join(engine.caches)}")
        times = Times()
        try:
            said = (fed(engine, rows, words, times) if words["batch"] else
                    [fed(engine, [row], words, times)[0] for row in rows])
        except Exception as error:  # the library's own, whatever it is
            refused.write_text(f"{type(error).__name__}: {error}\n")
            continue
        if chosen.times:
            print(json.dumps(times.spent), flush=True)
        write(chosen.folder / f"{run}.safetensors", engine, run, np.concatenate(said), following)
