// Names of enumerators in texts: one table per enum serves printing and parsing.

#ifndef REFERENCE_SPEC_ENUM_TEXT_H_
#define REFERENCE_SPEC_ENUM_TEXT_H_

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"

namespace kvcheck {

template <typename E, size_t N>
using EnumNames = std::array<std::pair<E, std::string_view>, N>;

template <typename E, size_t N>
std::string_view NameIn(const EnumNames<E, N>& names, E value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  KVCHECK_CHECK(false, "enumerator without a name");
}

// Errors: kParse listing the names.
template <typename E, size_t N>
E ParseEnum(const EnumNames<E, N>& names, Piece piece) {
  std::string known;
  for (const auto& [candidate, name] : names) {
    if (name == piece.text) return candidate;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  piece.Refuse("'" + std::string(piece.text) + "' is not one of " + known +
               DidYouMean(piece.text, known));
}

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_ENUM_TEXT_H_
