#include "tools/report/shown_text.h"

#include <fmt/format.h>

namespace kvcheck {

Utf8Character DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t k) {
    return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U;
  };
  if (text.empty()) return {};
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const int length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (length == 0 || lead > 0xf4) return {};
  char32_t code = lead & (0x7fU >> length);
  for (int k = 1; k < length; ++k) {
    const unsigned next = byte(static_cast<size_t>(k));
    if ((next & 0xc0U) != 0x80U) return {};
    code = code << 6 | (next & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (overlong || surrogate || code > 0x10ffff) return {};
  return {length, code};
}

bool IsUnseen(char32_t code) {
  // Ranges of Unicode's Cc, Cf, Zl and Zp that act on text around them.
  constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},
                 {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                 {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
  for (const auto& range : kRanges) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

std::string NameText(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    const Utf8Character character = DecodeUtf8(text);
    if (character.length == 0) {
      shown += fmt::format("\\x{:02x}", byte);
      text.remove_prefix(1);
      continue;
    }
    if (!IsUnseen(character.code)) {
      shown.append(text, 0, static_cast<size_t>(character.length));
    } else if (character.length == 1) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += fmt::format("\\u{{{:04x}}}", static_cast<uint32_t>(character.code));
    }
    text.remove_prefix(static_cast<size_t>(character.length));
  }
  return shown;
}

std::string MessageText(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string shown;
  while (true) {
    const size_t end = text.find('\n');
    shown += NameText(text.substr(0, end));
    if (end == std::string_view::npos) return shown;
    shown += "\n  | ";
    text.remove_prefix(end + 1);
  }
}

}  // namespace kvcheck
