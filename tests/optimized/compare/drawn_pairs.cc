#include "tests/optimized/compare/drawn_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

class Drawer {
 public:
  Drawer(DType dtype, const PassRule& rule, std::mt19937_64& random)
      : dtype_(dtype), rule_(rule), random_(random), bits_(CodeBits(dtype)) {
    used_ = ~uint64_t{0} >> (64 - bits_);
  }

  uint64_t Want(PairRegime regime) {
    switch (regime) {
      case PairRegime::kAnything:
        return AnyCode();
      case PairRegime::kTiny:
        return Tiny();
      case PairRegime::kHuge:
        return Huge();
      case PairRegime::kSpecial:
        return Below(16) == 0 ? Special() : Ordinary();
      default:
        return Ordinary();
    }
  }

  uint64_t Got(PairRegime regime, uint64_t want) {
    const uint64_t got = AnyGot(regime, want);
    return JudgeRounds(Decode(dtype_, want), Decode(dtype_, got)) ? want : got;
  }

 private:
  uint64_t AnyGot(PairRegime regime, uint64_t want) {
    switch (regime) {
      case PairRegime::kEqual:
        return want;
      case PairRegime::kAnything:
        return Below(3) == 0 ? want : AnyCode();
      case PairRegime::kSpecial:
        if (Below(16) == 0) return Below(4) == 0 ? want : Special();
        if (Below(64) == 0) return NoCode();
        return Inside(want);
      case PairRegime::kInside:
        return Inside(want);
      case PairRegime::kAtBorder:
        return AtBorder(want);
      case PairRegime::kTiny:
        return Below(3) == 0 ? Tiny() : AtBorder(want);
      case PairRegime::kHuge:
        return Below(3) == 0 ? Huge() : AtBorder(want);
    }
    return want;
  }

  // Terms below 2^-1014 beside others above 2^1000: there the judge rounds
  // (reference/judge/exact_compare.h), and the pass does not.
  bool JudgeRounds(double want, double got) {
    const double least = std::min(std::fabs(want), std::fabs(got));
    const double most = std::max({std::fabs(want), std::fabs(got), Bound(want)});
    return dtype_ == DType::kFloat64 && least < 0x1p-1014 && most > 0x1p1000;
  }

  uint64_t Below(uint64_t n) { return random_() % n; }
  double Unit() { return std::ldexp(static_cast<double>(random_() >> 11), -53); }

  uint64_t AnyCode() {
    const uint64_t code = random_() & used_;
    return dtype_ == DType::kBool ? code & 1 : code;
  }

  // A value of the type at most as large as x.
  uint64_t CodeNear(double x) {
    if (std::isnan(x)) return 0;
    if (IsFloat(dtype_)) {
      const ConvertRule saturate = {Rounding::kNearestEven, Overflow::kSaturate, false};
      return Encode(dtype_, x, saturate);
    }
    if (dtype_ == DType::kBool) return x >= 1 ? 1 : 0;
    const bool is_signed = dtype_ == DType::kInt8 || dtype_ == DType::kInt16 ||
                           dtype_ == DType::kInt32 || dtype_ == DType::kInt64;
    const double low = is_signed ? -std::ldexp(1.0, bits_ - 1) : 0;
    const double past = std::ldexp(1.0, is_signed ? bits_ - 1 : bits_);
    // Integers up to 2^53 are met one by one; beyond, the last double below the end.
    const double most = bits_ > 53 ? std::nextafter(past, 0) : past - 1;
    return Encode(dtype_, std::trunc(std::clamp(x, low, most)));
  }

  uint64_t Ordinary() {
    double x = 0;
    for (int i = 0; i < 4; ++i) x += Unit() - 0.5;
    if (Below(16) == 0) x = std::ldexp(1.0, static_cast<int>(Below(6)) - 3);
    if (Below(32) == 0) x = 0;
    if (!IsFloat(dtype_)) x *= std::ldexp(1.0, static_cast<int>(Below(64)));
    return CodeNear(x);
  }

  uint64_t Tiny() {
    const uint64_t small = random_() >> (64 - Below(static_cast<uint64_t>(bits_)) - 1) & 0xfff;
    return IsFloat(dtype_) ? WithSign(small & (used_ >> 1)) & used_ : CodeNear(double(small % 5));
  }

  uint64_t Huge() {
    const double largest = IsFloat(dtype_) ? FloatTypeOf(dtype_).largest_finite : 0x1p64;
    uint64_t code = CodeNear(Below(2) == 0 ? largest : -largest);
    for (uint64_t steps = Below(4); steps > 0; --steps) code = Neighbour(code, false);
    return code;
  }

  uint64_t WithSign(uint64_t magnitude) {
    const bool is_signed = FloatTypeOf(dtype_).is_signed;
    return magnitude | (is_signed && Below(2) == 0 ? uint64_t{1} << (bits_ - 1) : 0);
  }

  uint64_t Special() {
    if (!IsFloat(dtype_)) return AnyCode();
    const uint64_t sign = WithSign(0);
    const FloatType& type = FloatTypeOf(dtype_);
    const uint64_t infinity = ((uint64_t{1} << type.exponent_bits) - 1) << type.mantissa_bits;
    const uint64_t all_ones = infinity | ((uint64_t{1} << type.mantissa_bits) - 1);
    switch (Below(4)) {
      case 0:
        return sign;
      case 1:
        return sign | all_ones;
      case 2:
        return sign | infinity;
      default:
        return sign | infinity | (all_ones & random_());
    }
  }

  uint64_t NoCode() {
    if (dtype_ == DType::kBool || dtype_ == DType::kFloat4E2M1FN) return random_() & 0xff;
    return AnyCode();
  }

