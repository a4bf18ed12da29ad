#include "reference/spec/rounding.h"

#include <array>

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, 3> kRoundings = {"nearest_even", "toward_zero",
                                                        "nearest_away"};
constexpr std::array<std::string_view, 5> kOverflows = {"default", "infinity", "nan", "saturate",
                                                        "saturate_all"};

template <typename Enum, size_t kCount>
std::optional<Enum> Parse(const std::array<std::string_view, kCount>& names,
                          std::string_view name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view Name(Rounding rounding) { return kRoundings[static_cast<size_t>(rounding)]; }
std::string_view Name(Overflow overflow) { return kOverflows[static_cast<size_t>(overflow)]; }
std::optional<Rounding> ParseRounding(std::string_view name) {
  return Parse<Rounding>(kRoundings, name);
}
std::optional<Overflow> ParseOverflow(std::string_view name) {
  return Parse<Overflow>(kOverflows, name);
}

}  // namespace kvcheck
