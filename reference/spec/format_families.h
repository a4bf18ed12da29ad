// A walk over the families of a variant of formats, for what every format of it answers.

#ifndef REFERENCE_SPEC_FORMAT_FAMILIES_H_
#define REFERENCE_SPEC_FORMAT_FAMILIES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reference/spec/text.h"

namespace kvcheck {

// Calls visit with a null pointer of every family, in the order of the variant.
template <typename Format, typename Visit>
void ForEachFamily(Visit visit) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    (visit(static_cast<const std::variant_alternative_t<kIndex, Format>*>(nullptr)), ...);
  }(std::make_index_sequence<std::variant_size_v<Format>>());
}

// nullopt where the text begins like none of the families.
template <typename Format>
std::optional<Format> ParseFamilies(Piece piece, const std::vector<Piece>& parts,
                                    bool* has_row_type) {
  std::optional<Format> parsed;
  ForEachFamily<Format>([&]<typename F>(const F*) {
    if (parsed) return;
    if (const auto format = F::Parse(piece, parts, has_row_type)) parsed = *format;
  });
  return parsed;
}

// "affine:BITS:gGROUP:SCALE_TYPE, q8_0, ...".
template <typename Format>
std::string GrammarsOf() {
  std::string grammars;
  ForEachFamily<Format>([&]<typename F>(const F*) {
    grammars += (grammars.empty() ? "" : ", ") + std::string(F::Grammar());
  });
  return grammars;
}

template <typename Format>
std::vector<Format> AllOf() {
  std::vector<Format> formats;
  ForEachFamily<Format>([&]<typename F>(const F*) {
    for (const F& format : F::All()) formats.emplace_back(format);
  });
  return formats;
}

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_FORMAT_FAMILIES_H_
