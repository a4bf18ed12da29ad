#include "tools/agree/prefix_hit.h"

#include <cstddef>
#include <memory>

#include "optimized/prefix/prefix_cache.h"
#include "reference/spec/error.h"
#include "tools/prefix_disk/prefix_disk.h"
#include "tools/report/own_folder.h"

namespace kvcheck {
namespace {

constexpr int64_t kBlockTokens = 16;

// K and V of consecutive tokens. Shapes: (layers, kv_heads, tokens, head_dim).
struct Rows {
  int64_t tokens = 0;
  std::vector<float> k, v;
};

// What a recorder saw, which has (tokens, kv_heads, head_dim) by layer.
Rows RowsOf(const DecoderConfig& c, const SequenceRecord& record) {
  Rows rows;
  rows.tokens = record.pending;
  const auto gather = [&](std::vector<float> LayerRecord::* of, std::vector<float>* to) {
    for (const LayerRecord& layer : record.layers) {
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        for (int64_t t = 0; t < rows.tokens; ++t) {
          const auto from = (layer.*of).begin() + (t * c.kv_heads + h) * c.head_dim;
          to->insert(to->end(), from, from + c.head_dim);
        }
      }
    }
  };
  gather(&LayerRecord::k, &rows.k);
  gather(&LayerRecord::v, &rows.v);
  return rows;
}

PrefixVectors VectorsOf(const DecoderConfig& c, const Rows& rows) {
  constexpr int64_t kFloat = sizeof(float);
  PrefixVectors vectors;
  vectors.layers = c.layers();
  vectors.kv_heads = c.kv_heads;
  vectors.tokens = rows.tokens;
  vectors.k_dim = vectors.v_dim = c.head_dim;
  vectors.k = reinterpret_cast<const std::byte*>(rows.k.data());
  vectors.v = reinterpret_cast<const std::byte*>(rows.v.data());
  vectors.k_strides = vectors.v_strides = {c.kv_heads * rows.tokens * c.head_dim * kFloat,
                                           rows.tokens * c.head_dim * kFloat, c.head_dim * kFloat};
  return vectors;
}

// K and V of the tokens as the path computes them.
Rows ComputedRows(optimized::Decoder* decoder, const PathStorage& storage,
                  std::span<const int64_t> tokens, int64_t chunk) {
  const std::span<const int64_t> rows[] = {tokens};
  PathRun run(decoder, storage, rows);
  Recorder recorder(decoder->config(), 1, run.capabilities().plan);
  run.Run(WithoutDrafts(TeacherForcedSteps(run.columns(), chunk)), &recorder, nullptr);
  return RowsOf(decoder->config(), recorder.row(0));
}

PrefixSetup SetupOf(const DecoderConfig& c, int64_t tokens) {
  PrefixSetup setup;
  setup.block_tokens = kBlockTokens;
  // Both requests at once, and a block for the end of each.
  setup.capacity_tokens = 2 * (tokens + kBlockTokens);
  setup.layers = c.layers();
  setup.kv_heads = c.kv_heads;
  setup.k_dim = setup.v_dim = c.head_dim;
  return setup;
}

using PrefixRequest = std::unique_ptr<optimized::PrefixCache::Request>;

void Keep(const DecoderConfig& c, std::span<const int32_t> prompt, const Rows& rows,
          optimized::PrefixCache* store) {
  PrefixRequest request = store->Open(prompt, {}, false);
  KVCHECK_CHECK(request != nullptr && store->Append(request.get(), prompt, VectorsOf(c, rows)),
                "a prefix cache without room for one prompt");
  store->Close(std::move(request), true);
}

// What a request for a prompt finds. from_tier: only what did not come from memory counts.
Rows Found(const DecoderConfig& c, std::span<const int32_t> prompt, bool from_tier,
           optimized::PrefixCache* store) {
  PrefixRequest request = store->Open(prompt, {}, false);
  KVCHECK_CHECK(request != nullptr, "a prefix cache without room for a second prompt");
  Rows hit;
  if (request->is_from_tier() == from_tier) hit.tokens = request->hit_tokens();
  hit.k.resize(static_cast<size_t>(c.layers() * c.kv_width() * hit.tokens));
  hit.v.resize(hit.k.size());
  if (hit.tokens > 0) {
    store->Read(*request, {reinterpret_cast<std::byte*>(hit.k.data()),
                           reinterpret_cast<std::byte*>(hit.v.data()), hit.tokens});
  }
  store->Close(std::move(request), false);
  return hit;
}

// What a second request finds of the first tokens, whose rows are kept.
Rows HitOf(const DecoderConfig& c, std::span<const int64_t> tokens, const Rows& kept,
           KeptIn place) {
  const PrefixSetup setup = SetupOf(c, static_cast<int64_t>(tokens.size()));
  const std::vector<int32_t> prompt(tokens.begin(), tokens.end());
  const auto first = std::span(prompt).first(static_cast<size_t>(kept.tokens));
  if (place == KeptIn::kMemory) {
    optimized::PrefixCache store(setup);
    Keep(c, first, kept, &store);
    return Found(c, prompt, false, &store);
  }
  const OwnFolder folder;
  {
    const auto disk = MakePrefixDisk(setup, folder.path());
    optimized::PrefixCache store(setup, disk.get());
    Keep(c, first, kept, &store);
    store.Settle();
  }
  const auto disk = MakePrefixDisk(setup, folder.path());
  optimized::PrefixCache store(setup, disk.get());
  return Found(c, prompt, true, &store);
}

}  // namespace

BehindHit FeedBehindHit(optimized::Decoder* decoder, const PathStorage& storage,
                        std::span<const int64_t> tokens, int64_t chunk, KeptIn place) {
  const DecoderConfig& c = decoder->config();
  const Rows kept = ComputedRows(decoder, storage, tokens.first(tokens.size() * 3 / 4), chunk);
  const Rows hit = HitOf(c, tokens, kept, place);
  const std::span<const int64_t> rows[] = {tokens};
  PathRun run(decoder, storage, rows);
  if (hit.tokens > 0) run.Begin(hit.k, hit.v, hit.tokens);
  BehindHit result;
  result.hit_tokens = hit.tokens;
  result.missing_tokens = kept.tokens / kBlockTokens * kBlockTokens - hit.tokens;
  run.Run(WithoutDrafts(TeacherForcedSteps(run.columns() - hit.tokens, chunk)), nullptr,
          [&](std::span<const int64_t>, int64_t, std::span<const float> logits) {
            result.logits.insert(result.logits.end(), logits.begin(), logits.end());
          });
  return result;
}

}  // namespace kvcheck
