#include "tools/campaign/plain_answers.h"

#include <fmt/format.h>

#include <cstring>

#include "reference/formats/codec.h"
#include "reference/numerics/convert.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

// The vectors of one part of a state as numbers, where the row retains the column.
void AddVectors(const StepView& view, const StoredVectors& stored, int64_t dim, int64_t heads,
                std::vector<double>* values) {
  if (!stored.AreShown() || view.retained == nullptr) return;
  const KvFormat format = TokenFormatOf(stored.format);
  const Planes planes = PlanesOf(format, dim);
  std::vector<Tensor> vector;
  for (const Plane& plane : planes)
    vector.emplace_back(plane.dtype, Shape{{"", 1}, {"", plane.elements}});
  EncodedRows row;
  for (size_t i = 0; i < planes.size(); ++i) row.planes[i] = &vector[i];
  for (int64_t b = 0; b < view.rows; ++b) {
    const uint64_t* retained = view.retained + b * view.WordsPerRow();
    for (int64_t column = 0; column < view.columns; ++column) {
      if ((retained[column / 64] >> (column % 64) & 1u) == 0) continue;
      for (int64_t h = 0; h < heads; ++h) {
        for (size_t i = 0; i < planes.size(); ++i) {
          std::memcpy(vector[i].bytes.data(), stored.planes[i].At(b, h, column), planes[i].Bytes());
        }
        const std::vector<double> decoded = DecodeToRowType(format, {}, row, 0, 1);
        values->insert(values->end(), decoded.begin(), decoded.end());
      }
    }
  }
}

PlainAnswer AnswerOf(const StepView& view, const CacheSetup& setup) {
  PlainAnswer answer;
  answer.shape = fmt::format("{} rows, {} columns, k {}, v {}", view.rows, view.columns,
                             Print(view.k.format), Print(view.v.format));
  AddVectors(view, view.k, setup.k_dim, setup.kv_heads, &answer.values);
  AddVectors(view, view.v, setup.v_dim, setup.kv_heads, &answer.values);
  return answer;
}

PlainAnswer AnswerOf(std::span<const std::byte> out, const CacheSetup& setup) {
  Tensor tensor(setup.x,
                Shape::Unnamed({std::ssize(out) / static_cast<int64_t>(SizeInBytes(setup.x))}));
  std::memcpy(tensor.bytes.data(), out.data(), out.size());
  PlainAnswer answer;
  answer.shape = fmt::format("out {}", ToString(tensor.shape));
  answer.values.resize(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, answer.values);
  return answer;
}

// Calls keep(number) for each that is shown, and takes the answer where it says so.
template <typename Keep>
SeenOfCase Watch(const CacheCase& c, TraceRunner* runner, Keep keep) {
  SeenOfCase seen;
  int64_t shown = 0;
  const auto take = [&](const auto& what) {
    const int64_t number = shown++;
    if (keep(number)) seen = {number, AnswerOf(what, c.setup)};
  };
  TraceOptions options;
  options.every_slot = true;
  options.observe_each = true;
  options.on_state = [&](const StepView& view) { take(view); };
  options.on_attend = [&](std::span<const std::byte> out) { take(out); };
  const TraceResult result = runner->Run(c, options);
  if (result.outcome == Outcome::kFail && result.failure.fault == StepFault::kRefused &&
      keep(shown)) {
    seen = {shown, {"refused", {}}};
  }
  return seen;
}

PlainAnswer AnswerOf(const PrefixRows& rows, int64_t count) {
  const PrefixVectors& vectors = rows.vectors;
  PlainAnswer answer;
  answer.shape =
      fmt::format("{} tokens, {} layers, {} heads, k {}, v {} of {}", count, vectors.layers,
                  vectors.kv_heads, vectors.k_dim, vectors.v_dim, ShortName(vectors.dtype));
  if (vectors.k == nullptr || vectors.tokens < count) return answer;
  const auto add = [&](const std::byte* vector, int64_t dim) {
    std::vector<double> values(static_cast<size_t>(dim));
    DecodeBytes(vector, vectors.dtype, values);
    answer.values.insert(answer.values.end(), values.begin(), values.end());
  };
  for (int64_t layer = 0; layer < vectors.layers; ++layer) {
    for (int64_t head = 0; head < vectors.kv_heads; ++head) {
      for (int64_t token = 0; token < count; ++token) {
        add(vectors.K(layer, head, token), vectors.k_dim);
        add(vectors.V(layer, head, token), vectors.v_dim);
      }
    }
  }
  return answer;
}

