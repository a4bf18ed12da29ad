#include "reference/judge/tensor_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>

#include "reference/judge/evaluate.h"
#include "reference/numerics/ulp.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"

namespace kvcheck {
namespace {

constexpr int64_t kTileElements = int64_t{1} << 16;
// Longer rows are taken element by element, so that a tile stays small.
constexpr int64_t kLongestRow = kTileElements;

// An integer as the nearest double and what it leaves out.
std::pair<double, double> InTwo(int64_t value) {
  const double high = static_cast<double>(value);
  // 2^63 is no int64; unsigned arithmetic takes it.
  const uint64_t rest = static_cast<uint64_t>(value) - static_cast<uint64_t>(high);
  return {high, static_cast<double>(static_cast<int64_t>(rest))};
}

std::optional<ChosenTolerance> ChosenBy(const ToleranceRule& rule) {
  ChosenTolerance chosen;
  if (const auto* ulp = std::get_if<UlpRule>(&rule)) {
    std::tie(chosen.ulps, chosen.ulps_low) = InTwo(ulp->ulps);
    return chosen;
  }
  const auto* sum = std::get_if<AbsRelRule>(&rule);
  if (sum == nullptr) return std::nullopt;
  chosen.absolute = sum->absolute;
  chosen.absolute_low = sum->absolute_low;
  chosen.relative = sum->relative;
  return chosen;
}

OutputInfo InfoOf(const NamedRule& named, const OutputInfo& stored) {
  if (std::holds_alternative<CodecRule>(named.rule) ||
      std::holds_alternative<DerivedRule>(named.rule)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the rule '{}' needs more than two tensors: the rows that a format "
                            "stores, or a case",
                            Print(named.rule)),
                named.name);
  }
  OutputInfo info;
  info.name = named.name;
  info.dtype = stored.dtype;
  info.shape = stored.shape;
  const bool exact = std::holds_alternative<ExactRule>(named.rule);
  info.claim = exact ? Claim::kConformance : Claim::kAccuracy;
  info.rule = exact ? "bytes equal" : Print(named.rule);
  info.chosen = ChosenBy(named.rule);
  const int64_t length = info.shape.RowLength();
  info.row_length = length > kLongestRow || length == 0 ? 1 : length;
  return info;
}

// A byte that is no code is a fault of an implementation when it is observed; expected, it leaves
// nothing to compare with.
void CheckCodes(const OutputInfo& info, int64_t first, const ObservedTile& stored) {
  const auto found = std::find(stored.no_code.begin(), stored.no_code.end(), 1);
  if (found == stored.no_code.end()) return;
  const int64_t at = found - stored.no_code.begin();
  throw Error(
      ErrorCode::kIllegalCase,
      fmt::format("the expected value at {} is the byte {:#04x}, which is no {} code; the "
                  "tensor is damaged or of another type",
                  ElementName(info.shape, first + at),
                  CodeAt(info.dtype, stored.bytes, static_cast<size_t>(at)), Name(info.dtype)),
      info.name);
}

std::unique_ptr<MemorySink> SinkOf(std::map<std::string, RuledTensor>* tensors) {
  TensorMap map;
  for (auto& [name, ruled] : *tensors) {
    KVCHECK_CHECK(
        static_cast<size_t>(ruled.tensor.ElementCount()) * SizeInBytes(ruled.tensor.dtype) ==
            ruled.tensor.bytes.size(),
        "a tensor whose bytes do not fill its shape");
    map[name] = std::move(ruled.tensor);
  }
  return std::make_unique<MemorySink>(std::move(map));
}

}  // namespace

std::vector<double> RuleBounds(const ToleranceRule& rule, DType dtype,
                               const std::vector<double>& wants) {
  std::vector<double> bounds(wants.size());
  if (const auto* ulp = std::get_if<UlpRule>(&rule)) {
    const double ulps = static_cast<double>(ulp->ulps);
    if (!IsFloat(dtype)) {
      std::fill(bounds.begin(), bounds.end(), ulps);
      return bounds;
    }
    const TypeSpacing spacing(dtype);
    for (size_t i = 0; i < wants.size(); ++i) {
      bounds[i] = std::isfinite(wants[i]) ? ulps * spacing.At(wants[i]) : 0;
    }
    return bounds;
  }
  const auto& sum = std::get<AbsRelRule>(rule);
  for (size_t i = 0; i < wants.size(); ++i) {
    const double size = std::fabs(wants[i]);
    // A product that is the whole bound is rounded once without an fma.
    const double bound = sum.absolute == 0   ? sum.relative * size
                         : sum.relative == 0 ? sum.absolute
                                             : std::fma(sum.relative, size, sum.absolute);
    bounds[i] = std::isfinite(size) ? bound : 0;
  }
  return bounds;
}

RuledTensorSource::RuledTensorSource(const ObservedSource& expected,
                                     const std::vector<NamedRule>& rules)
    : expected_(expected) {
  for (const NamedRule& named : rules) Add(named);
}

RuledTensorSource::RuledTensorSource(std::map<std::string, RuledTensor> tensors)
    : owned_(SinkOf(&tensors)), expected_(*owned_) {
  for (const auto& [name, ruled] : tensors) Add({name, ruled.rule});
}

void RuledTensorSource::Add(const NamedRule& named) {
  const OutputInfo* stored = expected_.Find(named.name);
  if (stored == nullptr) {
    throw Error(ErrorCode::kMissingData,
                fmt::format("there is no expected tensor '{}'; present: {}", named.name,
                            fmt::join(expected_.Names(), ", ")));
  }
  OutputInfo info = InfoOf(named, *stored);
  const int64_t rows = info.shape.ElementCount() / info.row_length;
  const int64_t rows_per_tile = std::max<int64_t>(1, kTileElements / info.row_length);
  const int output = static_cast<int>(outputs_.size());
  for (int64_t row = 0; row < rows; row += rows_per_tile) {
    tiles_.push_back({output, row, std::min(rows_per_tile, rows - row)});
  }
  outputs_.push_back(std::move(info));
  rules_.push_back(named.rule);
}

std::vector<ExpectedTile> RuledTensorSource::Tiles(int64_t index, const TileRequest&) const {
  const TileRange& range = tiles_[static_cast<size_t>(index)];
  const OutputInfo& info = outputs_[static_cast<size_t>(range.output)];
  const ToleranceRule& rule = rules_[static_cast<size_t>(range.output)];
  ObservedTile stored = ReadObserved(expected_, info, range.first_row, range.row_count);
  CheckCodes(info, range.first_row * info.row_length, stored);
  ExpectedTile tile;
  tile.output = range.output;
  tile.first_row = range.first_row;
  tile.row_count = range.row_count;
  tile.value = std::move(stored.got);
  tile.value_lo = std::move(stored.got_low);
  tile.codes = std::move(stored.bytes);
  if (info.claim == Claim::kAccuracy) tile.bound = RuleBounds(rule, info.dtype, tile.value);
  std::vector<ExpectedTile> tiles;  // an initializer list would copy the tile
  tiles.push_back(std::move(tile));
  return tiles;
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
