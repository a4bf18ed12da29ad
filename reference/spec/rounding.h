// How a value is stored in a narrower type: the direction of rounding, and what becomes of a value
// that does not fit. Plans name these; the arithmetic is in reference/numerics/convert.h. Libraries
// disagree only about overflow of the fp8 types, so the rules in use stand here by name.

#ifndef REFERENCE_SPEC_ROUNDING_H_
#define REFERENCE_SPEC_ROUNDING_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvcheck {

enum class Rounding : uint8_t {
  kNearestEven,  // IEEE 754 roundTiesToEven
  kTowardZero,   // truncation; a finite value never overflows, it becomes the largest finite one
  kNearestAway,  // IEEE 754 roundTiesToAway
};

// A finite value overflows when its rounding, in an unbounded exponent range, exceeds the largest
// finite value of the type. "Largest" below means that value with the sign of the input.
enum class Overflow : uint8_t {
  kDefault,      // the type's own rule: kInfinity where it has infinities, else kNaN where it has
                 // NaN (e4m3fn, e8m0fnu), else kSaturate (e2m1fn)
  kInfinity,     // overflow and infinity give infinity, NaN gives NaN
  kNaN,          // overflow and infinity give NaN
  kSaturate,     // overflow and infinity give the largest finite value, NaN gives NaN
  kSaturateAll,  // overflow, infinity and NaN give the largest finite value
};

struct ConvertRule {
  Rounding rounding = Rounding::kNearestEven;
  Overflow overflow = Overflow::kDefault;
  // A result that is subnormal after rounding becomes zero of the same sign.
  bool flush_subnormals = false;
  bool operator==(const ConvertRule&) const = default;
};

// MLX to_fp8 (e4m3fn): infinity and NaN become +-448 as well.
inline constexpr ConvertRule kMlxToFp8Rule = {.overflow = Overflow::kSaturateAll};
// The fp8 cache kernels of vLLM: saturate to finite, NaN stays NaN.
inline constexpr ConvertRule kVllmFp8Rule = {.overflow = Overflow::kSaturate};

// "nearest_even", "toward_zero", "nearest_away".
std::string_view Name(Rounding rounding);
std::optional<Rounding> ParseRounding(std::string_view name);
// "default", "infinity", "nan", "saturate", "saturate_all".
std::string_view Name(Overflow overflow);
std::optional<Overflow> ParseOverflow(std::string_view name);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_ROUNDING_H_
