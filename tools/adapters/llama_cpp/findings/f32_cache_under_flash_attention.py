"""A cache in float32 under flash attention says, bit for bit, what a cache in float16 says."""
import ctypes
import pathlib
import sys
import tempfile

import llama_cpp as llama
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import make_gguf  # the model of golden/model as GGUF, in float32

F32, F16 = 0, 1  # enum ggml_type
TOKENS = [0, *b"In the beginning God created the heaven and the earth."]


@llama.llama_log_callback
def silent(level, text, data):
    pass


def logits(model, kind, flash):
    options = llama.llama_context_default_params()
    options.n_ctx, options.n_threads_batch = 256, 1
    options.type_k, options.type_v, options.flash_attn_type = kind, kind, flash
    context = llama.llama_init_from_model(model, options)
    batch = llama.llama_batch_init(len(TOKENS), 0, 1)
    batch.n_tokens = len(TOKENS)
    for i, token in enumerate(TOKENS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    assert llama.llama_decode(context, batch) == 0
    return np.ctypeslib.as_array(llama.llama_get_logits(context), (len(TOKENS), 256)).copy()


llama.llama_log_set(silent, ctypes.c_void_p(0))
llama.llama_backend_init()
with tempfile.TemporaryDirectory() as folder:
    path = str(pathlib.Path(folder) / "model.gguf")
    make_gguf.write(HERE.parents[3] / "golden/model", path)
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    for name, flash in (("with flash attention", llama.LLAMA_FLASH_ATTN_TYPE_ENABLED),
                        ("without", llama.LLAMA_FLASH_ATTN_TYPE_DISABLED)):
        difference = np.abs(logits(model, F32, flash) - logits(model, F16, flash)).max()
        print(f"{name}: an f32 cache {'differs from' if difference else 'says what is said by'} an f16 cache")
