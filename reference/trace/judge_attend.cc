#include "reference/trace/judge_attend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "reference/attention/attention_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/implementation.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

// The vectors of all rows, (B, Hkv, T, *), zero where a row has no token.
void Gather(const ModelState& state, const VectorTable& table, bool is_key, const AttentionCase& c,
            TensorMap* inputs) {
  const KvFormat& format = is_key ? c.k : c.v;
  const std::string name = is_key ? "k" : "v";
  const Planes planes = PlanesOf(format, is_key ? c.k_dim : c.v_dim);
  std::array<std::byte*, kMaxPlanes> to{};
  for (size_t i = 0; i < planes.size(); ++i) {
    to[i] = inputs->at(PlaneTensor(format, name, planes[i])).bytes.data();
  }
  for (int64_t b = 0; b < c.batch; ++b) {
    const ModelRow& row = state.rows[static_cast<size_t>(b)];
    for (int64_t t = 0; t < row.offset; ++t) {
      const StoredToken token = row.Seen()[static_cast<size_t>(t)];
      const std::byte* from = table.Bytes(is_key ? token.k : token.v);
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        const auto at = static_cast<size_t>((b * c.kv_heads + h) * c.kv_len + t);
        for (size_t i = 0; i < planes.size(); ++i) {
          if (planes[i].scope != PlaneScope::kRow) continue;
          const size_t bytes = planes[i].Bytes();
          std::memcpy(to[i] + at * bytes, from, bytes);
          from += bytes;
        }
      }
    }
  }
}

}  // namespace

AttendJudgement JudgeAttend(const CacheSetup& setup, const ModelState& state,
                            const VectorTable& table, const AttendRequest& request,
                            const Plan& plan, const Profile& profile,
                            std::span<const std::byte> out, bool explains) {
  AttentionCase c;
  c.batch = request.rows;
  c.query_heads = setup.query_heads;
  c.kv_heads = setup.kv_heads;
  c.query_len = request.queries;
  c.k_dim = setup.k_dim;
  c.v_dim = setup.v_dim;
  c.q = request.dtype;
  c.k = TokenFormatOf(state.k);
  c.v = TokenFormatOf(state.v);
  c.out = request.dtype;
  c.scale = request.scale;
  if (request.sinks != nullptr) c.sinks = DType::kFloat32;
  c.mask.array = MaskArrayKind::kBoolean;
  c.mask.axes = MaskAxes::kB1LT;
  c.data = {"file", 0, ""};
  c.kv_len = 0;
  int64_t queries = 0;
  for (const ModelRow& row : state.rows) {
    c.kv_len = std::max(c.kv_len, row.offset);
    queries += row.query_tokens;
  }
  if (queries == 0) return {};

  TensorMap inputs;
  for (const auto& [name, spec] : InputSpecs(c)) inputs[name] = Tensor(spec.dtype, spec.shape);
  Tensor& q = inputs.at("q");
  std::memcpy(q.bytes.data(), request.q, q.bytes.size());
  Gather(state, table, true, c, &inputs);
  Gather(state, table, false, c, &inputs);
  if (request.sinks != nullptr) {
    Tensor& sinks = inputs.at("sinks");
    std::memcpy(sinks.bytes.data(), request.sinks, sinks.bytes.size());
  }
  Tensor& mask = inputs.at("mask");
  for (int64_t b = 0; b < c.batch; ++b) {
    const ModelRow& row = state.rows[static_cast<size_t>(b)];
    for (int64_t i = 0; i < row.query_tokens; ++i) {
      const int64_t position = row.offset - row.query_tokens + i;
      const TokenRange range = request.window
                                   ? VisibleInWindow(state.layout, position, *request.window)
                                   : Visible(state.layout, position);
      std::byte* bits = mask.bytes.data() + (b * c.query_len + row.first_query + i) * c.kv_len;
      for (int64_t t = 0; t < range.end; ++t) bits[t] = std::byte{range.Contains(t)};
    }
  }

  // A query that sees nothing is one of a padding column, of which nothing is promised.
  Profile any = profile;
  any.masked_row = MaskedRow::kAny;
  const AttentionSource expected(c, any, plan, inputs);
  TensorMap answer;
  answer["out"] = Tensor(c.out, OutputSpecs(c).at("out").shape);
  std::memcpy(answer["out"].bytes.data(), out.data(), answer["out"].bytes.size());
  JudgeOptions options;
  options.explain = false;
  const MemorySink observed(std::move(answer));
  Verdict verdict = Judge(expected, observed, options);
  AttendJudgement judgement;
  judgement.outcome = verdict.outcome;
  OutputVerdict& output = verdict.outputs.at(0);
  judgement.elements = output.counts.judged;
  if (verdict.outcome == Outcome::kPass) return judgement;
  if (verdict.outcome == Outcome::kFail && output.counts.failed > 0 && output.worst) {
    judgement.message =
        fmt::format("out{} is {}, {} is expected within {:.3g}", output.worst->coordinates,
                    output.worst->got, output.worst->expected, output.worst->bound);
  } else {
    judgement.message = output.reasons.empty() ? "nothing was proved" : output.reasons.front();
  }
  if (verdict.outcome != Outcome::kFail) return judgement;
  if (explains) {
    options.explain = true;
    output = std::move(Judge(expected, observed, options).outputs.at(0));
  }
  judgement.output = std::move(output);
  return judgement;
}

}  // namespace kvcheck