template <typename Keep>
SeenOfCase Watch(const PrefixCase& c, HistoryRunner* runner, Keep keep) {
  SeenOfCase seen;
  int64_t shown = 0;
  HistoryOptions options;
  options.observe_each = true;
  options.on_rows = [&](const PrefixRows& rows, int64_t count) {
    const int64_t number = shown++;
    if (keep(number)) seen = {number, AnswerOf(rows, count)};
  };
  const HistoryResult result = runner->Run(c, options);
  if (result.outcome == Outcome::kFail && result.failure.fault == HistoryFault::kRefused &&
      keep(shown)) {
    seen = {shown, {"refused", {}}};
  }
  return seen;
}

}  // namespace

int64_t DifferentElements(const MemorySink& a, const MemorySink& b) {
  int64_t different = 0;
  for (const auto& [name, right] : b.tensors()) {
    const auto found = a.tensors().find(name);
    if (found == a.tensors().end() || found->second.dtype != right.dtype ||
        !found->second.shape.SameExtents(right.shape)) {
      different += right.ElementCount();
      continue;
    }
    const size_t size = SizeInBytes(right.dtype);
    for (size_t at = 0; at < right.bytes.size(); at += size) {
      different += std::memcmp(&right.bytes[at], &found->second.bytes[at], size) != 0 ? 1 : 0;
    }
  }
  return different;
}

std::vector<bool> PromisedElements(const Question& question) {
  if (!std::holds_alternative<AttentionCase>(question.c)) return {};
  const std::unique_ptr<ExpectedSource> source = MakeExpected(question);
  const OutputInfo& out = source->Outputs()[0];
  std::vector<bool> promised(static_cast<size_t>(out.shape.ElementCount()), true);
  for (int64_t i = 0; i < source->TileCount(); ++i) {
    for (const ExpectedTile& tile : source->Tiles(i, {})) {
      if (tile.output != 0) continue;
      for (size_t e = 0; e < tile.undefined.size(); ++e) {
        if (tile.undefined[e] == 0) continue;
        promised[static_cast<size_t>(tile.first_row * out.row_length) + e] = false;
      }
      for (size_t r = 0; r < tile.standing.size(); ++r) {
        if (tile.standing[r] == Standing::kJudged) continue;
        const auto first = (tile.first_row + static_cast<int64_t>(r)) * out.row_length;
        for (int64_t e = 0; e < out.row_length; ++e) {
          promised[static_cast<size_t>(first + e)] = false;
        }
      }
    }
  }
  return promised;
}

PlainAnswer PlainAnswerOf(const Question& question, const MemorySink& answer,
                          const std::vector<bool>& promised) {
  PlainAnswer plain;
  for (const auto& [name, tensor] : answer.tensors()) {
    plain.shape += fmt::format("{} {} {} ", name, Name(tensor.dtype), ToString(tensor.shape));
  }
  const auto* codec = std::get_if<CodecCase>(&question.c);
  if (codec != nullptr && codec->direction == CodecDirection::kEncode) {
    const CodecCase& c = *codec;
    plain.values = DecodeToRowType(c.format, question.profile,
                                   CodecRows(c.format, answer.tensors()), 0, c.rows);
    return plain;
  }
  for (const auto& [name, tensor] : answer.tensors()) {
    std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
    DecodeTo(tensor, 0, values);
    for (size_t i = 0; i < values.size(); ++i) {
      if (name == "out" && !promised.empty() && !promised[i]) continue;
      plain.values.push_back(values[i]);
    }
  }
  return plain;
}

SeenOfCase LastSeen(const CacheCase& c, TraceRunner* runner) {
  return Watch(c, runner, [](int64_t) { return true; });
}

SeenOfCase SeenAt(const CacheCase& c, TraceRunner* runner, int64_t number) {
  return Watch(c, runner, [number](int64_t shown) { return shown == number; });
}

SeenOfCase LastSeen(const PrefixCase& c, HistoryRunner* runner) {
  return Watch(c, runner, [](int64_t) { return true; });
}

SeenOfCase SeenAt(const PrefixCase& c, HistoryRunner* runner, int64_t number) {
  return Watch(c, runner, [number](int64_t shown) { return shown == number; });
}

}  // namespace kvcheck
