#include "tools/faults/small_kernel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <numbers>
#include <span>
#include <thread>
#include <vector>

#include "reference/attention/visible.h"
#include "reference/numerics/convert.h"
#include "tools/faults/page_memory.h"

namespace kvcheck {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kRanges = 2;

// What one range of keys adds to a row.
struct RangeSum {
  float maximum = -kInf;
  float denominator = 0;
  std::vector<float> sums;
};

// Eight lanes, then a pairwise tree.
float LaneDot(const float* a, const float* b, size_t n) {
  std::array<float, kLanes> lanes{};
  for (size_t i = 0; i < n; ++i) lanes[i % kLanes] += a[i] * b[i];
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
  }
  return lanes[0];
}

// One query of one head beside the keys of one range.
class RangeKernel {
 public:
  RangeKernel(const AttentionCase& c, const KernelSteps& steps, const PageMemory& memory)
      : c_(c), steps_(steps), memory_(memory), scale_(static_cast<float>(c.scale)) {
    last_.sums.resize(static_cast<size_t>(c.v_dim));
  }

  // q: (Dk), followed by kLanes readable floats. Keys of [begin, end).
  RangeSum Run(const float* q, const VisibleSet& set, int64_t batch, int64_t head, int64_t begin,
               int64_t end) {
    RangeSum sum;
    sum.maximum = steps_.first_maximum;
    if (steps_.clears_sums) {
      sum.sums.assign(static_cast<size_t>(c_.v_dim), 0.0F);
    } else {
      sum.sums = last_.sums;
    }
    const int64_t walked =
        kPageTokens * (steps_.pages != nullptr ? steps_.pages(c_.kv_len) : memory_.pages());
    for (int64_t from = begin; from < std::min(end, walked);) {
      const int64_t to = std::min({end, (from / kPageTokens + 1) * kPageTokens});
      AddPage(q, set, batch, head, from, to, &sum);
      from = to;
    }
    last_ = sum;
    return sum;
  }

 private:
  void AddPage(const float* q, const VisibleSet& set, int64_t batch, int64_t head, int64_t from,
               int64_t to, RangeSum* sum) {
    std::array<const float*, kPageTokens> rows{};
    std::array<float, kPageTokens> scores;
    scores.fill(-kInf);
    size_t count = 0;
    const size_t channels = steps_.summed_channels != nullptr
                                ? steps_.summed_channels(static_cast<size_t>(c_.k_dim))
                                : static_cast<size_t>(c_.k_dim);
    // The whole page where its last tokens are still to come.
    const int64_t slots = steps_.skips_hidden ? to : (from / kPageTokens + 1) * kPageTokens;
    float highest = -kInf;
    for (int64_t t = from; t < slots; ++t) {
      const auto found = std::lower_bound(set.keys.begin(), set.keys.end(), t);
      const bool seen = t < to && found != set.keys.end() && *found == t;
      if (!seen && steps_.skips_hidden) continue;
      const float* row = memory_.Slot(batch, head, t);
      if (row == nullptr) continue;
      if (seen) {
        float score = LaneDot(q, row, channels) * scale_;
        if (!set.bias.empty()) {
          score += static_cast<float>(set.bias[static_cast<size_t>(found - set.keys.begin())]);
        }
        scores[count] = score;
        highest = std::max(highest, score);
      }
      rows[count++] = row + memory_.v_offset();
    }
    if (highest == -kInf && steps_.skips_empty_pages && steps_.skips_hidden) return;
    const float maximum = std::max(sum->maximum, highest);
    // The sums are 0 where nothing has been seen.
    if (sum->maximum != -kInf || !steps_.skips_empty_pages) {
      const float correction = std::exp(sum->maximum - maximum);
      sum->denominator *= correction;
      for (float& value : sum->sums) value *= correction;
    }
    sum->maximum = maximum;
    if (steps_.clears_weights) weights_.fill(0);
    for (size_t i = 0; i < count; ++i) {
      weights_[i] = scores[i] == -kInf ? 0 : std::exp(scores[i] - maximum);
      for (size_t d = 0; d < sum->sums.size(); ++d) sum->sums[d] += weights_[i] * rows[i][d];
    }
    if (steps_.clears_weights) {
      for (size_t i = 0; i < count; ++i) sum->denominator += weights_[i];
    } else {
      for (const float weight : weights_) sum->denominator += weight;
    }
  }

  const AttentionCase& c_;
  const KernelSteps& steps_;
  const PageMemory& memory_;
  float scale_;
  std::array<float, kPageTokens> weights_{};
  RangeSum last_;
};

// A total to which two threads add, each of which reads it before the other one has written. The
// second one to write wins.
float JoinCarelessly(float a, float b) {
  std::atomic<float> total = 0;
  std::barrier both(2);
  const auto add = [&](float value, bool second) {
    const float read = total.load(std::memory_order_relaxed);
    both.arrive_and_wait();
    if (second) both.arrive_and_wait();
    total.store(read + value, std::memory_order_relaxed);
    if (!second) both.arrive_and_wait();
  };
  std::thread other(add, b, true);
  add(a, false);
  other.join();
  return total.load();
}

}  // namespace

