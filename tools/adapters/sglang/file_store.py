"""HiCacheFile, the files of SGLang's hierarchical cache, with the calls of its controller: batch_exists and one batch_get
where a prompt is looked up, whose error counts as no page at all; batch_set of the pages of what is kept. Device and host,
which come before the files, are not asked.
"""
import hashlib
import importlib.metadata
import os
import tempfile
import urllib.parse
from array import array

import torch
from engine_requests import IDENTITY, lora_id
from kvcheck_adapter import CollectedPrompt, PrefixAdapter, Refused, Started, Unsupported
from kvcheck_adapter.storage import STORED
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig
from sglang.srt.mem_cache.utils import storage_namespace_seed


class FileStore(PrefixAdapter):
    name = "sglang-file"
    version = importlib.metadata.version("sglang")
    # The controller asks for all pages of a prompt, and the scheduler takes a token off; a file is there when `set` returns;
    # files have no checksum; and flush_cache refuses while requests run.
    prefix_profile = "last=always persists=close flips=served busy=refused"
    # Several models may have one folder.
    spaces = [{"kind": "prefix", "identity": ["model", *IDENTITY], "quantizes": False, "windows": False, "entries": False,
               "operations": ["open", "write", "read", "close", "clear", "epoch", "settle", "restart", "damage"],
               "damages": ["cut", "flip"]}]
    relies_on = {"shapes", "counts"}
    own = None  # a folder where the case has none

    def start(self, setup, folder, again):
        if self.own:
            self.own.cleanup()
        self.setup, self.live, self.stores = setup, 0, {}
        self.own = None if folder else tempfile.TemporaryDirectory()
        self.folder = folder or self.own.name
        return Started(setup.block_tokens, setup.capacity_tokens // setup.block_tokens * setup.block_tokens, False)

    def store(self, model):
        if model == "":
            raise Unsupported("an empty model name")
        if model not in self.stores:
            config = HiCacheStorageConfig(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                                          is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=False,
                                          model_name=model)
            self.stores[model] = self.made(config)
        return self.stores[model]

    def made(self, config):
        return HiCacheFile(config, self.folder)

    def keys(self, tokens, who):
        """Of whole pages. SGLang's own extension for the same chain of SHA-256 is compiled where it is first used."""
        page, found = self.setup.block_tokens, []
        seed = storage_namespace_seed(lora_id(who), who.salt)
        digest = bytes.fromhex(seed) if seed else b""
        for start in range(0, len(tokens) // page * page, page):
            digest = hashlib.sha256(digest + array("I", tokens[start:start + page]).tobytes()).digest()
            found.append(digest.hex())
        return found

    def page_bytes(self):
        return self.setup.block_tokens * self.setup.token_bytes

    def open(self, tokens, who, all):
        if who.salt == "":
            raise Unsupported("an empty salt, which is none to SGLang")
        store, keys = self.store(who.model), self.keys(tokens, who)
        found = store.batch_exists(keys)
        pages = [torch.full((self.page_bytes(),), 0xFF, dtype=torch.uint8) for _ in range(found)]
        try:
            got = store.batch_get(keys[:found], pages)
        except OSError:
            got = []
        hit = next((index for index, page in enumerate(got) if page is None), len(got))
        k, v = self.setup.no_rows()
        request = CollectedPrompt(who, tokens[:hit * self.setup.block_tokens], k, v)
        for page in pages[:hit]:
            request.append([], *self.rows_of(page.numpy()))
        self.live += 1
        return request, len(request.tokens), "disk"

    def rows_of(self, page):
        s = self.setup
        shapes = [(s.layers, s.kv_heads, s.block_tokens, dim) for dim in (s.k_dim, s.v_dim)]
        cut = s.layers * s.kv_heads * s.block_tokens * s.k_dim * STORED[s.x].itemsize
        return [part.view(STORED[s.x]).reshape(shape) for part, shape in zip((page[:cut], page[cut:]), shapes)]

    def page_of(self, request, index):
        part = slice(index * self.setup.block_tokens, (index + 1) * self.setup.block_tokens)
        return torch.frombuffer(bytearray(request.k[:, :, part].tobytes() + request.v[:, :, part].tobytes()),
                                dtype=torch.uint8)

    def close(self, request, keep):
        self.live -= 1
        if keep:
            keys = self.keys(request.tokens, request.who)
            self.store(request.who.model).batch_set(keys, [self.page_of(request, index) for index in range(len(keys))])

    def refuse_while_live(self):
        if self.live:
            raise Refused("requests are running")

    def clear(self):
        """clear_hicache_storage of its scheduler."""
        self.refuse_while_live()
        self.store(None).clear()

    def epoch(self):
        """flush_cache after new weights, which does not reach the files."""
        self.refuse_while_live()


class RepairedFile(HiCacheFile):
    """The type and all of the model's name in names of files; a file of another size is no file."""

    def __init__(self, config, folder, kind):
        super().__init__(config, folder)
        name = "" if config.model_name is None else urllib.parse.quote(config.model_name, safe="")
        self.config_suffix = self.tp_config_suffix = f"_{kind}_{name}"

    def get(self, key, target_location, target_sizes=None):
        path = os.path.join(self.file_path, f"{self._get_suffixed_key(key)}.bin")
        if os.path.exists(path) and os.path.getsize(path) != target_location.numel():
            os.remove(path)
        return super().get(key, target_location)


class RepairedStore(FileStore):
    name = "sglang-file-patched"
    version = f"{FileStore.version}, patched"

    def made(self, config):
        return RepairedFile(config, self.folder, self.setup.x)

    def epoch(self):
        super().epoch()
        self.store(None).clear()
