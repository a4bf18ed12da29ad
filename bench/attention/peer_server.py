"""Attention of one library as a process that answers lines, as attention_server does for ours: peers.py asks several of them
in turns.

    peer_server.py torch|mlx|openvino|ggml [THREADS]

    setup NAME KEY=VALUE...   format=F tokens=N queries=N causal=0|1 way=fold|gqa|expand (torch) cold=BYTES; answers the bytes
                              of K and V. With `cold` there are as many layers as have so many bytes together, and each run
                              takes the next one
    run NAME K                the seconds of K runs
    check NAME                root mean square of the error against attention in doubles of the same stored K and V, over that
                              of the values
    version                   of the library
    free                      forgets all

Every answer is one line and begins with ok or error. 32 query heads, 8 key/value heads, 128 channels, one sequence; K and V
are head-major, of normal deviates. A library's own way to hold K and V, and what it makes once for all calls, is made at
setup. Timed is what a caller asks for: from Python's call until the values are there.
"""
import ctypes
import gc
import math
import os
import sys
import time

import numpy as np

QUERY_HEADS, KV_HEADS, DIM = 32, 8, 128
SCALE = 1 / math.sqrt(DIM)
DRAWN = 509  # tokens; then they repeat


class Problem:
    """q (1, 32, queries, 128), k and v (1, 8, tokens, 128), float32."""

    def __init__(self, options):
        self.format = options["format"]
        self.tokens = int(options["tokens"])
        self.queries = int(options.get("queries", 1))
        self.causal = options.get("causal") == "1"
        self.way = options.get("way", "gqa")
        self.cold = int(options.get("cold", "0"))
        self.small = self.tokens <= DRAWN  # its values can be checked: what K and V hold is kept
        random = np.random.default_rng(1)
        self.q = random.standard_normal((1, QUERY_HEADS, self.queries, DIM), dtype=np.float32)
        self.k, self.v = (self.repeat(random.standard_normal((1, KV_HEADS, DRAWN, DIM), dtype=np.float32)) for _ in "kv")

    def repeat(self, drawn):
        times = -(-self.tokens // DRAWN)
        return np.ascontiguousarray(np.tile(drawn, (1, 1, times, 1))[:, :, :self.tokens])


def exact(q, k, v, causal):
    """Attention in doubles."""
    group = QUERY_HEADS // KV_HEADS
    k, v = (np.repeat(np.asarray(x, np.float64), group, axis=1) for x in (k, v))
    scores = np.asarray(q, np.float64) @ k.swapaxes(2, 3) * SCALE
    if causal:
        hidden = np.triu(np.ones(scores.shape[2:], bool), 1 + scores.shape[3] - scores.shape[2])
        scores[..., hidden] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def need(supported, what):
    if not supported:
        raise ValueError(f"{what} is not measured with this library")


class Torch:
    def __init__(self, threads):
        import torch

        self.library, self.version = torch, torch.__version__
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def start(self, problem):
        torch, attend = self.library, self.library.nn.functional.scaled_dot_product_attention
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[problem.format]
        q, k, v = (torch.from_numpy(x.copy()).to(dtype).contiguous() for x in (problem.q, problem.k, problem.v))
        held = [x.float().numpy() for x in (q, k, v)] if problem.small else None
        stored, shape, gqa = k.nbytes + v.nbytes, q.shape, problem.way == "gqa"
        if problem.way == "fold":
            need(not problem.causal, "a causal mask with heads folded into queries")
            # The query heads of a key/value head as queries of one head, which read it once.
            q = q.reshape(1, KV_HEADS, -1, DIM)
        if problem.way == "expand":
            k, v = (x.repeat_interleave(QUERY_HEADS // KV_HEADS, 1) for x in (k, v))

        def run():
            return attend(q, k, v, is_causal=problem.causal, scale=SCALE, enable_gqa=gqa)

        return run, stored, lambda: run().reshape(shape).float().numpy(), held


class Mlx:
    def __init__(self, threads):
        import mlx.core as mx

        self.library, self.version = mx, mx.__version__
        mx.set_default_device(mx.cpu)

    def start(self, problem):
        mx = self.library
        dtype = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}[problem.format]
        q, k, v = (mx.array(x).astype(dtype) for x in (problem.q, problem.k, problem.v))
        mx.eval(q, k, v)

        def run():
            out = mx.fast.scaled_dot_product_attention(q, k, v, scale=SCALE, mask="causal" if problem.causal else None)
            mx.eval(out)
            return out

        def float32(x):
            return np.array(x.astype(mx.float32))

        held = [float32(x) for x in (q, k, v)] if problem.small else None
        return run, k.nbytes + v.nbytes, lambda: float32(run()), held


class Ggml:
    """ggml_flash_attn_ext on its CPU backend, asked for f32 precision."""

    def __init__(self, threads):
        import ggml

        self.library = ggml
        self.version = ggml.ggml_version().decode()
        self.backend = ggml.ggml_backend_cpu_init()
        ggml.ggml_backend_cpu_set_n_threads(self.backend, threads)

    def start(self, problem):
        g = self.library
        need(not problem.causal, "a causal mask")
        kind = getattr(g, f"GGML_TYPE_{problem.format.upper()}")
        backend = self.backend
        context = g.ggml_init(g.ggml_init_params(mem_size=1 << 20, mem_buffer=None, no_alloc=True))
        q = g.ggml_new_tensor_4d(context, g.GGML_TYPE_F32, DIM, problem.queries, QUERY_HEADS, 1)
        k, v = (g.ggml_new_tensor_4d(context, kind, DIM, problem.tokens, KV_HEADS, 1) for _ in "kv")
        out = g.ggml_flash_attn_ext(context, q, k, v, None, SCALE, 0.0, 0.0)
        g.ggml_flash_attn_ext_set_prec(out, g.GGML_PREC_F32)
        graph = g.ggml_new_graph(context)
        g.ggml_build_forward_expand(graph, out)
        buffer = g.ggml_backend_alloc_ctx_tensors(context, backend)
        need(buffer, "a problem beyond memory")
        held = [problem.q]
        g.ggml_backend_tensor_set(q, problem.q.ctypes.data, 0, problem.q.nbytes)
        for tensor, values in ((k, problem.k), (v, problem.v)):
            rows = values.size // DIM
            codes = np.empty(g.ggml_nbytes(tensor), np.uint8)
            floats = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            if problem.format == "f32":
                codes = values
            else:
                g.ggml_quantize_chunk(kind, floats, codes.ctypes.data, 0, rows, DIM, None)
            g.ggml_backend_tensor_set(tensor, codes.ctypes.data, 0, codes.nbytes)
            held.append(values)
            if problem.small and problem.format != "f32":
                held[-1] = np.empty_like(values)
                decoded = held[-1].ctypes.data_as(ctypes.POINTER(ctypes.c_float))
                g.ggml_get_type_traits(kind).contents.to_float(codes.ctypes.data, decoded, values.size)

        def run():
            need(g.ggml_backend_graph_compute(backend, graph) == 0, "a graph that fails")

        def output():
            run()
            values = np.empty((1, problem.queries, QUERY_HEADS, DIM), np.float32)
            g.ggml_backend_tensor_get(out, values.ctypes.data, 0, values.nbytes)
            return values.swapaxes(1, 2)

        def close():
            g.ggml_backend_buffer_free(buffer)
            g.ggml_free(context)

        run.close = close
        return run, g.ggml_nbytes(k) + g.ggml_nbytes(v), output, held if problem.small else None


class OpenVino:
    """Decoding with state: K and V in the precision of the cache, one token appended by each call."""

    def __init__(self, threads):
        import openvino

        self.library, self.threads = openvino, threads
        self.compiled = {}  # by format
        self.version = openvino.__version__.split("-")[0]

    def model(self):
        from openvino import opset13 as ops

        ov = self.library
        q = ops.parameter([-1, QUERY_HEADS, -1, DIM], np.float32)
        new = [ops.parameter([-1, KV_HEADS, -1, DIM], np.float32) for _ in "kv"]
        rows = ops.parameter([-1], np.int32)
        assigned, expanded = [], []
        for name, appended in zip("kv", new):
            empty = ops.constant(np.zeros((1, KV_HEADS, 0, DIM), np.float32))
            past = ops.read_value(empty, name, np.float32, ov.PartialShape([-1, KV_HEADS, -1, DIM]))
            all_tokens = ops.concat([ops.gather(past, rows, ops.constant(0)), appended], 2)
            assigned.append(ops.assign(all_tokens, name))
            group = ops.constant(np.array([1, 1, QUERY_HEADS // KV_HEADS, 1, 1], np.int64))
            heads = ops.broadcast(ops.unsqueeze(all_tokens, ops.constant(2)), group, broadcast_spec="BIDIRECTIONAL")
            expanded.append(ops.reshape(heads, ops.constant(np.array([0, QUERY_HEADS, -1, DIM], np.int64)), True))
        out = ops.scaled_dot_product_attention(q, *expanded)
        return ov.Model([ops.result(out)], assigned, [q, *new, rows], "decode")

    def compile(self, precision):
        ov = self.library
        settings = {"INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32",
                    "KV_CACHE_PRECISION": precision}
        compiled = ov.Core().compile_model(self.model(), "CPU", settings)
        operations = [node.get_rt_info()["layerType"].astype(str) for node in compiled.get_runtime_model().get_ordered_ops()]
        # Unfused it would copy K and V for every call, which nobody runs.
        need("Broadcast" not in operations and "Concatenation" not in operations, "attention that is not fused with its state")
        return compiled

    def start(self, problem):
        ov = self.library
        need(not problem.causal and problem.queries == 1, "more than one query")
        if problem.format not in self.compiled:
            self.compiled[problem.format] = self.compile(problem.format)
        request = self.compiled[problem.format].create_infer_request()
        appended = [np.ascontiguousarray(x[:, :, :1]) for x in (problem.k, problem.v)]
        inputs = [ov.Tensor(x) for x in (problem.q, *appended, np.zeros(1, np.int32))]
        held = {"k": problem.k, "v": problem.v}
        length = 0

        def reset():
            nonlocal length
            for state in request.query_state():
                state.state = ov.Tensor(held[state.name[0]])
            length = problem.tokens

        def run():
            nonlocal length
            length += 1
            return request.infer(inputs, share_inputs=True, share_outputs=True)[0]

        def prepare():
            # The state grows by a token each call: at most by one in fifty. The call after a reset moves it into a larger
            # memory.
            if length == 0 or length > problem.tokens * 1.02 + 1:
                reset()
                run()

        def output():
            reset()
            return np.array(run())

        run.prepare = prepare
        # With u8 a vector has a scale and a zero point in f32.
        vector = {"f32": 4 * DIM, "f16": 2 * DIM, "u8": DIM + 8}[problem.format]
        longer = [problem.q, *(np.concatenate((held[x], new), 2) for x, new in zip("kv", appended))] if problem.small else None
        return run, 2 * KV_HEADS * problem.tokens * vector, output, longer


def prepare(run):
    if hasattr(run, "prepare"):
        run.prepare()


class Layers:
    """One problem at several places of memory, round robin over runs."""

    def __init__(self, library, problem):
        self.causal = problem.causal
        self.runs, self.outputs = [], []
        try:
            while not self.runs or len(self.runs) * self.stored < problem.cold:
                run, self.stored, output, self.held = library.start(problem)
                self.runs.append(run)
                self.outputs.append(output)
                prepare(run)
        except BaseException:
            self.close()
            raise
        problem.k = problem.v = None  # what is kept for checks is in `held`
        self.turn = 0

    def next_run(self):
        self.turn += 1
        return self.runs[(self.turn - 1) % len(self.runs)]

    def error(self):
        """Root mean square of the worst layer, over that of the values."""
        need(self.held is not None, "the error of a problem as large")
        expected = exact(*self.held, self.causal)
        worst = np.max([((output() - expected) ** 2).mean() for output in self.outputs])  # NaN where one is
        return math.sqrt(worst / (expected ** 2).mean())

    def close(self):
        for run in self.runs:
            if hasattr(run, "close"):
                run.close()
        self.runs.clear()
        self.outputs.clear()
        gc.collect()  # what a library holds in rings of references


class Server:
    LIBRARIES = {"torch": Torch, "mlx": Mlx, "ggml": Ggml, "openvino": OpenVino}

    def __init__(self, name, threads):
        self.library = self.LIBRARIES[name](threads)
        self.problems = {}

    def answer(self, words):
        if words[0] == "version":
            return self.library.version
        if words[0] == "free":
            for layers in self.problems.values():
                layers.close()
            self.problems.clear()
            gc.collect()
            return ""
        name = words[1]
        if words[0] == "setup":
            if name in self.problems:
                self.problems.pop(name).close()
            self.problems[name] = Layers(self.library, Problem(dict(word.split("=", 1) for word in words[2:])))
            return str(self.problems[name].stored)
        layers = self.problems[name]
        if words[0] == "check":
            return f"{layers.error():.3e}"
        if words[0] != "run":
            raise ValueError(f"there is no command {words[0]}")
        seconds = []
        for _ in range(int(words[2])):
            run = layers.next_run()
            prepare(run)
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return " ".join(f"{second:.9f}" for second in seconds)


def main():
    # What a library prints belongs to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        server = Server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    except (ImportError, OSError, RuntimeError) as error:
        print("error", " ".join(str(error).split()), file=answers)
        return
    print("ok", file=answers)
    for line in sys.stdin:
        try:
            print("ok", server.answer(line.split()), file=answers)
        except Exception as error:  # whatever a library raises is its answer
            print("error", type(error).__name__, " ".join(str(error).split()), file=answers)


if __name__ == "__main__":
    main()