  uint64_t Neighbour(uint64_t code, bool up) {
    if (IsFloat(dtype_)) return up ? NextUp(dtype_, code) : NextDown(dtype_, code);
    if (dtype_ == DType::kBool) return code ^ 1;
    return (up ? code + 1 : code - 1) & used_;
  }

  double Bound(double want) {
    switch (rule_.kind) {
      case PassRule::Kind::kExact:
        return IsFloat(dtype_) ? SpacingAt(dtype_, want) : 1;
      case PassRule::Kind::kUlp:
        return static_cast<double>(rule_.ulps) * (IsFloat(dtype_) ? SpacingAt(dtype_, want) : 1);
      case PassRule::Kind::kAbsRel:
        return std::fma(rule_.relative, std::fabs(want), rule_.absolute);
    }
    return 0;
  }

  uint64_t Inside(uint64_t want) {
    const double value = Decode(dtype_, want);
    if (!std::isfinite(value)) return want;
    const double bound = std::min(Bound(value), std::numeric_limits<double>::max());
    const uint64_t got = CodeNear(value + bound * (Unit() * 1.8 - 0.9));
    return std::fabs(Decode(dtype_, got) - value) <= bound ? got : want;
  }

  uint64_t AtBorder(uint64_t want) {
    const double value = Decode(dtype_, want);
    if (!std::isfinite(value)) return want;
    if (Below(8) == 0) return want;
    if ((dtype_ == DType::kInt64 || dtype_ == DType::kUInt64) &&
        rule_.kind == PassRule::Kind::kUlp) {
      // Exactly, beyond 2^53 as well.
      const uint64_t step = static_cast<uint64_t>(rule_.ulps) + Below(3) - 1;
      return Below(2) == 0 ? want + step : want - step;
    }
    const double bound = std::min(Bound(value), std::numeric_limits<double>::max());
    uint64_t got = CodeNear(Below(2) == 0 ? value + bound : value - bound);
    if (Below(2) == 0) got = Neighbour(got, Below(2) == 0);
    return got;
  }

  DType dtype_;
  const PassRule& rule_;
  std::mt19937_64& random_;
  int bits_;
  uint64_t used_;
};

}  // namespace

std::string Name(PairRegime regime) {
  switch (regime) {
    case PairRegime::kEqual:
      return "equal";
    case PairRegime::kInside:
      return "inside";
    case PairRegime::kAtBorder:
      return "at_border";
    case PairRegime::kSpecial:
      return "special";
    case PairRegime::kTiny:
      return "tiny";
    case PairRegime::kHuge:
      return "huge";
    case PairRegime::kAnything:
      return "anything";
  }
  return "";
}

CodePair DrawPairs(DType dtype, const PassRule& rule, PairRegime regime, size_t elements,
                   std::mt19937_64& random) {
  const size_t bytes = SizeInBytes(dtype);
  CodePair pair;
  pair.expected.resize(elements * bytes);
  pair.got.resize(elements * bytes);
  Drawer drawer(dtype, rule, random);
  for (size_t i = 0; i < elements; ++i) {
    const uint64_t want = drawer.Want(regime);
    const uint64_t got = drawer.Got(regime, want);
    std::memcpy(pair.expected.data() + i * bytes, &want, bytes);
    std::memcpy(pair.got.data() + i * bytes, &got, bytes);
  }
  return pair;
}

std::vector<PassRule> DrawnRules(DType dtype) {
  std::vector<PassRule> rules;
  for (const PassNan nan : {PassNan::kFail, PassNan::kEqual, PassNan::kEqualBits}) {
    rules.push_back({.kind = PassRule::Kind::kExact, .nan = nan});
    rules.push_back({.kind = PassRule::Kind::kUlp, .ulps = 2, .nan = nan});
  }
  const auto ulp = [&](int64_t ulps) {
    rules.push_back({.kind = PassRule::Kind::kUlp, .ulps = ulps, .nan = PassNan::kFail});
  };
  const int mantissa_bits = IsFloat(dtype) ? FloatTypeOf(dtype).mantissa_bits : 20;
  for (const int64_t few : {0, 1, 7, 100}) ulp(few);
  for (const int64_t near : {-1, 0, 1}) {
    ulp((int64_t{1} << mantissa_bits) + near);
    ulp((int64_t{1} << mantissa_bits) / 2 + near < 0 ? 0
                                                     : (int64_t{1} << mantissa_bits) / 2 + near);
  }
  ulp(int64_t{1} << 55);
  ulp(std::numeric_limits<int64_t>::max());
  const auto abs_rel = [&](double absolute, double relative) {
    rules.push_back({.kind = PassRule::Kind::kAbsRel, .absolute = absolute, .relative = relative});
  };
  for (const double absolute : {0.0, 1e-310, 1e-40, 0x1p-10, 1e-3, 3.0}) abs_rel(absolute, 0);
  for (const double relative : {1e-12, 1e-6, 0x1p-7, 1e-2, 0.1, 0.5, 1.0, 2.0, 1e300}) {
    abs_rel(0, relative);
  }
  abs_rel(1e-6, 1e-5);
  abs_rel(1e-3, 1e-2);
  abs_rel(1e-2, 0.6);
  abs_rel(std::numeric_limits<double>::max(), 0);
  return rules;
}

std::string Print(const PassRule& rule) {
  const std::string nan = fmt::format(" nan={}", static_cast<int>(rule.nan));
  switch (rule.kind) {
    case PassRule::Kind::kExact:
      return "exact" + nan;
    case PassRule::Kind::kUlp:
      return fmt::format("ulp:{}", rule.ulps) + nan;
    case PassRule::Kind::kAbsRel:
      return fmt::format("abs:{},rel:{}", rule.absolute, rule.relative) + nan;
  }
  return "";
}

}  // namespace kvcheck
