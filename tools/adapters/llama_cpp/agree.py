"""A decoder in llama.cpp, teacher-forced through its KV caches, on the CPU, by llama-cpp-python's low-level calls.

    venv/bin/python agree.py GOLD FOLDER RUN... --model FOLDER

What a RUN is: ../teacher_forced.py. The model is written as GGUF in float32 (make_gguf.py). A batch is one call over
several sequences of one context, which llama.cpp does not pad: what stands before a row begins is not fed. Restored:
llama_state_save_file and llama_state_load_file into a new context.
"""
import ctypes
import os
import pathlib
import sys
import tempfile

import llama_cpp as llama
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import make_gguf  # noqa: E402
from teacher_forced import PADDING, main  # noqa: E402

F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8  # enum ggml_type
ON, OFF = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED, llama.LLAMA_FLASH_ATTN_TYPE_DISABLED


class State:
    def __init__(self, context, name, lengths):
        self.context, self.name, self.lengths = context, name, lengths
        self.fed = [0] * len(lengths)

    def __del__(self):
        llama.llama_free(self.context)


@llama.llama_log_callback
def silent(level, text, data):
    pass


class LlamaCpp:
    version = f"llama-cpp-python {llama.__version__}"
    # (K, V, flash attention, all tokens are kept in layers with a window), and in words
    made = {
        "plain": ((F32, F32, OFF, True), "f32, without flash attention, layers with a window keep all tokens"),
        "flash": ((F32, F32, ON, True), "f32, flash attention, layers with a window keep all tokens"),
        "sliding": ((F32, F32, OFF, False), "f32, without flash attention, layers with a window keep the window"),
        "f16": ((F16, F16, ON, False), "f16, flash attention: what llama.cpp takes by itself"),
        "q8_0": ((Q8_0, Q8_0, ON, False), "q8_0, rotated, flash attention"),
        "q4_0": ((Q4_0, Q4_0, ON, False), "q4_0, rotated, flash attention"),
        "q8_0_q4_0": ((Q8_0, Q4_0, ON, False), "K in q8_0, V in q4_0, rotated, flash attention"),
        "unrotated_q4_0": ((Q4_0, Q4_0, ON, False), "q4_0, LLAMA_ATTN_ROT_DISABLE=1, flash attention"),
    }
    caches = {name: words for name, (_, words) in made.items()}

    def __init__(self, options):
        llama.llama_log_set(silent, ctypes.c_void_p(0))
        llama.llama_backend_init()
        self.threads = options.threads
        with tempfile.TemporaryDirectory(prefix="kvcheck-gguf-") as folder:
            path = str(pathlib.Path(folder) / "model.gguf")
            make_gguf.write(options.model, path)
            parameters = llama.llama_model_default_params()
            parameters.use_mmap = False
            self.model = llama.llama_model_load_from_file(path.encode(), parameters)
        if not self.model:
            raise RuntimeError("llama.cpp does not load the GGUF file")
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))

    def start(self, name, lengths):
        k, v, flash, keeps_all = self.made[name][0]
        os.environ["LLAMA_ATTN_ROT_DISABLE"] = str(int(name.startswith("unrotated")))  # read when a context is made
        parameters = llama.llama_context_default_params()
        tokens = -(-max(lengths) // 256) * 256  # of a sequence; cells come in blocks of 256
        parameters.n_ctx = tokens * len(lengths)
        parameters.n_batch = parameters.n_ubatch = parameters.n_ctx
        parameters.n_seq_max = len(lengths)
        parameters.n_threads = parameters.n_threads_batch = self.threads
        parameters.type_k, parameters.type_v, parameters.flash_attn_type = k, v, flash
        parameters.swa_full = keeps_all
        context = llama.llama_init_from_model(self.model, parameters)
        if not context:
            raise RuntimeError("llama.cpp makes no context")
        return State(context, name, lengths)

    def feed(self, state, tokens):
        tokens = np.array(tokens)
        real = np.argwhere(tokens != PADDING)
        logits = np.zeros((*tokens.shape, self.vocabulary), np.float32)
        if not len(real):
            return logits
        batch = llama.llama_batch_init(len(real), 0, 1)
        batch.n_tokens = len(real)
        for i, (row, column) in enumerate(real):
            batch.token[i] = int(tokens[row, column])
            batch.pos[i] = state.fed[row]
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, int(row), 1
            state.fed[row] += 1
        failed = llama.llama_decode(state.context, batch)
        llama.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama_decode answers {failed}")
        said = np.ctypeslib.as_array(llama.llama_get_logits(state.context), (len(real), self.vocabulary))
        logits[real[:, 0], real[:, 1]] = said
        return logits

    def save(self, state, path):
        if not llama.llama_state_save_file(state.context, path.encode(), None, 0):
            raise RuntimeError("llama_state_save_file failed")
        self.saved = state.lengths, state.fed

    def load(self, path, name):
        lengths, fed = self.saved
        state = self.start(name, lengths)
        state.fed = fed
        count, most = ctypes.c_size_t(0), 1
        if not llama.llama_state_load_file(state.context, path.encode(), (llama.llama_token * most)(), most, ctypes.byref(count)):
            raise RuntimeError("llama_state_load_file failed")
        return state


if __name__ == "__main__":
    main(LlamaCpp)