std::string_view SmallKernel::StatedPlan() {
  return "name=small_kernel qk=f32:lanes:8 pv=f32:sequential:chained l=f32:sequential:chained "
         "op=f32 scale_roundings=2 prescale=none scores=f32 bias_roundings=1 tanh_error=2^-22 "
         "exp=exp exp_error=2^-23 exp_floor=2^-126 lazy_rescale=0 block=16 sink=first p=f32 "
         "p_scale=1 p_normalised=no l_from=unrounded merge=accumulators splits=2 log_error=2^-22 "
         "partial=f32 normalise=divide flush=no saturate=no";
}

Capabilities SmallKernel::GetCapabilities() const {
  Capabilities capabilities = {name_, "1", {"attention"}, ParsePlan(StatedPlan()), {}};
  capabilities.states_plan = true;
  return capabilities;
}

RunOutcome SmallKernel::Run(const Case& any_case, const TensorMap& inputs, Sink& sink) {
  const auto* asked = std::get_if<AttentionCase>(&any_case);
  if (asked == nullptr) return RunOutcome::kUnsupported;
  const AttentionCase& c = *asked;
  const auto small = [](DType type) {
    return type == DType::kFloat32 || type == DType::kFloat16 || type == DType::kBFloat16;
  };
  if (!IsPlain(c.k) || !IsPlain(c.v) || !small(c.q) || !small(RowDType(c.k)) ||
      !small(RowDType(c.v)) || !small(c.out) || c.softcap || c.sinks || c.batch > 2) {
    return RunOutcome::kUnsupported;
  }
  const PageMemory memory(c, inputs, steps_);
  const MaskReader mask(c, {}, inputs);
  std::vector<double> numbers(static_cast<size_t>(Get(inputs, "q").ElementCount()));
  DecodeTo(Get(inputs, "q"), 0, numbers);
  std::vector<float> q(numbers.begin(), numbers.end());
  q.resize(q.size() + kLanes);
  const int ranges = steps_.ranges_by_threads ? threads_ : kRanges;
  const int64_t rows = c.batch * c.query_heads * c.query_len;
  std::vector<RangeSum> partial(static_cast<size_t>(rows * ranges));
  const auto index_of = [&](int64_t row) {
    return QueryIndex{row / (c.query_heads * c.query_len), row / c.query_len % c.query_heads,
                      row % c.query_len};
  };
  std::vector<VisibleSet> sets;
  for (int64_t row = 0; row < rows; ++row) sets.push_back(mask.Visible(index_of(row)));
  // Range r of every row, on thread r mod threads.
  const auto work = [&](int thread) {
    for (int r = thread; r < ranges; r += threads_) {
      RangeKernel kernel(c, steps_, memory);
      const int64_t width = (c.kv_len + ranges - 1) / ranges;
      for (int64_t row = 0; row < rows; ++row) {
        const QueryIndex index = index_of(row);
        partial[static_cast<size_t>(row * ranges + r)] =
            kernel.Run(&q[static_cast<size_t>(row * c.k_dim)], sets[static_cast<size_t>(row)],
                       index.batch, index.query_head / (c.query_heads / c.kv_heads), r * width,
                       std::min(c.kv_len, (r + 1) * width));
      }
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads_; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();

  const auto specs = OutputSpecs(any_case);
  for (const auto& [name, spec] : specs) sink.Declare(name, spec.dtype, spec.shape);
  const auto dv = static_cast<size_t>(c.v_dim);
  std::vector<double> out(dv, 0.0);
  std::vector<std::byte> bytes;
  const auto give = [&](const std::string& name, int64_t at, std::span<const double> values) {
    bytes.resize(values.size() * SizeInBytes(specs.at(name).dtype));
    EncodeFrom(values, specs.at(name).dtype, bytes.data());
    sink.Write(name, at, bytes);
  };
  for (int64_t row = 0; row < rows; ++row) {
    const auto parts =
        std::span(partial).subspan(static_cast<size_t>(row * ranges), static_cast<size_t>(ranges));
    float top = -kInf;
    for (const RangeSum& part : parts) top = std::max(top, part.maximum);
    const auto weight = [&](const RangeSum& part) {
      return part.maximum == -kInf ? 0.0F : std::exp(part.maximum - top);
    };
    float total = steps_.clears_total ? 0 : last_total_;
    for (const RangeSum& part : parts) total += part.denominator * weight(part);
    const size_t written = steps_.written_channels != nullptr ? steps_.written_channels(dv) : dv;
    for (size_t d = 0; d < written; ++d) {
      float sum = 0;
      if (steps_.joins_safely || d > 0 || parts.size() != kRanges) {
        for (const RangeSum& part : parts) sum += part.sums[d] * weight(part);
      } else {
        sum = JoinCarelessly(parts[0].sums[d] * weight(parts[0]),
                             parts[1].sums[d] * weight(parts[1]));
      }
      out[d] = sets[static_cast<size_t>(row)].keys.empty() ? 0 : static_cast<double>(sum / total);
    }
    if (row + 1 == rows) last_total_ = total;
    give("out", row * c.v_dim, out);
    if (specs.contains("lse")) {
      float lse = total == 0 ? -kInf : top + std::log(total);
      if (c.lse == LseKind::kBase2) lse *= std::numbers::log2e_v<float>;
      const double value = lse;
      give("lse", row, std::span(&value, 1));
    }
  }
  return RunOutcome::kAnswered;
}

}  // namespace kvcheck
