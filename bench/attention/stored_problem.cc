#include "bench/attention/stored_problem.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kKvHeads = StoredProblem::kKvHeads;
constexpr int64_t kDim = StoredProblem::kDim;
constexpr double kScale = 0.08838834764831845;  // 1 / sqrt(kDim)
// With queries of this size and vectors of size 1 scores have the variance 1, as those of normal
// deviates have: a wrong key shows.
constexpr float kQuerySize = 3;

// Of [-size, size).
std::vector<float> Drawn(int64_t count, float size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f * size;
  }
  return values;
}

KvFormat ReadableFormat(const std::string& text) {
  const KvFormat format = ParseKvFormat(WholeLine(text));
  if (!optimized::CanAttend(format) || !optimized::FitsDim(format, kDim)) {
    throw Error(ErrorCode::kUnsupported, "attention over vectors of " + text,
                "take another format");
  }
  return format;
}

// Of K or V: "q4_1", or "q4_1/q5_0" for both.
KvFormat FormatOf(const std::string& text, bool is_key) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return ReadableFormat(text);
  return ReadableFormat(is_key ? text.substr(0, slash) : text.substr(slash + 1));
}

}  // namespace

ProblemVectors::ProblemVectors(const KvFormat& format, int64_t tokens, int64_t batch, bool by_token,
                               uint32_t seed)
    : bytes_(optimized::RowBytesOf(format, kDim)),
      tokens_(tokens),
      batch_(batch),
      by_token_(by_token) {
  const int64_t vectors = tokens * kKvHeads * batch;
  codes_ = optimized::StoredMemory(vectors * bytes_.codes);
  scales_ = optimized::StoredMemory(vectors * bytes_.scales);
  biases_ = optimized::StoredMemory(vectors * bytes_.scales);
  codec_.Start(format, DType::kFloat32, kDim);
  constexpr int64_t kDrawn = 257;  // vectors; then they repeat
  const std::vector<float> x = Drawn(kDrawn * kDim, 1, seed);
  for (int64_t done = 0; done < vectors; done += kDrawn) {
    codec_.Encode(reinterpret_cast<const std::byte*>(x.data()), kDim * 4,
                  std::min(kDrawn, vectors - done),
                  {codes_.data() + done * bytes_.codes, scales_.data() + done * bytes_.scales,
                   biases_.data() + done * bytes_.scales, bytes_.codes, bytes_.scales});
  }
}

optimized::StoredHeads ProblemVectors::Heads(int64_t sequence) const {
  const int64_t first = sequence * tokens_ * kKvHeads;
  const int64_t token = by_token_ ? kKvHeads : 1;
  const int64_t head = by_token_ ? 1 : tokens_;
  return {codes_.data() + first * bytes_.codes,
          scales_.data() + first * bytes_.scales,
          biases_.data() + first * bytes_.scales,
          token * bytes_.codes,
          head * bytes_.codes,
          token * bytes_.scales,
          head * bytes_.scales};
}

void ProblemVectors::Decode(int64_t sequence, int64_t head, int64_t token, float* values) const {
  const optimized::StoredHeads heads = Heads(sequence);
  const int64_t scale = head * heads.scale_head_stride + token * heads.scale_stride;
  codec_.Decode({heads.codes + head * heads.code_head_stride + token * heads.code_stride,
                 heads.scales + scale, heads.biases + scale, bytes_.codes, bytes_.scales},
                1, values);
}

int64_t ProblemVectors::Bytes() const { return tokens_ * kKvHeads * batch_ * bytes_.Total(); }

StoredProblem::StoredProblem(const Size& size)
    : size_(size),
      k_(FormatOf(size.format, true), size.tokens, size.batch, size.by_token, 1),
      v_(FormatOf(size.format, false), size.tokens, size.batch, size.by_token, 2),
      run_{0, 0, size.tokens},
      q_(Drawn(kQueryHeads * size.queries * size.batch * kDim, kQuerySize, 3)),
      out_(q_.size()) {
  shape_.query_heads = kQueryHeads;
  shape_.kv_heads = kKvHeads;
  shape_.k_dim = shape_.v_dim = kDim;
  shape_.k = FormatOf(size.format, true);
  shape_.v = FormatOf(size.format, false);
  shape_.scale = kScale;
  shape_.portable = size.portable;
  visible_.resize(static_cast<size_t>(size.queries));
  for (int64_t l = 0; l < size.queries; ++l) {
    visible_[static_cast<size_t>(l)].end =
        size.causal ? size.tokens - size.queries + l + 1 : size.tokens;
  }
  for (int64_t b = 0; b < size.batch; ++b) {
    optimized::SequenceQueries row;
    row.k = k_.Heads(b);
    row.v = v_.Heads(b);
    row.columns = {&run_, 1};
    row.queries = size.queries;
    row.q = q_.data() + b * kQueryHeads * size.queries * kDim;
    row.q_stride = kDim;
    row.q_head_stride = size.queries * kDim;
    row.visible = visible_.data();
    row.out = out_.data() + b * kQueryHeads * size.queries * kDim;
    row.out_stride = kDim;
    row.out_head_stride = size.queries * kDim;
    batch_.push_back(row);
  }
}

double StoredProblem::Flops() const {
  double keys = 0;
  for (const optimized::VisibleKeys& visible : visible_) keys += static_cast<double>(visible.end);
  return 4.0 * keys * static_cast<double>(kQueryHeads * kDim * size_.batch);
}

double StoredProblem::RelativeError() const {
  double error = 0;
  double size = 0;
  const int64_t group = kQueryHeads / kKvHeads * size_.queries;  // queries of a key/value head
  std::vector<float> k(static_cast<size_t>(size_.tokens * kDim)), v(k.size());
  for (int64_t at = 0; at < size_.batch * kKvHeads; ++at) {
    for (int64_t j = 0; j < size_.tokens; ++j) {
      k_.Decode(at / kKvHeads, at % kKvHeads, j, k.data() + j * kDim);
      v_.Decode(at / kKvHeads, at % kKvHeads, j, v.data() + j * kDim);
    }
    for (int64_t l = at * group; l < (at + 1) * group; ++l) {
      double sum = 0;
      double expected[kDim] = {};
      for (int64_t j = 0; j < visible_[static_cast<size_t>(l % size_.queries)].end; ++j) {
        double score = 0;
        for (int64_t c = 0; c < kDim; ++c) {
          score += static_cast<double>(q_[static_cast<size_t>(l * kDim + c)]) *
                   static_cast<double>(k[static_cast<size_t>(j * kDim + c)]);
        }
        const double weight = std::exp(score * kScale);  // no score is large
        sum += weight;
        for (int64_t c = 0; c < kDim; ++c) {
          expected[c] += weight * static_cast<double>(v[static_cast<size_t>(j * kDim + c)]);
        }
      }
      for (int64_t c = 0; c < kDim; ++c) {
        const double value = expected[c] / sum;
        const double off = static_cast<double>(out_[static_cast<size_t>(l * kDim + c)]) - value;
        error += off * off;
        size += value * value;
      }
    }
  }
  return std::sqrt(error / size);
}

}  // namespace kvcheck
