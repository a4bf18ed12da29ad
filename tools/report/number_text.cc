#include "tools/report/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

// "3.1e-02" as "3.1e-2".
std::string ShortExponent(std::string text) {
  const size_t e = text.find('e');
  if (e == std::string::npos) return text;
  size_t digit = e + 2;
  if (text[e + 1] == '+') {
    text.erase(e + 1, 1);
    digit = e + 1;
  }
  while (text[digit] == '0' && digit + 1 < text.size()) text.erase(digit, 1);
  return text;
}

std::string NotFinite(double value) {
  if (std::isnan(value)) return "nan";
  return value < 0 ? "-inf" : "inf";
}

}  // namespace

std::string ErrorText(double value) {
  if (!std::isfinite(value)) return NotFinite(value);
  if (value == 0) return "0";
  return ShortExponent(fmt::format("{:.1e}", value));
}

std::string RatioText(double value) {
  if (!std::isfinite(value)) return NotFinite(value);
  if (value == 0 || value == 1) return fmt::format("{:.0f}", value);
  // Close to 1 the digits that tell on which side it lies matter most.
  for (int digits = 3; digits <= 16; ++digits) {
    std::string text = ShortExponent(fmt::format("{:.{}g}", value, digits));
    if (std::strtod(text.c_str(), nullptr) != 1) return text;
  }
  return value > 1 ? "1 + 2^-52" : "1 - 2^-53";
}

std::string PercentText(double share) {
  if (!std::isfinite(share)) return NotFinite(share);
  const double percent = 100 * share;
  if (percent == 0) return "0 %";
  if (percent < 0.1) return "< 0.1 %";
  if (percent < 9.95) return fmt::format("{:.1f} %", percent);
  return fmt::format("{:.0f} %", percent);
}

std::string ValueText(double value) {
  if (!std::isfinite(value)) return NotFinite(value);
  return ShortExponent(fmt::format("{}", value));
}

std::string Plural(long long count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string ShellWord(std::string_view word) {
  constexpr std::string_view kHarmless =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-#";
  if (!word.empty() && word.find_first_not_of(kHarmless) == std::string_view::npos &&
      word.front() != '#') {
    return std::string(word);
  }
  if (NameText(word) != word) {
    std::string quoted = "$'";
    for (std::string_view rest = word; !rest.empty();) {
      const Utf8Character character = DecodeUtf8(rest);
      const auto length = static_cast<size_t>(std::max(1, character.length));
      const bool named = character.length == 0 || IsUnseen(character.code);
      for (const char c : rest.substr(0, length)) {
        if (c == '\'' || c == '\\') quoted += '\\';
        quoted +=
            named ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
      }
      rest.remove_prefix(length);
    }
    return quoted + "'";
  }
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace kvcheck
