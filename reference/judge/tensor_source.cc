#include "reference/judge/tensor_source.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"

namespace kvcheck {
namespace {

constexpr int64_t kTileElements = int64_t{1} << 16;
// Longer rows are taken element by element, so that a tile stays small.
constexpr int64_t kLongestRow = kTileElements;

// The bound of one element whose exact value is want; only for finite want.
double BoundOf(const ToleranceRule& rule, DType dtype, double want) {
  if (const auto* ulp = std::get_if<UlpRule>(&rule)) {
    const double spacing = IsFloat(dtype) ? SpacingAt(dtype, want) : 1;
    return static_cast<double>(ulp->ulps) * spacing;
  }
  if (const auto* abs_rel = std::get_if<AbsRelRule>(&rule)) {
    return std::fma(abs_rel->relative, std::fabs(want), abs_rel->absolute);
  }
  return 0;
}

OutputInfo InfoOf(const std::string& name, const RuledTensor& ruled) {
  if (std::holds_alternative<CodecRule>(ruled.rule) ||
      std::holds_alternative<DerivedRule>(ruled.rule)) {
    throw Error(ErrorCode::kUnsupported,
                "the rule '" + Print(ruled.rule) +
                    "' needs more than two tensors: stored rows of a format, or a case",
                name);
  }
  OutputInfo info;
  info.name = name;
  info.dtype = ruled.tensor.dtype;
  info.shape = ruled.tensor.shape;
  const bool exact = std::holds_alternative<ExactRule>(ruled.rule);
  info.claim = exact ? Claim::kConformance : Claim::kAccuracy;
  info.rule = exact ? "bytes equal" : Print(ruled.rule);
  const int64_t length = info.shape.RowLength();
  info.row_length = length > kLongestRow || length == 0 ? 1 : length;
  return info;
}

}  // namespace

RuledTensorSource::RuledTensorSource(std::map<std::string, RuledTensor> tensors) {
  for (auto& [name, ruled] : tensors) {
    const OutputInfo info = InfoOf(name, ruled);
    const int64_t elements = info.shape.ElementCount();
    KVCHECK_CHECK(
        static_cast<size_t>(elements) * SizeInBytes(info.dtype) == ruled.tensor.bytes.size(),
        "a tensor whose bytes do not fill its shape");
    const int64_t rows = elements / info.row_length;
    const int64_t rows_per_tile = std::max<int64_t>(1, kTileElements / info.row_length);
    const int output = static_cast<int>(outputs_.size());
    for (int64_t row = 0; row < rows; row += rows_per_tile) {
      tiles_.push_back({output, row, std::min(rows_per_tile, rows - row)});
    }
    if (info.dtype == DType::kFloat4E2M1FN || info.dtype == DType::kBool) {
      std::vector<double> values(static_cast<size_t>(elements));
      DecodeTo(ruled.tensor, 0, values);  // throws on bytes that are no codes
    }
    outputs_.push_back(info);
    tensors_.push_back(std::move(ruled));
  }
}

std::vector<ExpectedTile> RuledTensorSource::Tiles(int64_t index, const TileRequest&) const {
  const TileRange& range = tiles_[static_cast<size_t>(index)];
  const OutputInfo& info = outputs_[static_cast<size_t>(range.output)];
  const RuledTensor& ruled = tensors_[static_cast<size_t>(range.output)];
  const int64_t first = range.first_row * info.row_length;
  const size_t count = static_cast<size_t>(range.row_count * info.row_length);
  ExpectedTile tile;
  tile.output = range.output;
  tile.first_row = range.first_row;
  tile.row_count = range.row_count;
  tile.value.resize(count);
  DecodeTo(ruled.tensor, first, tile.value);
  const size_t size = SizeInBytes(info.dtype);
  const auto begin =
      ruled.tensor.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first) * size);
  tile.codes.assign(begin, begin + static_cast<std::ptrdiff_t>(count * size));
  if (info.dtype == DType::kInt64) {
    // What the nearest double leaves out; the difference of two near integers does not overflow
    // modulo 2^64.
    tile.value_lo.resize(count);
    const int64_t* wants = ruled.tensor.As<int64_t>() + first;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t high = tile.value[i] == 0x1p63
                                ? uint64_t{1} << 63
                                : static_cast<uint64_t>(static_cast<int64_t>(tile.value[i]));
      tile.value_lo[i] =
          static_cast<double>(static_cast<int64_t>(static_cast<uint64_t>(wants[i]) - high));
    }
  }
  if (info.claim == Claim::kAccuracy) {
    tile.bound.resize(count);
    for (size_t i = 0; i < count; ++i) {
      // An infinity or NaN is decided before its bound matters.
      tile.bound[i] =
          std::isfinite(tile.value[i]) ? BoundOf(ruled.rule, info.dtype, tile.value[i]) : 0;
    }
  }
  return {std::move(tile)};
}

Verdict JudgeTensors(std::map<std::string, RuledTensor> expected, const TensorMap& observed,
                     JudgeOptions options) {
  options.special = kTensorPolicy;
  const RuledTensorSource source(std::move(expected));
  return Judge(source, MemorySink(observed), options);
}

Verdict JudgeTensors(const Tensor& expected, const Tensor& observed, const ToleranceRule& rule,
                     JudgeOptions options) {
  return JudgeTensors({{"tensor", {expected, rule}}}, {{"tensor", observed}}, options);
}

}  // namespace kvcheck
