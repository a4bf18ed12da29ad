"""The conversation about caches, attention and codecs: requests of the protocol become calls of an Adapter."""
import numpy as np

from . import guards
from .adapter import Refused, Setup, Step
from .base import Misfit, Mistake
from .conversation import NOTHING, Conversation, LibraryError
from .damage import Folder
from .slots import Family, Slot, show
from .storage import name_of
from .texts import case_fields, parse_format, parse_layout
from .wire import decode_array, encode_array, view_array

NO_CACHE = b"\xc0"  # nil, as the state of a cache that is not there: what should have made it was refused


class Indices(list):
    """A list of rows. As an array it holds integers, also where it is empty: numpy's array of [] holds floats, which index
    nothing."""

    def __array__(self, dtype=None, copy=None):
        return np.fromiter(self, np.int64, len(self)).astype(dtype or np.int64, copy=False)


class Session(Conversation):
    preconditions = guards.NAMES
    greets_with = ("cache_profile", "profile", "plan")

    def __init__(self, adapter, stream):
        super().__init__(adapter, stream)
        self.folder = Folder(adapter.file_suffix)
        self.slots, self.saved = {}, {}

    def answer(self, request):
        self.observed = request.get("observe")
        try:
            dropped = request.get("drop")
            if dropped:
                for number in dropped:
                    self.slots.pop(number, None)
            answer = self.answered(request)
            if "failed" not in answer and self.results_changed():
                answer = {**answer, "results_changed": True}
            if self.observed is None:
                return self.stream.pack(answer) if answer else NOTHING
            return self.with_states(answer)
        except Exception as error:
            return self.stream.pack(self.failed(error))

    def with_states(self, answer):
        """The answer with "states", spliced of packed parts: a state that was shown before is packed already."""
        slots = [self.slots.get(number) for number in self.observed]
        show(self, [slot for slot in slots if slot is not None])
        parts = [NO_CACHE if slot is None else slot.shown for slot in slots]
        packed = self.stream.pack(answer)
        count = len(answer) + 1
        if packed[0] & 0xF0 != 0x80 or count > 15 or len(parts) > 15:
            raise ValueError("more keys or states than an answer has")
        return b"".join((bytes((0x80 | count,)), packed[1:], self.stream.pack("states"), bytes((0x90 | len(parts),)),
                         *parts))

    def do_observe(self, request):
        return {}

    # ------------------------------------------------------------------------------------------- cases
    def do_case(self, request):
        fields = case_fields(request["case"])
        fields.update(request.get("fields") or {})
        kinds, inputs, given = {}, {}, {}
        for name, wired in request["inputs"].items():
            kinds[name], inputs[name], given[name] = decode_array(wired)
        self.adapter.declared = {}
        answer = self.adapter.codec if fields["kind"] == "codec" else self.adapter.attention
        outputs = self.call(answer, fields, inputs)
        expected = {"out": fields.get("out"), "y": fields.get("x")}
        if "format" in fields:
            expected.update(parse_format(fields["format"]).kinds)
        wired = {name: encode_array(np.asarray(array), expected.get(name)) for name, array in outputs.items()}
        changed = any(inputs[name].tobytes() != data for name, data in given.items())
        return {"outputs": wired, **({"inputs_changed": True} if changed else {}), **self.adapter.declared}

    # ------------------------------------------------------------------------------------------ caches
    def do_start(self, request):
        self.slots.clear()
        self.saved.clear()
        self.folder.clear()
        s = request["setup"]
        self.setup = Setup(s["kv_heads"], s["query_heads"], s["k_dim"], s["v_dim"], s["x"], s.get("growth_tokens", 8))
        self.adapter.setup = self.setup
        self.call(self.adapter.start, self.setup)

    def slot(self, request, key="cache"):
        try:
            return self.slots[request[key]]
        except KeyError:
            raise ValueError(f"there is no cache {request.get(key)}") from None

    def do_new(self, request):
        layout, k, v = parse_layout(request["layout"]), parse_format(request["k"]), parse_format(request["v"])
        padding = request.get("padding") or []
        guards.new(self.relies_on, request["rows"], padding)
        cache = self.call(self.adapter.new, layout, k, v, request["rows"], list(padding))
        slot = Slot(cache, layout, k, v, request["rows"], Family())
        slot.padding = list(padding)
        slot.fresh = True
        self.slots[request["out"]] = slot

    def do_append(self, request):
        slot, a = self.slot(request), self.adapter
        decode = view_array if a.copies else decode_array
        k_kind, k_given, k_data = decode(request["k"])
        v_kind, v_given, v_data = decode(request["v"])
        guards.append(self.relies_on, slot, self.setup, k_kind, k_given, v_given)
        slot.family.version += 1
        slot.fresh = False
        k, v = self.call(a.give, k_given, k_kind), self.call(a.give, v_given, v_kind)
        queries = k_given.shape[2]
        returned = self.call(a.append, slot.cache, k, v)
        slot.step = self.step_of(returned, queries, slot)
        slot.results = slot.results[-1:] + [self.results_of(returned)]  # those before may have changed in it
        slot.arrived(queries)
        before, slot.given = slot.given, ((k, k_data), (v, v_data))
        if not a.lazy or self.observed:  # a cache that took the caller's arrays for its own writes to them later
            if any(a.numpy(array).tobytes() != data for array, data in (*slot.given, *before)):
                return {"inputs_changed": True}
        return None

    def results_of(self, *returned):
        """What the library returned, and its bytes: where it changes later, it was a view of live memory."""
        if "results" in self.relies_on:
            return []
        arrays = []
        for part in returned:
            parts = part if isinstance(part, (tuple, list)) else (part,)
            for array in parts:
                if isinstance(array, (tuple, list)):
                    arrays.extend(array)
                elif array is not None and not isinstance(array, str):
                    arrays.append(array)
        return [(array, self.adapter.numpy(array).tobytes()) for array in arrays]

    def results_changed(self):
        """Whether an array that was returned earlier holds something else by now. Said once."""
        for slot in self.slots.values():
            if slot.results_version == slot.family.version:
                continue
            slot.results_version = slot.family.version
            returned = [item for arrays in slot.results for item in arrays]
            if any(self.adapter.numpy(array).tobytes() != data for array, data in returned):
                slot.results = []
                return True
        return False

    def step_of(self, answer, queries, slot):
        """What an append returned, kept. Attention would raise where K, V and the mask do not fit each other, so this is
        an exception of the library."""
        if not isinstance(answer, (tuple, list)) or len(answer) != 3:
            got = f"{len(answer)} values" if isinstance(answer, (tuple, list)) else f"one {type(answer).__name__}"
            raise Mistake(f"append returned {got} in place of three: (keys, values, mask)")
        keys, values, mask = answer
        step = Step(self.kept(keys), self.kept(values), mask, queries)
        self.check_planes("K", step.k, slot.k)
        self.check_planes("V", step.v, slot.v)
        columns = {part.shape[2] for part in (*step.k, *step.v)}
        if len(columns) != 1:
            raise LibraryError from Misfit("k and v", f"K and V have {' and '.join(map(str, sorted(columns)))} columns")
        if mask is None or isinstance(mask, str):
            return step
        covered = mask.shape[-1] if mask.shape else 1
        if covered != 1 and covered not in columns:
            raise LibraryError from Misfit("mask", f"the mask covers {covered} columns, K and V have {columns.pop()}")
        return step._replace(mask=self.adapter.keep(mask))

    def check_planes(self, name, arrays, fmt):
        """As many as the format has, or the values in one array of floats."""
        names = [plane.name for plane in fmt.planes(fmt.block)]
        if len(arrays) == len(names) or len(arrays) == len(fmt.of_token.kinds):
            return
        if len(arrays) == 1 and "float" in str(getattr(arrays[0], "dtype", "float")):
            return
        raise Mistake(f"append returned {len(arrays)} array{'s' if len(arrays) > 1 else ''} for {name}; {fmt.text} has "
                      f"({', '.join(names)}): return a tuple of these, or one array of decoded floats")

    def kept(self, arrays):
        keep = self.adapter.keep
        return tuple(keep(part) for part in arrays) if isinstance(arrays, (tuple, list)) else (keep(arrays),)

    def do_prepare(self, request):
        slot, lengths = self.slot(request), request["lengths"]
        guards.pending(self.relies_on, slot)
        guards.prepare(self.relies_on, slot, lengths)
        slot.family.version += 1
        self.call(self.adapter.prepare, slot.cache, list(lengths), request.get("columns", -1))
        slot.to_come, slot.step = list(lengths), None
        slot.fresh = False

    def do_finalize(self, request):
        slot = self.slot(request)
        guards.finalize(self.relies_on, slot)
        slot.family.version += 1
        self.call(self.adapter.finalize, slot.cache)
        if slot.to_come is not None:
            slot.to_come, slot.step = None, None

    def do_trim(self, request):
        slot, count = self.slot(request), request["count"]
        guards.pending(self.relies_on, slot)
        guards.count(self.relies_on, count)
        slot.family.version += 1
        trimmed = self.call(self.adapter.trim, slot.cache, count)
        slot.step = None
        return {"trimmed": int(trimmed)}

    def changed(self, slot, cache):
        if cache is not None:
            slot.cache = cache
        slot.step = None

    def do_filter(self, request):
        slot, rows = self.slot(request), request["rows"]
        guards.pending(self.relies_on, slot)
        guards.rows(self.relies_on, slot, rows)
        slot.family.version += 1
        self.changed(slot, self.call(self.adapter.filter, slot.cache, Indices(rows)))
        slot.rows = len(rows)
        unfed = slot.padding
        slot.padding = [unfed[row] if -len(unfed) <= row < len(unfed) else 0 for row in rows] if unfed else []

    def do_extend(self, request):
        slot, other = self.slot(request), self.slot(request, "other")
        guards.pending(self.relies_on, slot, other)
        guards.alike(self.relies_on, slot, other)
        slot.family.join(other.family)
        slot.family.version += 1
        self.changed(slot, self.call(self.adapter.extend, slot.cache, other.cache))
        slot.padding = slot.unfed() + other.unfed()
        slot.rows += other.rows
        slot.fresh = slot.fresh and other.fresh

    def derived(self, request, cache, slots, rows):
        """Puts a cache that was made of others, whose storage it may share."""
        family = slots[0].family
        for slot in slots[1:]:
            family.join(slot.family)
        family.version += 1
        first = slots[0]
        made = Slot(cache, first.layout, first.k, first.v, rows, family)
        self.slots[request["out"]] = made
        return made

    def do_merge(self, request):
        slots = [self.slots[number] for number in request["caches"]]
        guards.pending(self.relies_on, *slots)
        guards.single(self.relies_on, slots)
        guards.alike(self.relies_on, *slots)
        for slot in slots:
            slot.family.version += 1
        cache = self.call(self.adapter.merge, [slot.cache for slot in slots])
        made = self.derived(request, cache, slots, sum(slot.rows for slot in slots))
        made.padding = [n for slot in slots for n in slot.unfed()]

    def do_extract(self, request):
        slot, row = self.slot(request), request["row"]
        guards.pending(self.relies_on, slot)
        guards.rows(self.relies_on, slot, [row])
        slot.family.version += 1
        self.derived(request, self.call(self.adapter.extract, slot.cache, row), [slot], 1)

    def do_to_quantized(self, request):
        slot = self.slot(request)
        k, v = parse_format(request["k"]), parse_format(request["v"])
        guards.pending(self.relies_on, slot)
        slot.family.version += 1
        self.changed(slot, self.call(self.adapter.to_quantized, slot.cache, k, v))
        slot.k, slot.v = k, v

    def do_copy(self, request):
        slot = self.slot(request)
        guards.pending(self.relies_on, slot)
        slot.family.version += 1
        made = self.derived(request, self.call(self.adapter.copy, slot.cache), [slot], slot.rows)
        made.padding, made.fresh = list(slot.padding), slot.fresh

    def do_save(self, request):
        slot, key = self.slot(request), request["key"]
        guards.pending(self.relies_on, slot)
        self.call(self.adapter.save, slot.cache, self.folder.path(key))
        self.saved[key] = (slot.layout, slot.k, slot.v, slot.rows, list(slot.padding), self.read(key))

    def read(self, key):
        with open(self.folder.path(key), "rb") as file:
            return file.read()

    def do_load(self, request):
        key = request["key"]
        cache = self.call(self.adapter.load, self.folder.path(key))
        layout, k, v, rows, padding, _ = self.saved[key]
        made = Slot(cache, layout, k, v, rows, Family())
        made.padding = list(padding)
        self.slots[request["out"]] = made

    def do_damage(self, request):
        key = request["key"]
        if key not in self.saved:
            raise Refused("nothing is saved under this key")
        data = self.call(self.adapter.file_changed, self.folder.path(key), request["how"], request.get("at", 0))
        self.folder.replace(key, data)
        return {"as_put": bytes(data) == self.saved[key][-1]}

    def do_attend(self, request):
        slot, a, x = self.slot(request), self.adapter, self.setup.x
        if slot.step is None:
            raise Refused("no append whose queries could attend")
        guards.pending(self.relies_on, slot)
        guards.window(self.relies_on, request.get("window"))
        kind, q_given, data = decode_array(request["q"])
        q = self.call(a.give, q_given, kind)
        sinks = request.get("sinks")
        if sinks is not None:
            sinks = decode_array(sinks)[1]
        a.declared = {}
        out = self.call(a.attend, slot.cache, slot.step, q, request["scale"], request.get("window"), sinks)
        slot.results.append(self.results_of(out))
        out = a.numpy(a.keep(out))
        answer = {"out": [name_of(out, x), list(out.shape), out.tobytes()], **a.declared}
        if a.numpy(q).tobytes() != data:
            answer["inputs_changed"] = True
        return answer

    def do_drop(self, request):
        self.slots.pop(request["cache"], None)
