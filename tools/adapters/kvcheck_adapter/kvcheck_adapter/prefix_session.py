"""The conversation about caches across requests: kind prefix of tools/process/protocol.md."""
import fnmatch
import os
import pathlib
import shutil

import numpy as np

from .base import Refused, Unsupported
from .conversation import Conversation
from .damage import Folder
from .prefix import FULL, Identity, PrefixSetup
from .storage import STORED
from .wire import decode_array, encode_array

COUNTERS = frozenset({"entries", "bytes", "budget_bytes", "blocks_total", "blocks_free", "blocks_cached", "blocks_held",
                      "lookups", "hits", "hit_tokens"})
IDENTITY = ("model", "salt", "adapter", "version", "image")
STORE, SAVED = "store", "saved"  # in the folder of a case: what the engine keeps, and what it was asked to save


class Request:
    """One of the server's, as far as this package knows it."""

    def __init__(self, handle, tokens):
        self.handle, self.tokens = handle, tokens


def lacks(space, setup, folder):
    """Why a space has no such setup; None where it has."""
    for key, value in (("blocks", setup.block_tokens), ("x", setup.x)):
        if space.get(key) and value not in space[key]:
            return f"{key}: no {value}"
    for flag, asked in (("quantizes", not setup.is_plain), ("windows", setup.window), ("entries", setup.max_entries),
                        ("disk", folder)):
        if asked and not space.get(flag, True):
            return f"no {flag}"
    if space.get("same_dims") and setup.k_dim != setup.v_dim:
        return "k_dim is v_dim"
    for kept in {setup.k, setup.v} - {setup.x}:
        if not any(fnmatch.fnmatchcase(kept, pattern) for pattern in space.get("formats", ["*"])):
            return f"no {kept}"
    return None


class PrefixSession(Conversation):
    preconditions = frozenset({"shapes", "counts"})
    greets_with = ("prefix_profile", "profile", "ids_alone")

    def __init__(self, adapter, stream):
        super().__init__(adapter, stream)
        self.files = Folder("")
        self.requests, self.setup, self.saved_in = {}, None, None
        spaces = adapter.spaces or [{}]
        self.identity = {field for space in spaces for field in space.get("identity", IDENTITY)}

    def request(self, request, key="request"):
        try:
            return self.requests[request[key]]
        except KeyError:
            raise ValueError(f"request {request.get(key)} is not open") from None

    def do_start(self, request):
        s = request["setup"]
        setup = PrefixSetup(**{field: s[field] for field in PrefixSetup._fields})
        folder = request.get("folder")
        reasons = [lacks(space, setup, folder) for space in self.adapter.spaces or [{}]]
        if None not in reasons:
            raise Unsupported(f"such a setup: {reasons[0]}")
        self.requests.clear()
        again = bool(request.get("again"))
        self.setup, self.saved_in = setup, folder
        if not again:
            self.files.clear()
        store = None
        if folder:
            store = os.path.join(folder, STORE)
            os.makedirs(store, exist_ok=True)
        started = self.call(self.adapter.start, setup, store, again)
        return started._asdict()

    def rows(self, handle):
        if self.adapter.ids_alone:
            return {"blocks": [int(id) for id in self.call(self.adapter.blocks, handle)]}
        k, v, *retained = self.call(self.adapter.read, handle)
        answer = {"k": encode_array(np.asarray(k), self.setup.x), "v": encode_array(np.asarray(v), self.setup.x)}
        if retained:
            answer["retained"] = encode_array(np.asarray(retained[0], bool))
        blocks = self.call(self.adapter.blocks, handle)
        if blocks is not None:
            answer["blocks"] = [int(id) for id in blocks]
        return answer

    def do_open(self, request):
        fields = request["who"]
        who = Identity(*(fields.get(field) for field in IDENTITY))
        who = who._replace(version=who.version or 0)
        for field, value in zip(IDENTITY, who):
            if value not in (None, 0) and field not in self.identity:
                raise Unsupported(f"identities have no {field} here")
        tokens = [int(token) for token in request["tokens"]]
        handle, hit, *tier = self.call(self.adapter.open, tokens, who, bool(request["all"]))
        self.requests[request["request"]] = Request(handle, int(hit))
        answer = {"hit": int(hit), **self.rows(handle)}
        if tier and tier[0] is not None:
            answer["tier"] = tier[0]
        return answer

    def do_write(self, request):
        asked = self.request(request)
        tokens = [int(token) for token in request["tokens"]]
        (k_kind, k, _), (v_kind, v, _) = decode_array(request["k"]), decode_array(request["v"])
        if "shapes" in self.relies_on:
            s = self.setup
            shape = (s.layers, s.kv_heads, len(tokens))
            if (k_kind, v_kind) != (s.x, s.x) or k.shape != (*shape, s.k_dim) or v.shape != (*shape, s.v_dim):
                raise Refused("vectors of another shape or type than the setup's")
        if self.call(self.adapter.write, asked.handle, tokens, k, v) is FULL:
            return {"full": True}
        asked.tokens += len(tokens)
        return None

    def do_read(self, request):
        return self.rows(self.request(request).handle)

    def do_close(self, request):
        asked = self.request(request)
        self.call(self.adapter.close, asked.handle, bool(request["keep"]))
        del self.requests[request["request"]]

    def do_fork(self, request):
        asked = self.request(request)
        self.requests[request["out"]] = Request(self.call(self.adapter.fork, asked.handle), asked.tokens)

    def do_trim_to(self, request):
        asked, tokens = self.request(request), request["tokens"]
        if "counts" in self.relies_on and not 0 <= tokens <= asked.tokens:
            raise Refused(f"the request has {asked.tokens} tokens, not {tokens}")
        self.call(self.adapter.trim_to, asked.handle, tokens)
        asked.tokens = tokens

    def do_evict(self, request):
        self.call(self.adapter.evict, request["tokens"])

    def do_clear(self, request):
        self.call(self.adapter.clear)

    def do_epoch(self, request):
        self.call(self.adapter.epoch)

    def do_settle(self, request):
        self.call(self.adapter.settle)

    def path(self, key):
        """Where something is saved: in the case's own folder, which outlives this process, where there is one."""
        if self.saved_in is None:
            return pathlib.Path(self.files.path(key))
        return pathlib.Path(self.saved_in, SAVED, key)

    def do_save(self, request):
        path = self.path(request["key"])
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        try:
            self.call(self.adapter.save, path)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def do_load(self, request):
        path = self.path(request["key"])
        if not path.is_dir():
            raise Refused("nothing is saved under this key")
        self.call(self.adapter.load, path)

    def do_observe(self, request):
        told = self.call(self.adapter.observe)
        unknown = told.keys() - COUNTERS
        if unknown:
            raise ValueError(f"no counters: {', '.join(sorted(unknown))}")
        return {key: int(value) for key, value in told.items()}
