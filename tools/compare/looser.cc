#include "tools/compare/looser.h"

#include <fmt/format.h>

#include <memory>

#include "reference/formats/stored_codec_source.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

std::optional<Looseness> LoosenessOf(const ComparePair& pair, const PairTensors& tensors,
                                     int threads) {
  try {
    CodecRule codec = *pair.replaced;
    codec.codes_exact = false;  // GOT has values
    const std::unique_ptr<ExpectedSource> derived = MakeDequantisedSource(
        codec, tensors.gold(), kTensorName, kTensorName, tensors.got().info().dtype);
    return FindLooseness(*derived, 0, pair.rule.tolerance, threads);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIllegalCase) return std::nullopt;
    throw;
  }
}

}  // namespace

std::string LooserText(const ToleranceRule& rule, const std::string& output,
                       const std::string& bound, const Looseness& looser) {
  return fmt::format(
      "{} allows {:.3g} at {}{}, where {} is {:.3g}; it is looser at {} of {} elements",
      Print(rule), looser.tolerance, output, looser.coordinates, bound, looser.bound, looser.looser,
      looser.compared);
}

std::optional<std::string> LooserThanFormat(const ComparePair& pair, LockedFile& gold,
                                            LockedFile& got, int threads) {
  if (!pair.replaced || pair.part || pair.cast || pair.elements == 0 ||
      pair.standing != PairStanding::kComparable) {
    return std::nullopt;
  }
  const std::optional<Looseness> looser = LoosenessOf(pair, PairTensors(pair, gold, got), threads);
  if (!looser) return std::nullopt;
  return LooserText(pair.rule.tolerance, kTensorName,
                    fmt::format("the bound of {}", Print(ToleranceRule(*pair.replaced))), *looser) +
         fmt::format(" ({}: {})", pair.rule.where, pair.rule.reason);
}

}  // namespace kvcheck
