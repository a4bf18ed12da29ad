"""Inputs of tests, drawn by regime: the same bits on every machine from a seed.

    case = kvcheck.cases.attention(hq=8, hkv=2, l=4, t=129, d=64, dtype="bf16", regime="outlier", library="torch")
    out = my_attention(case.q, case.k, case.v)
    assert case.judge(out, plan="flash_attention_2").passed
"""
from . import _arrays, _core
from ._attention import DEFAULT_PLAN, judge_case, settings

__tracebackhide__ = True


class Case:
    """A case with its inputs: `text`, `inputs` (a dict of arrays), and each input as an attribute (q, k, v, ...)."""

    def __init__(self, text, library="numpy", profile=""):
        self.text = text
        self.profile = profile
        drawn = _core.draw(text, settings(profile=profile))
        self.inputs = {name: _arrays.back(tensor, library) for name, tensor in drawn.items()}

    def __getattr__(self, name):
        inputs = self.__dict__.get("inputs", {})
        if name in inputs:
            return inputs[name]
        raise AttributeError(f"the case has the inputs {', '.join(inputs) or 'none'}, and no '{name}'")

    def __repr__(self):
        return f"Case({self.text!r})"

    def judge(self, *out, plan=DEFAULT_PLAN, strict=False, rule="statistics", must_see=None, rows=None, seed=1, threads=None, **outputs):
        """The verdict on the outputs: `out`, and others by name (lse=...)."""
        if out:
            outputs["out"], = out
        return judge_case(self.text, {}, outputs, plan=plan, profile=self.profile, strict=strict, rule=rule, must_see=must_see,
                          rows=rows, seed=seed, threads=threads)

    def answer(self, implementation="", *, plan=DEFAULT_PLAN, library="numpy", threads=None):
        """What an implementation of kvcheck's own answers, by name: {"out": ...}. "fault:ID" has a fault
        (kvcheck faults list); "simulated:PLAN" computes as a plan says."""
        made = _core.answer(self.text, {}, implementation, settings(plan, self.profile, threads=threads))
        return {name: _arrays.back(tensor, library) for name, tensor in made.items()}


def draw(text, *, library="numpy", profile=""):
    """Any case with data=REGIME:SEED. Grammar: reference/README.md, section 3.1."""
    return Case(text, library, profile)


def attention(*, hq, hkv, l, t, d, b=1, dv=None, dtype="f32", k=None, v=None, out=None, mask="none", scale=None,
              softcap=None, sinks=None, lse=None, regime="gauss", seed=1, library="numpy", profile=""):
    """q (b, hq, l, d), k (b, hkv, t, d), v (b, hkv, t, dv) of one type; k, v, out: their own types or formats."""
    fields = [f"b={b}", f"hq={hq}", f"hkv={hkv}", f"l={l}", f"t={t}", f"d={d}", f"q={dtype}", f"k={k or dtype}",
              f"v={v or k or dtype}", f"out={out or dtype}", f"mask={mask}", f"data={regime}:{seed}"]
    for name, value in (("dv", dv), ("scale", scale), ("softcap", softcap), ("sinks", sinks), ("lse", lse)):
        if value is not None:
            fields.append(f"{name}={value}")
    return Case("attention " + " ".join(fields), library, profile)


def rows(*, rows, d, dtype="f32", regime="gauss", seed=1, library="numpy"):
    """x (rows, d)."""
    return Case(f"codec op=round_trip format={dtype} x={dtype} rows={rows} d={d} data={regime}:{seed}", library)


def regimes():
    """Names of the regimes of attention, and of rows."""
    return {"attention": list(_core.attention_regimes()), "rows": list(_core.row_regimes())}
