#include "reference/judge/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "reference/judge/run_checks.h"
#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"
#include "reference/spec/error.h"
#include "reference/spec/tensor.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsWideInteger(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kUInt64; }

// An integer of 64 bits in two doubles, exactly: its upper half, a multiple of 2^32, and its lower
// half are doubles each, and their sum is rounded to the first of the two.
Parts SplitWideInteger(DType dtype, uint64_t code) {
  const uint64_t upper = code >> 32;
  const double high = dtype == DType::kInt64 ? static_cast<double>(static_cast<int32_t>(upper))
                                             : static_cast<double>(upper);
  const double low = static_cast<double>(code & 0xffffffff);
  const double sum = high * 0x1p32 + low;
  return {sum, (high * 0x1p32 - sum) + low};
}

// The code of value + low, which Encode cannot take as one double.
std::optional<uint64_t> CodeOfWideInteger(DType dtype, double value, double low) {
  const bool is_integer =
      value == std::trunc(value) && low == std::trunc(low) && std::fabs(low) <= 0x1p53;
  const double past = dtype == DType::kInt64 ? 0x1p63 : 0x1p64;
  const double least = dtype == DType::kInt64 ? -past : 0;
  // Where past - value and value - least are not exact, they are larger than any low.
  if (!is_integer || !(low < past - value) || !(-low <= value - least)) return std::nullopt;
  const uint64_t high_bits = value < 0         ? static_cast<uint64_t>(static_cast<int64_t>(value))
                             : value == 0x1p64 ? 0
                                               : static_cast<uint64_t>(value);
  return high_bits + static_cast<uint64_t>(static_cast<int64_t>(low));
}

