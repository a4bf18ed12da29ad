"""mlx_lm.server's ResponseGenerator over small random models, without HTTP, for generate_after_*.py and server_*.py: a token's text is
its number."""
import logging
import types

import mlx.core as mx
from mlx_lm import server
from mlx_lm.models import llama
from mlx_lm.models.cache import LRUPromptCache
from mlx_lm.tokenizer_utils import TokenizerWrapper
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from _random_model import SIZES, filled

mx.set_default_device(mx.cpu)
logging.disable(logging.CRITICAL)


def random_llama(seed, **options):
    return filled(llama.Model(llama.ModelArgs(num_hidden_layers=2, tie_word_embeddings=False, **{**SIZES, **options})), seed)


class Provider(server.ModelProvider):
    """The models that are given, in place of those of a path."""

    def __init__(self, model, draft, options):
        self.given = model, draft
        super().__init__(types.SimpleNamespace(**{**vars(server_options()), **options}))

    def load(self, model_path, adapter_path=None, draft_model_path=None):
        if self.model is None:
            numbers = Tokenizer(models.WordLevel({str(n): n for n in range(SIZES["vocab_size"])}, unk_token="0"))
            numbers.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
            self.model, self.draft_model = self.given
            self.tokenizer = TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=numbers))
            self.model_key, self.is_batchable = ("random", None, None), self.draft_model is None
        return self.model, self.tokenizer

    def load_default(self):
        pass


def server_options():
    """The server's own defaults."""
    return types.SimpleNamespace(model=None, adapter_path=None, draft_model=None, num_draft_tokens=3, kv_bits=None,
                                 kv_group_size=64, quantized_kv_start=server.DEFAULT_QUANTIZED_KV_START,
                                 prefill_step_size=2048, decode_concurrency=32, prompt_concurrency=8,
                                 prompt_cache_bytes=None, trust_remote_code=False, chat_template=None,
                                 use_default_chat_template=False)


class Server:
    def __init__(self, model, draft=None, **options):
        self.generator = server.ResponseGenerator(Provider(model, draft, options), LRUPromptCache(10))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.generator.stop_and_join()

    def complete(self, tokens, max_tokens):
        """(tokens of the prompt that were found, tokens that are generated), as for a request of /v1/completions."""
        request = server.CompletionRequest("text", " ".join(map(str, tokens)), [], None, None)
        arguments = server.GenerationArguments(
            server.ModelDescription("random", None, None), server.SamplingArguments(0.0, 1.0, 0, 0.0, 0.0, 0.0),
            server.LogitsProcessorArguments(None, 0.0, 20, 0.0, 20, 0.0, 20), [], max_tokens, 3, False, 0, None, None)
        context, responses = self.generator.generate(request, arguments)
        made = [response.token for response in responses]
        return context.prompt_cache_count, made

    def kept(self, tokens):
        """The caches of the model that the server keeps for these tokens."""
        caches, _ = self.generator.prompt_cache.fetch_nearest_cache(("random", None, None), tokens)
        return caches[:len(self.generator.model_provider.model.layers)]
