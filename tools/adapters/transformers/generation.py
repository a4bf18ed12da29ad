"""Left-padded generate() of small models with random weights: a batch against single runs, attention by attention.

    generation.py [--model llama|mistral|gemma2]... [--dtype f32|bf16]... [--attention sdpa|eager]... [--kvcheck PROGRAM]

Every call of attention is seen by a registered function: q, k, v and the output of each layer and step are stored, and
`kvcheck compare --case` judges each by the definition. The mask of the case is not the one that the model made: it says
what each query should see (causal, the layer's window, the row's padding), so that a wrong mask, a wrong token in the
cache and a wrong kernel all show. Then the tokens of the batch are fed to each row alone, and at every generated position
the two best tokens are compared.

Exit codes, as kvcheck's: 0 everything passed; 1 an attention failed, or a float32 model chose another token; 2 wrong
usage, no kvcheck; 3 nothing failed, but something proved nothing (MISTRUSTED).
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "kvcheck_adapter"))
import attention  # noqa: E402; beside this file
from transformers import Gemma2Config, LlamaConfig, MistralConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gemma2.modeling_gemma2 import Gemma2ForCausalLM
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2_eager
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.llama.modeling_llama import eager_attention_forward as llama_eager
from transformers.models.mistral.modeling_mistral import MistralForCausalLM

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SHAPE = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "eos_token_id": None, "bos_token_id": None,
         "initializer_range": 0.3}
WINDOW = 6
MODELS = {"llama": (LlamaForCausalLM, LlamaConfig, {}),
          "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": WINDOW}),
          "gemma2": (Gemma2ForCausalLM, Gemma2Config, {"sliding_window": WINDOW, "attn_logit_softcapping": 5.0,
                                                       "query_pre_attn_scalar": 16})}
LENGTHS = (9, 5, 1)  # of the prompts; the shorter ones are padded on the left
NEW_TOKENS = 8
VERDICTS = {0: "PASS", 1: "FAIL", 2: "ILLEGAL_CASE", 3: "MISTRUSTED"}


class Captured:
    """Calls of attention, in order, with the padding of the rows that were fed."""

    def __init__(self):
        self.calls, self.padding, self.seen = [], [0], 0

    def add(self, module, q, k, v, out, plan, options):
        self.calls.append({"layer": module.layer_idx, "q": q, "k": k, "v": v, "out": out, "padding": self.padding,
                           "plan": plan, "scale": options.get("scaling"), "softcap": options.get("softcap"),
                           "window": options.get("sliding_window")})


CAPTURED = Captured()


def register(name, attend):
    """An attention function that does what `attend` does, and keeps it."""

    def seen(module, query, key, value, attention_mask, **options):
        out, weights = attend(module, query, key, value, attention_mask, **options)
        kind = attention.NAMES[query.dtype]
        plan = attention.sdpa_plan(kind) if name == "sdpa" else attention.eager_plan(kind)
        CAPTURED.add(module, query, key, value, out.transpose(1, 2), plan, options)
        return out, weights

    ALL_ATTENTION_FUNCTIONS.register(f"kvcheck_{name}", seen)
    ALL_MASK_ATTENTION_FUNCTIONS.register(f"kvcheck_{name}", ALL_MASK_ATTENTION_FUNCTIONS[name.split("_")[0]])


register("sdpa", ALL_ATTENTION_FUNCTIONS["sdpa"])
register("eager", llama_eager)
register("eager_gemma2", gemma2_eager)


def model_of(name, kind, implementation):
    torch.manual_seed(1)
    model_class, config_class, extra = MODELS[name]
    made = model_class(config_class(**SHAPE, **extra)).to(TYPES[kind]).eval()
    made.config._attn_implementation = "kvcheck_" + (f"{implementation}_{name}" if name == "gemma2" else implementation)
    return made


def prompts():
    random = torch.Generator().manual_seed(2)
    rows = [torch.randint(1, SHAPE["vocab_size"], (n,), generator=random) for n in LENGTHS]
    longest = max(LENGTHS)
    ids = torch.stack([torch.nn.functional.pad(row, (longest - len(row), 0)) for row in rows])
    mask = torch.stack([(torch.arange(longest) >= longest - n).long() for n in LENGTHS])
    return ids, mask


def generated(model, ids, mask):
    """(tokens, logits of every generated position) of greedy generation, with its attention captured."""
    CAPTURED.padding = (mask == 0).sum(dim=1).tolist()
    with torch.no_grad():
        answer = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False,
                                return_dict_in_generate=True, output_logits=True)
    return answer.sequences[:, ids.shape[1]:], torch.stack(answer.logits, dim=1).float()


def forced(model, prompt, tokens):
    """Logits at the positions of `tokens`, all in one pass over prompt and tokens, without padding."""
    CAPTURED.padding = [0]
    with torch.no_grad():
        logits = model(input_ids=torch.cat([prompt, tokens])[None], use_cache=False).logits
    return logits[0, len(prompt) - 1:-1].float()


def case_of(call, kind, fed):
    """The case, one line. fed: columns fed so far; a sliding layer holds the newest of them."""
    b, hq, queries, d = call["q"].shape
    hkv, keys, dv = call["k"].shape[1], call["k"].shape[2], call["v"].shape[3]
    window = call["window"]
    mask = "causal_bottom_right" + (f"+window:{window}" if window is not None else "")
    padding = [max(0, n - (fed - keys)) for n in call["padding"]]
    if any(padding):
        mask += "+left_pad:" + ",".join(map(str, padding))
    text = (f"attention b={b} hq={hq} hkv={hkv} l={queries} t={keys} d={d} dv={dv} q={kind} k={kind} v={kind} out={kind} "
            f"mask={mask} scale={call['scale']!r}")
    return text + (f" softcap={call['softcap']!r}" if call["softcap"] else "") + " data=file"


def judged(program, folder, number, call, kind, fed):
    """(exit code, what kvcheck prints) of one call of attention."""
    path = pathlib.Path(folder) / f"{number}.safetensors"
    safetensors.torch.save_file({name: call[name].contiguous() for name in ("q", "k", "v", "out")}, path)
    # A query that is padding sees no key, and nothing is promised of it.
    done = subprocess.run([program, "compare", "--case", case_of(call, kind, fed), str(path), "--plan",
                           call["plan"], "--profile", "masked_row=any", "--quiet", "-j1"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def fed_columns(calls):
    """Columns fed until each call: a run begins where layer 0 is given more than one column, or the shape changes."""
    fed, total, last = [], 0, None
    for call in calls:
        queries = call["q"].shape[2]
        if call["layer"] == 0:
            total = total + queries if last is call["padding"] and queries == 1 and total else queries
            last = call["padding"]
        fed.append(total)
    return fed


def run(name, kind, implementation, program):
    """One line of the table, the exit code, and what failed."""
    CAPTURED.calls.clear()
    model = model_of(name, kind, implementation)
    ids, mask = prompts()
    tokens, logits = generated(model, ids, mask)
    agreed, total, margin = 0, 0, 0.0
    for row, n in enumerate(LENGTHS):
        prompt = ids[row, -n:]
        generated(model, prompt[None], torch.ones(1, n, dtype=torch.long))  # a run of its own, judged as well
        alone = forced(model, prompt, tokens[row])
        same = alone.argmax(dim=-1) == logits[row].argmax(dim=-1)
        agreed, total = agreed + int(same.sum()), total + len(same)
        margin = max(margin, float((alone - logits[row]).abs().max()))
    calls = list(CAPTURED.calls)
    counts, failures = {}, []
    with tempfile.TemporaryDirectory(prefix="kvcheck-generation-") as folder:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            answers = list(pool.map(lambda item: judged(program, folder, item[0], item[1][0], kind, item[1][1]),
                                    enumerate(zip(calls, fed_columns(calls)))))
    for number, (code, text) in enumerate(answers):
        verdict = VERDICTS.get(code, f"exit code {code}")
        counts[verdict] = counts.get(verdict, 0) + 1
        if code not in (0, 3):
            failures.append(f"{name} {kind} {implementation}, attention {number} (layer {calls[number]['layer']}):\n{text}")
    if kind == "f32" and agreed != total:
        failures.append(f"{name} f32 {implementation}: {total - agreed} of {total} tokens differ from single runs")
    line = f"| {name} | {kind} | {implementation} | {len(calls)} | " + ", ".join(
        f"{count} {verdict}" for verdict, count in sorted(counts.items())) + f" | {agreed} of {total} | {margin:.2g} |"
    code = 1 if failures else 3 if counts.get("MISTRUSTED") else 0
    return line, code, failures


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--dtype", action="append", choices=TYPES)
    parser.add_argument("--attention", action="append", choices=("sdpa", "eager"))
    parser.add_argument("--kvcheck", default=os.environ.get("KVCHECK", "kvcheck"))
    chosen = parser.parse_args(arguments)
    program = shutil.which(chosen.kvcheck)
    if program is None:
        print(f"generation.py: no program {chosen.kvcheck}: name it with --kvcheck or KVCHECK", file=sys.stderr)
        return 2
    worst, everything = 0, []
    print("| model | type | attention | calls | judged | tokens as alone | largest difference of logits |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in chosen.model or MODELS:
        for kind in chosen.dtype or ("f32", "bf16"):
            for implementation in chosen.attention or ("sdpa", "eager"):
                if name == "gemma2" and implementation == "sdpa":
                    continue  # sdpa has no softcap
                line, code, failures = run(name, kind, implementation, program)
                print(line, flush=True)
                everything += failures
                worst = max(worst, code, key=(0, 3, 1, 2).index)
    print("\n".join(everything), file=sys.stderr)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
