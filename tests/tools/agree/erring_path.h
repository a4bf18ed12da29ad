// A path whose every step errs by what is declared, up or down at random: the most that a correct
// implementation may do, and with one element doubled the least that one may not.

#ifndef TESTS_TOOLS_AGREE_ERRING_PATH_H_
#define TESTS_TOOLS_AGREE_ERRING_PATH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "reference/attention/evaluate.h"
#include "reference/model/forward.h"
#include "tools/agree/judge_steps.h"
#include "tools/agree/recorder.h"

namespace kvcheck {

// The element of a step that is off by twice what is declared.
struct DoubledError {
  int64_t layer = 0;
  DecoderStep step = DecoderStep::kQ;
  int64_t token = 0;
};

class ErringPath {
 public:
  ErringPath(const StepQuestion& declared, uint64_t direction,
             std::optional<DoubledError> doubled = {})
      : declared_(declared), draws_(direction), doubled_(doubled) {}

  // What it makes of the first tokens of a sequence. K and V are stored in f32; attention, whose
  // bound is that of the plan, errs by the rounding of its result.
  SequenceRecord Run(std::span<const int64_t> tokens, const Plan& plan) {
    const DecoderWeights& w = *declared_.weights;
    const DecoderConfig& c = w.config;
    const auto count = static_cast<int64_t>(tokens.size());
    std::vector<int64_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), 0);
    SequenceRecord record;
    record.pending = count;
    record.plan = plan;
    Matrix x = w.Embed(tokens);
    for (layer_ = 0; layer_ < c.layers(); ++layer_) {
      LayerRecord layer;
      layer.x = Rounded(x);
      ProjectedValues projected = Project(w, layer_, x, positions, &declared_.arithmetic);
      const Matrix q = Erred(DecoderStep::kQ, projected.q, &layer.q);
      const Matrix k = Erred(DecoderStep::kK, projected.k, &layer.k);
      const Matrix v = Erred(DecoderStep::kV, projected.v, &layer.v);
      Store(c, layer.k, &layer.k_stored);
      Store(c, layer.v, &layer.v_stored);
      layer.out = Rounded(Attend(c, q, k, v));
      const Matrix out = Exact(layer.out, count);
      const Matrix mid = Erred(DecoderStep::kMid,
                               AddAttention(w, layer_, x, out, &declared_.arithmetic), &layer.mid);
      const Matrix inner =
          Erred(DecoderStep::kInner, Inner(w, layer_, mid, &declared_.arithmetic), &layer.inner);
      x = Erred(DecoderStep::kNext, AddInner(w, layer_, mid, inner, &declared_.arithmetic),
                &layer.next);
      record.layers.push_back(std::move(layer));
    }
    Erred(DecoderStep::kLogits, Logits(w, x, &declared_.arithmetic), &record.logits);
    return record;
  }

 private:
  static std::vector<float> Rounded(const Matrix& values) {
    return {values.values.begin(), values.values.end()};
  }
  static Matrix Exact(const std::vector<float>& values, int64_t rows) {
    Matrix matrix(rows, static_cast<int64_t>(values.size()) / rows);
    std::copy(values.begin(), values.end(), matrix.values.begin());
    return matrix;
  }

  // The values off by their bounds, as floats; and as the doubles that the next step is given.
  Matrix Erred(DecoderStep step, const StepValues& exact, std::vector<float>* to) {
    const int64_t width = exact.value.columns;
    to->resize(exact.value.values.size());
    int64_t doubled = -1;
    if (doubled_ && doubled_->step == step &&
        (doubled_->layer == layer_ || step == DecoderStep::kLogits)) {
      doubled =
          doubled_->token * width + static_cast<int64_t>(draws_() % static_cast<uint64_t>(width));
    }
    for (size_t i = 0; i < to->size(); ++i) {
      const double value = exact.value.values[i];
      const double size = exact.bound.values[i] * (static_cast<int64_t>(i) == doubled ? 2 : 1);
      auto off = static_cast<float>(value + (draws_() % 2 == 0 ? size : -size));
      // Rounding may not add to it.
      if (std::fabs(off - value) > size) off = std::nextafter(off, static_cast<float>(value));
      (*to)[i] = off;
    }
    return Exact(*to, exact.value.rows);
  }

  static void Store(const DecoderConfig& c, const std::vector<float>& rows, StoredHistory* stored) {
    stored->format = PlainFormat{DType::kFloat32};
    stored->planes = PlanesOf(stored->format, c.head_dim);
    stored->bytes[0].resize(static_cast<size_t>(c.kv_heads));
    const auto bytes = static_cast<size_t>(c.head_dim) * sizeof(float);
    for (size_t i = 0; i * static_cast<size_t>(c.head_dim) < rows.size(); ++i) {
      auto& head = stored->bytes[0][i % static_cast<size_t>(c.kv_heads)];
      const auto* from =
          reinterpret_cast<const std::byte*>(rows.data() + i * static_cast<size_t>(c.head_dim));
      head.insert(head.end(), from, from + bytes);
    }
  }

  Matrix Attend(const DecoderConfig& c, const Matrix& q, const Matrix& k, const Matrix& v) const {
    const int64_t window = c.windows[static_cast<size_t>(layer_)];
    Matrix out(q.rows, c.query_width());
    for (int64_t h = 0; h < c.query_heads; ++h) {
      const int64_t kv_head = h / (c.query_heads / c.kv_heads);
      GrowingHead head(c.head_dim);
      for (int64_t t = 0; t < q.rows; ++t) {
        head.Append(k.Row(t) + kv_head * c.head_dim, v.Row(t) + kv_head * c.head_dim);
        const int64_t first = window > 0 ? std::max<int64_t>(0, t + 1 - window) : 0;
        std::vector<int32_t> keys(static_cast<size_t>(t + 1 - first));
        std::iota(keys.begin(), keys.end(), static_cast<int32_t>(first));
        RowQuestion question;
        question.head = &head.data();
        question.q = {q.Row(t) + h * c.head_dim, static_cast<size_t>(c.head_dim)};
        question.keys = keys;
        question.scale = c.scale();
        const RowAnswer<double> answer = Evaluate<double>(question);
        std::copy(answer.o.begin(), answer.o.end(), out.Row(t) + h * c.head_dim);
      }
    }
    return out;
  }

  const StepQuestion& declared_;
  std::mt19937_64 draws_;
  std::optional<DoubledError> doubled_;
  int64_t layer_ = 0;
};

}  // namespace kvcheck

#endif  // TESTS_TOOLS_AGREE_ERRING_PATH_H_
