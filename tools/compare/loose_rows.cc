#include "tools/compare/loose_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/judge/accumulate.h"
#include "reference/judge/ordered_parallel.h"
#include "reference/judge/tensor_source.h"
#include "reference/numerics/convert.h"
#include "reference/spec/tensor.h"

namespace kvcheck {
namespace {

constexpr int64_t kScannedElements = int64_t{1} << 16;

std::vector<double> ReadScanned(const TensorView& view, int64_t first, int64_t count) {
  Tensor block;
  block.dtype = view.info().dtype;
  block.bytes.resize(static_cast<size_t>(count) * SizeInBytes(block.dtype));
  view.Read(kTensorName, first, block.bytes);
  std::vector<double> values(static_cast<size_t>(count));
  DecodeTo(block, 0, values);
  return values;
}

LooseCounts CountBlock(const PairTensors& tensors, const ToleranceRule& rule, int64_t row,
                       int64_t first, int64_t count) {
  const std::vector<double> want = ReadScanned(tensors.gold(), first, count);
  const std::vector<double> got = ReadScanned(tensors.got(), first, count);
  const std::vector<double> bounds = RuleBounds(rule, tensors.gold().info().dtype, want);
  LooseCounts counts;
  for (size_t begin = 0; begin < want.size(); begin += static_cast<size_t>(row)) {
    int64_t loose = 0;
    for (size_t i = begin; i < begin + static_cast<size_t>(row); ++i) {
      const double size = std::fabs(want[i]);
      const bool is_firm =
          !std::isfinite(size) || got[i] == want[i] || bounds[i] <= kVacuousShare * size;
      loose += is_firm ? 0 : 1;
    }
    counts.loose += loose;
    counts.rows += row > 1 && 2 * loose >= row ? 1 : 0;
  }
  return counts;
}

}  // namespace

LooseCounts CountLoose(const ComparePair& pair, LockedFile& gold, LockedFile& got,
                       const PassSummary& summary, int threads) {
  LooseCounts all;
  if (summary.loose == 0 || summary.unlike_bits == 0) return all;
  const PairTensors tensors(pair, gold, got);
  const int64_t length = tensors.gold().info().shape.RowLength();
  // Longer rows are taken element by element, as the judge does.
  const int64_t row = length > kScannedElements ? 1 : length;
  const int64_t step = kScannedElements / row * row;
  OrderedParallelFor((summary.elements + step - 1) / step, threads,
                     [&](int64_t index) {
                       const int64_t first = index * step;
                       return CountBlock(tensors, pair.rule.tolerance, row, first,
                                         std::min(step, summary.elements - first));
                     },
                     [&](int64_t, const LooseCounts& counts) {
                       all.loose += counts.loose;
                       all.rows += counts.rows;
                     });
  return all;
}

bool IsWorthSaying(const LooseCounts& counts, const PassSummary& summary) {
  return counts.rows > 0 || static_cast<double>(counts.loose) >
                                kVacuousShare * static_cast<double>(summary.FinitePairs());
}

}  // namespace kvcheck
