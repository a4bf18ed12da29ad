// Who else may have stored rows as a turboquant format does, for hints: the random signs, the
// rotations and the sets of centroids that engines use, and that are taken for each other. None of
// it is in the bytes.

#ifndef REFERENCE_FORMATS_TURBOQUANT_WRITERS_H_
#define REFERENCE_FORMATS_TURBOQUANT_WRITERS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/formats/turboquant.h"
#include "reference/spec/turboquant_format.h"

namespace kvcheck {

struct SignsChange {
  std::string name;  // "signs of seed 1"
  int64_t seed = 0;
  TurboquantBasis basis = TurboquantBasis::kSignsFirst;
};

// Other signs than those of this seed. drawn: what the seed draws ("signs"). rotations: also a
// plain transform, signs on the other side of it, and none at all.
std::vector<SignsChange> OtherSigns(int64_t seed, std::string_view drawn, bool rotations);

// "the centroids of mlx_vlm".
std::string CentroidsName(TurboquantCodebook codebook);
std::vector<TurboquantCodebook> OtherCodebooks(TurboquantCodebook codebook);

// The format with other signs, with other centroids, and with both, as far as such formats exist.
// make(format, basis): its arithmetic.
template <typename Format, typename Make>
std::vector<OtherWriter> OtherTurboquantWriters(const Format& format,
                                                const std::vector<SignsChange>& signs, Make make) {
  std::vector<OtherWriter> writers;
  const auto add = [&](const SignsChange* change, const TurboquantCodebook* codebook) {
    Format other = format;
    OtherWriter writer;
    const bool is_format = change == nullptr || change->basis == TurboquantBasis::kSignsFirst;
    if (change != nullptr) writer.name = change->name;
    if (change != nullptr && is_format) {
      other.seed = change->seed;
      if constexpr (requires { other.signs; }) other.signs = {};
    }
    if (codebook != nullptr) {
      other.codebook = *codebook;
      writer.name += (writer.name.empty() ? "" : " and ") + CentroidsName(*codebook);
    }
    if (!other.Exists()) return;
    writer.text = "these bytes are " + (is_format ? other.Text() : format.Text()) +
                  (is_format ? ", with " : " but with ") + writer.name;
    writer.arithmetic =
        make(other, change == nullptr ? TurboquantBasis::kSignsFirst : change->basis);
    writers.push_back(std::move(writer));
  };
  const std::vector<TurboquantCodebook> codebooks = OtherCodebooks(format.codebook);
  for (const SignsChange& change : signs) add(&change, nullptr);
  for (const TurboquantCodebook& codebook : codebooks) add(nullptr, &codebook);
  for (const SignsChange& change : signs) {
    for (const TurboquantCodebook& codebook : codebooks) add(&change, &codebook);
  }
  return writers;
}

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_TURBOQUANT_WRITERS_H_