std::optional<uint64_t> CodeOfValue(DType dtype, double value, double low) {
  if (IsWideInteger(dtype)) return CodeOfWideInteger(dtype, value, low);
  if (low != 0) return std::nullopt;
  if (!IsFloat(dtype)) {
    try {
      return Encode(dtype, value);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  const uint64_t code = Encode(dtype, value);
  const double back = Decode(dtype, code);
  const bool same = (std::isnan(back) && std::isnan(value)) || back == value;
  return same ? std::optional<uint64_t>(code) : std::nullopt;
}

// Whether the roundings of an error and of a bound could decide for an element: each is off by a
// few roundings of itself, and near zero by a subnormal.
bool MayBeRounding(double size, double bound) {
  return size != 0 && std::fabs(size - bound) <= 0x1p-48 * (size + bound) + 0x1p-1000;
}

// |got - expected| within a chosen tolerance, exactly.
bool IsWithinChosen(const ChosenTolerance& chosen, DType dtype, Parts got, Parts expected) {
  const double spacing = IsFloat(dtype) ? SpacingAt(dtype, expected.high) : 1;
  const double side = expected.high < 0 ? -1 : 1;
  const std::pair<double, double> products[] = {
      {chosen.absolute, 1},
      {chosen.absolute_low, 1},
      {chosen.relative, side * expected.high},
      {chosen.relative, side * expected.low},
      {chosen.ulps, spacing},
      {chosen.ulps_low, spacing},
  };
  return IsWithinProducts(got, expected, products);
}

bool AlternativeMatches(const Alternative& alternative, double got, Claim claim) {
  if (std::isnan(alternative.value)) return std::isnan(got);
  if (got != alternative.value) return false;
  return claim == Claim::kAccuracy || std::signbit(got) == std::signbit(alternative.value);
}

// Judges the elements of one tile in turn.
class TileEvaluator {
 public:
  TileEvaluator(const OutputInfo& info, const ExpectedTile& tile, const ObservedTile& observed,
                const SpecialPolicy& policy)
      : info_(info),
        tile_(tile),
        observed_(observed),
        policy_(policy),
        classifier_(info.dtype),
        is_float_(IsFloat(info.dtype)),
        largest_(is_float_ ? FloatTypeOf(info.dtype).largest_finite : 0),
        next_(tile.alternatives.begin()) {
    const size_t size = tile.value.size();
    result_.state.assign(size, ElementState::kNotJudged);
    result_.kind.assign(size, PairKind::kOrdinary);
    result_.error.assign(size, 0);
    result_.ratio.assign(size, -1);
    result_.alternatives.assign(info.reasons.size(), 0);
    result_.finer.assign(static_cast<size_t>(tile.row_count), FinerReason::kNone);
  }

  Evaluation Run() {
    const size_t length = static_cast<size_t>(info_.row_length);
    const size_t rows = static_cast<size_t>(tile_.row_count);
    if (tile_.standing.empty() && tile_.accepted.empty()) {
      JudgeElements(0, rows * length);
      return std::move(result_);
    }
    for (size_t row = 0; row < rows; ++row) {
      if (!tile_.standing.empty() && tile_.standing[row] != Standing::kJudged) continue;
      if (!tile_.accepted.empty() && tile_.accepted[row] != 0) {
        TakeAccepted(row * length, (row + 1) * length);
      } else {
        JudgeElements(row * length, (row + 1) * length);
      }
    }
    return std::move(result_);
  }

 private:
  // Elements of which most are like those of a stored tensor: known exactly, finite, without a
  // choice. Runs of such elements are judged in loops without calls; any other element in its run
  // sends the whole run to JudgeElement, which decides everything.
  void JudgeElements(size_t begin, size_t end) {
    const bool is_simple = tile_.alternatives.empty() && tile_.value_lo.empty() &&
                           tile_.reference_bound.empty() && tile_.undefined.empty() &&
                           observed_.got_low.empty() && observed_.no_code.empty();
    const bool by_bound = info_.claim == Claim::kAccuracy;
    for (size_t i = begin; i < end; i += kRun) {
      const size_t last = std::min(end, i + kRun);
      if (is_simple && (by_bound ? JudgeRunByBound(i, last) : JudgeRunByCode(i, last))) continue;
      for (size_t k = i; k < last; ++k) JudgeElement(k);
    }
  }

  // Elements of a row that was accepted: they pass, and their share of a bound is not known.
  void TakeAccepted(size_t begin, size_t end) {
    const double* got = observed_.got.data();
    const double* expected = tile_.value.data();
    for (size_t i = begin; i < end; i += kRun) {
      const size_t last = std::min(end, i + kRun);
      if (AreOrdinary(i, last)) {
        PlainRun run{i, last, 0, -1, 0};
        for (size_t k = i; k < last; ++k) {
          result_.error[k] = got[k] - expected[k];
          result_.state[k] = ElementState::kPassed;
        }
        result_.plain_runs.push_back(run);
        continue;
      }
      for (size_t k = i; k < last; ++k) {
        JudgeElement(k);
        result_.ratio[k] = -1;
      }
    }
  }

  // Whether PairClassifier calls all pairs of a run, finite as they are, ordinary: nothing beyond
  // the range of the type is expected, and zeros stand beside the same zero.
  bool AreOrdinary(size_t begin, size_t end) const {
    if (!is_float_) return true;
    const double* got = observed_.got.data();
    const double* expected = tile_.value.data();
    const double largest =
        LargestOf(0, end - begin, [&](size_t i) { return std::fabs(expected[begin + i]); });
    if (largest > largest_) return false;
    int64_t zeros = 0;
    for (size_t i = begin; i < end; ++i) zeros += got[i] == 0 || expected[i] == 0 ? 1 : 0;
    if (zeros == 0) return true;
    for (size_t i = begin; i < end; ++i) {
      const bool has_zero = got[i] == 0 || expected[i] == 0;
      if (has_zero && std::bit_cast<uint64_t>(got[i]) != std::bit_cast<uint64_t>(expected[i])) {
        return false;
      }
    }
    return true;
  }

  bool JudgeRunByBound(size_t begin, size_t end) {
    const double* got = observed_.got.data();
    const double* expected = tile_.value.data();
    const double* bound = tile_.bound.data();
    uint64_t odd = 0;
    for (size_t i = begin; i < end; ++i) {
      // The difference and what it leaves out (Knuth's TwoSum), which is to be nothing.
      const double error = got[i] - expected[i];
      const double expected_part = error - got[i];
      const double rest = (got[i] - (error - expected_part)) + (-expected[i] - expected_part);
      odd |= NotZeroBits(rest) | NotFiniteBits(error) | NotFiniteBits(bound[i]);
    }
    if (odd != 0 || !AreOrdinary(begin, end)) return false;
    if (info_.chosen && info_.chosen->RoundsItsBound()) {
      bool doubtful = false;
      for (size_t i = begin; i < end; ++i) {
        doubtful |= MayBeRounding(std::fabs(got[i] - expected[i]), bound[i]);
      }
      if (doubtful) return false;
    }
    double* errors = result_.error.data();
    double* ratios = result_.ratio.data();
    ElementState* states = result_.state.data();
    for (size_t i = begin; i < end; ++i) {
      const double error = got[i] - expected[i];
      const double size = std::fabs(error);
      errors[i] = error;
      ratios[i] = (size == 0 ? 0 : size) / (size == 0 ? 1 : bound[i]);
    }
    PlainRun run{begin, end, 0, 0, 0};
    for (size_t i = begin; i < end; ++i) {
      const bool fails = !(std::fabs(errors[i]) <= bound[i]);
      states[i] = fails ? ElementState::kFailed : ElementState::kPassed;
      run.failed += fails ? 1 : 0;
    }
    Keep(run);
    return true;
  }

  bool JudgeRunByCode(size_t begin, size_t end) {
    if (tile_.codes.empty()) return false;
    const double* got = observed_.got.data();
    const double* expected = tile_.value.data();
    uint64_t odd = 0;
    for (size_t i = begin; i < end; ++i) {
      odd |= NotFiniteBits(got[i] - expected[i]);
    }
    if (odd != 0 || !AreOrdinary(begin, end)) return false;
    double* errors = result_.error.data();
    for (size_t i = begin; i < end; ++i) errors[i] = got[i] - expected[i];
    const size_t size = SizeInBytes(info_.dtype);
    const std::byte* got_codes = observed_.bytes.data();
    const std::byte* codes = tile_.codes.data();
    const bool all_equal =
        std::memcmp(got_codes + begin * size, codes + begin * size, (end - begin) * size) == 0;
    PlainRun run{begin, end, 0, 0, 0};
    for (size_t i = begin; i < end; ++i) {
      const bool equal =
          all_equal || std::memcmp(got_codes + i * size, codes + i * size, size) == 0;
      result_.ratio[i] = equal ? 0 : kInfinity;
      result_.state[i] = equal ? ElementState::kPassed : ElementState::kFailed;
      run.failed += equal ? 0 : 1;
    }
    Keep(run);
    return true;
  }

  void Keep(PlainRun run) {
    const double* ratios = result_.ratio.data() + run.begin;
    const double* errors = result_.error.data() + run.begin;
    const size_t size = run.end - run.begin;
    run.largest_ratio = LargestOf(0, size, [&](size_t i) { return ratios[i]; });
    run.largest_error = LargestOf(0, size, [&](size_t i) { return std::fabs(errors[i]); });
    for (size_t i = run.begin; run.failed > 0 && i < run.end; ++i) {
      if (result_.state[i] == ElementState::kFailed) ConfirmFailure(i);
    }
    result_.plain_runs.push_back(run);
  }

  void WantFiner(size_t i, FinerReason reason) {
    result_.wants_finer = true;
    FinerReason& of_row = result_.finer[i / static_cast<size_t>(info_.row_length)];
    of_row = std::max(of_row, reason);
  }

  void ConfirmFailure(size_t i) {
    if (tile_.precision == Precision::kDouble) WantFiner(i, FinerReason::kConfirms);
  }

  void JudgeElement(size_t i) {
    if (!tile_.undefined.empty() && tile_.undefined[i] != 0) {
      ++result_.undefined_elements;
      return;
    }
    if (IsFree(i)) {
      result_.state[i] = ElementState::kFree;
      return;
    }
    const PairKind kind = !observed_.no_code.empty() && observed_.no_code[i] != 0
                              ? PairKind::kNoCode
                              : classifier_.Classify(observed_.got[i], tile_.value[i]);
    const bool by_bound = info_.claim == Claim::kAccuracy;
    const bool is_own_overflow = !tile_.may_overflow.empty() && !std::isfinite(observed_.got[i]) &&
                                 tile_.may_overflow[i / static_cast<size_t>(info_.row_length)] != 0;
    if (by_bound && std::isfinite(tile_.value[i]) &&
        (is_own_overflow || !std::isfinite(tile_.bound[i]))) {
      ++result_.unbounded_elements;
      return;
    }
    result_.kind[i] = kind;
    const bool passes = by_bound ? PassesByBound(i, kind) : PassesByCode(i, kind);
    if (passes) {
      result_.state[i] = ElementState::kPassed;
    } else if (AcceptAlternative(i)) {
      result_.state[i] = ElementState::kAlternative;
      result_.ratio[i] = 0;
    } else {
      result_.state[i] = ElementState::kFailed;
    }
  }

  // Moves to the alternatives of element i.
  bool IsFree(size_t i) {
    const int64_t element = static_cast<int64_t>(i);
    while (next_ != tile_.alternatives.end() && next_->element < element) ++next_;
    for (auto a = next_; a != tile_.alternatives.end() && a->element == element; ++a) {
      if (a->any) {
        CountAlternative(a->reason);
        return true;
      }
    }
    return false;
  }

  bool AcceptAlternative(size_t i) {
    if (result_.kind[i] == PairKind::kNoCode) return false;
    const int64_t element = static_cast<int64_t>(i);
    for (auto a = next_; a != tile_.alternatives.end() && a->element == element; ++a) {
      const bool matches = a->free_bits != 0
                               ? DiffersIn(i, a->free_bits)
                               : AlternativeMatches(*a, observed_.got[i], info_.claim);
      if (matches) {
        CountAlternative(a->reason);
        return true;
      }
    }
    return false;
  }

  // Whether the code differs from the expected one in these bits alone.
  bool DiffersIn(size_t i, uint64_t bits) const {
    const std::optional<uint64_t> code = ExpectedCode(info_.dtype, tile_, i);
    return code.has_value() && ((*code ^ CodeAt(info_.dtype, observed_.bytes, i)) & ~bits) == 0;
  }

  void CountAlternative(int reason) {
    const size_t index = static_cast<size_t>(reason);
    if (index >= result_.alternatives.size()) result_.alternatives.resize(index + 1);
    ++result_.alternatives[index];
  }

  bool PassesByCode(size_t i, PairKind kind) {
    SetError(i);
    const std::optional<uint64_t> code = ExpectedCode(info_.dtype, tile_, i);
    if (!code.has_value() || ReferenceBoundAt(tile_, i) > 0) {
      // The expected code is not known at this precision.
      WantFiner(i, FinerReason::kDecides);
      ++result_.unresolved;
    }
    const bool equal = code.has_value() && *code == CodeAt(info_.dtype, observed_.bytes, i) &&
                       kind != PairKind::kNoCode;
    // Bits are equal, but a NaN may be refused even so.
    const PairDecision decision = Decide(kind, info_.claim, policy_, equal);
    const bool passes =
        decision == PairDecision::kByDifference ? equal : decision == PairDecision::kPasses;
    result_.ratio[i] = passes ? 0 : kInfinity;
    if (!passes) ConfirmFailure(i);
    return passes;
  }

  bool PassesByBound(size_t i, PairKind kind) {
    const double bound = tile_.bound[i];
    bool bits_equal = false;
    if (kind == PairKind::kBothNan) {
      const std::optional<uint64_t> code = ExpectedCode(info_.dtype, tile_, i);
      bits_equal = code.has_value() && *code == CodeAt(info_.dtype, observed_.bytes, i);
    }
    SetError(i);
    const PairDecision decision = Decide(kind, info_.claim, policy_, bits_equal);
    if (decision != PairDecision::kByDifference) {
      result_.ratio[i] = decision == PairDecision::kPasses ? 0 : kInfinity;
      return decision == PairDecision::kPasses;
    }
    const double slack = ReferenceBoundAt(tile_, i);
    const double size = std::fabs(result_.error[i]);
    result_.ratio[i] = size == 0 ? 0 : size / (bound + slack);
    const Parts got = GotParts(observed_, i);
    const Parts expected = ExpectedParts(tile_, i);
    if (!std::isfinite(slack) || (bound > 0 && !(slack <= kReferenceShare * bound))) {
      WantFiner(i, FinerReason::kDecides);
      ++result_.unresolved;
    }
    const bool is_exact =
        info_.chosen && info_.chosen->RoundsItsBound() && MayBeRounding(size, bound);
    if (is_exact ? IsWithinChosen(*info_.chosen, info_.dtype, got, expected)
                 : IsWithin(got, expected, bound, 0)) {
      return true;
    }
    if (slack > 0 && IsWithin(got, expected, bound, slack)) {
      WantFiner(i, FinerReason::kDecides);
      ++result_.on_reference_bound;
      return true;
    }
    ConfirmFailure(i);
    return false;
  }

  void SetError(size_t i) {
    result_.error[i] = ErrorOf(GotParts(observed_, i), ExpectedParts(tile_, i));
  }

  const OutputInfo& info_;
  const ExpectedTile& tile_;
  const ObservedTile& observed_;
  const SpecialPolicy& policy_;
  const PairClassifier classifier_;
  const bool is_float_;
  const double largest_;  // finite value of a float type
  std::vector<Alternative>::const_iterator next_;
  Evaluation result_;
};

}  // namespace

uint64_t CodeAt(DType dtype, const std::vector<std::byte>& bytes, size_t element) {
  const size_t size = SizeInBytes(dtype);
  const std::byte* from = bytes.data() + element * size;
  const auto load = [&](auto code) {
    std::memcpy(&code, from, sizeof(code));
    return static_cast<uint64_t>(code);
  };
  switch (size) {
    case 1:
      return load(uint8_t{});
    case 2:
      return load(uint16_t{});
    case 4:
      return load(uint32_t{});
    default:
      return load(uint64_t{});
  }
}

std::string CodeText(DType dtype, uint64_t code) {
  if (dtype == DType::kInt64) return fmt::format("{}", static_cast<int64_t>(code));
  if (dtype == DType::kUInt64) return fmt::format("{}", code);
  // Words of packed codes, of which hexadecimal digits show the fields.
  if (dtype == DType::kUInt32) return fmt::format("{} ({:#010x})", code, code);
  if (!IsFloat(dtype)) return fmt::format("{}", Decode(dtype, code));
  return fmt::format("{} ({:#0{}x})", Decode(dtype, code), code, 2 * SizeInBytes(dtype) + 2);
}

std::optional<uint64_t> ExpectedCode(DType dtype, const ExpectedTile& tile, size_t element) {
  if (!tile.codes.empty()) return CodeAt(dtype, tile.codes, element);
  return CodeOfValue(dtype, tile.value[element],
                     tile.value_lo.empty() ? 0 : tile.value_lo[element]);
}

Parts ExpectedParts(const ExpectedTile& tile, size_t element) {
  return {tile.value[element], tile.value_lo.empty() ? 0 : tile.value_lo[element]};
}

Parts GotParts(const ObservedTile& observed, size_t element) {
  return {observed.got[element], observed.got_low.empty() ? 0 : observed.got_low[element]};
}

double ReferenceBoundAt(const ExpectedTile& tile, size_t element) {
  return tile.reference_bound.empty() ? 0 : tile.reference_bound[element];
}

ObservedTile ReadObserved(const ObservedSource& source, const OutputInfo& info, int64_t first_row,
                          int64_t row_count) {
  const size_t elements = static_cast<size_t>(row_count * info.row_length);
  ObservedTile observed;
  Tensor tensor;
  tensor.dtype = info.dtype;
  tensor.bytes.resize(elements * SizeInBytes(info.dtype));
  source.Read(info.name, first_row * info.row_length, tensor.bytes);
  observed.got.resize(elements);
  if (info.dtype == DType::kFloat4E2M1FN || info.dtype == DType::kBool) {
    // DecodeTo refuses such a byte as damage; here it is a fault of the implementation.
    const int largest = info.dtype == DType::kBool ? 1 : 0x0f;
    observed.no_code.resize(elements);
    for (size_t i = 0; i < elements; ++i) {
      const int byte = std::to_integer<int>(tensor.bytes[i]);
      observed.no_code[i] = byte > largest ? 1 : 0;
      observed.got[i] = byte > largest ? std::numeric_limits<double>::quiet_NaN()
                                       : Decode(info.dtype, static_cast<uint64_t>(byte));
    }
  } else if (IsWideInteger(info.dtype)) {
    observed.got_low.resize(elements);
    for (size_t i = 0; i < elements; ++i) {
      const Parts parts = SplitWideInteger(info.dtype, CodeAt(info.dtype, tensor.bytes, i));
      observed.got[i] = parts.high;
      observed.got_low[i] = parts.low;
    }
  } else {
    DecodeTo(tensor, 0, observed.got);
  }
  observed.bytes = std::move(tensor.bytes);
  return observed;
}

void TakeGiven(const ObservedTile& observed, ExpectedTile* tile) {
  if (tile->given) tile->given(observed.got, tile);
}

void CheckTile(const OutputInfo& info, const ExpectedTile& tile) {
  const size_t rows = static_cast<size_t>(tile.row_count);
  const size_t elements = rows * static_cast<size_t>(info.row_length);
  const auto fits = [](size_t size, size_t wanted) { return size == 0 || size == wanted; };
  KVCHECK_CHECK(tile.row_count >= 0 && tile.first_row >= 0, "a tile of negative rows");
  KVCHECK_CHECK(tile.value.size() == elements, "a tile's values do not fill its rows");
  KVCHECK_CHECK(info.claim == Claim::kConformance || tile.bound.size() == elements,
                "a tile without a bound per element");
  KVCHECK_CHECK(fits(tile.value_lo.size(), elements) &&
                    fits(tile.reference_bound.size(), elements) &&
                    fits(tile.mass.size(), elements) && fits(tile.least_fault.size(), elements) &&
                    fits(tile.codes.size(), elements * SizeInBytes(info.dtype)) &&
                    fits(tile.undefined.size(), elements) && fits(tile.standing.size(), rows) &&
                    fits(tile.standing_reason.size(), rows) && fits(tile.group.size(), rows) &&
                    fits(tile.sensitivity.size(), rows),
                "a part of a tile has another size than its rows");
}

Evaluation Evaluate(const OutputInfo& info, const ExpectedTile& tile, const ObservedTile& observed,
                    const SpecialPolicy& policy) {
  return TileEvaluator(info, tile, observed, policy).Run();
}

}  // namespace kvcheck
