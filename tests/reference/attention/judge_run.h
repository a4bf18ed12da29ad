// An implementation's answer held against the reference, element by element, with the judge's rule
// |got - value| <= bound + reference_bound and nothing else: what the tests of this folder count.

#ifndef TESTS_REFERENCE_ATTENTION_JUDGE_RUN_H_
#define TESTS_REFERENCE_ATTENTION_JUDGE_RUN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "reference/attention/attention_source.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/formats/generate_inputs.h"
#include "reference/numerics/convert.h"
#include "reference/spec/case.h"
#include "reference/spec/implementation.h"

namespace kvcheck {

struct JudgedRun {
  int64_t judged = 0;   // elements compared
  int64_t excused = 0;  // elements of rows that are not judged
  int64_t violations = 0;
  int64_t alternatives = 0;  // elements accepted as an alternative
  double largest_ratio = 0;  // max |got - value| / (bound + reference_bound)
  std::string first;         // the first violation

  void Add(const JudgedRun& other) {
    judged += other.judged, excused += other.excused, violations += other.violations;
    alternatives += other.alternatives;
    largest_ratio = std::max(largest_ratio, other.largest_ratio);
    if (first.empty()) first = other.first;
  }
};

inline AttentionCase CaseOf(const std::string& text) {
  return std::get<AttentionCase>(ParseCase(text));
}

inline std::vector<double> Decoded(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

inline TensorMap Answer(Implementation* kernel, const AttentionCase& c, const TensorMap& inputs) {
  MemorySink sink;
  kernel->Run(Case(c), inputs, sink);
  return sink.tensors();
}

inline JudgedRun JudgeRun(const ExpectedSource& source, const TensorMap& answer,
                          const TileRequest& request = {}) {
  JudgedRun run;
  std::vector<std::vector<double>> got;
  for (const OutputInfo& info : source.Outputs()) got.push_back(Decoded(Get(answer, info.name)));
  for (int64_t index = 0; index < source.TileCount(); ++index) {
    for (ExpectedTile& tile : source.Tiles(index, request)) {
      const OutputInfo& info = source.Outputs()[static_cast<size_t>(tile.output)];
      const auto length = static_cast<size_t>(info.row_length);
      if (tile.given) {
        const auto& all = got[static_cast<size_t>(tile.output)];
        tile.given(
            std::span(all).subspan(static_cast<size_t>(tile.first_row) * length, tile.value.size()),
            &tile);
      }
      for (size_t at = 0; at < tile.value.size(); ++at) {
        const bool undefined = !tile.undefined.empty() && tile.undefined[at] != 0;
        if (undefined || tile.standing[at / length] != Standing::kJudged) {
          ++run.excused;
          continue;
        }
        const size_t element = static_cast<size_t>(tile.first_row) * length + at;
        const double value = got[static_cast<size_t>(tile.output)][element];
        if (!tile.may_overflow.empty() && tile.may_overflow[at / length] != 0 &&
            !std::isfinite(value)) {
          ++run.excused;
          continue;
        }
        ++run.judged;
        if (std::isnan(tile.value[at]) && std::isnan(value)) continue;
        if (std::isinf(value) && value == tile.value[at]) continue;
        const double error = std::fabs((value - tile.value[at]) - tile.value_lo[at]);
        const double bound = tile.bound[at] + tile.reference_bound[at];
        if (error <= bound) {
          if (error > 0) run.largest_ratio = std::max(run.largest_ratio, error / bound);
          continue;
        }
        const bool allowed = std::any_of(
            tile.alternatives.begin(), tile.alternatives.end(), [&](const Alternative& other) {
              return other.element == static_cast<int64_t>(at) && other.value == value;
            });
        if (allowed) {
          ++run.alternatives;
          continue;
        }
        ++run.violations;
        if (error / bound > run.largest_ratio) run.largest_ratio = error / bound;
        if (run.first.empty()) {
          run.first = info.name + ElementName(info.shape, static_cast<int64_t>(element)) +
                      ": got " + std::to_string(value) + ", expected " +
                      std::to_string(tile.value[at]) + ", error / bound " +
                      std::to_string(error / bound);
        }
      }
    }
  }
  return run;
}

// declared: what the bound is computed from; actual: what the kernel does.
inline JudgedRun RunAndJudge(const AttentionCase& c, const Profile& profile, const Plan& declared,
                             const Plan& actual, const AttentionRules& rules = {}) {
  const TensorMap inputs = GenerateInputs(Case(c), profile);
  SimulatedKernel kernel(actual, profile, rules);
  const TensorMap answer = Answer(&kernel, c, inputs);
  return JudgeRun(AttentionSource(c, profile, declared, inputs), answer);
}

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_ATTENTION_JUDGE_RUN_H_
