// What formats with a scale per vector share: the vector as their encoders take it, and what is
// expected of one for which nothing is promised.

#ifndef REFERENCE_FORMATS_VECTOR_ROWS_H_
#define REFERENCE_FORMATS_VECTOR_ROWS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/numerics/convert.h"
#include "reference/spec/dtype.h"

namespace kvcheck {

// x rounded once to the type of rows, which f32 holds.
inline std::vector<float> RowInFloats(DType row_type, std::span<const double> x) {
  std::vector<double> rounded(x.begin(), x.end());
  RoundAll(rounded, row_type);
  std::vector<float> row(x.size());
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(rounded[i]);
  return row;
}

// Every element that row r of `rows` has in the tiles may be anything: the row is not finite, or
// what is stored of it is not.
inline void ExpectNothing(size_t r, size_t rows, std::vector<ExpectedTile>* tiles) {
  for (ExpectedTile& tile : *tiles) {
    const size_t width = tile.value.size() / rows;
    for (size_t i = 0; i < width; ++i) {
      tile.alternatives.push_back({.element = static_cast<int64_t>(r * width + i),
                                   .value = 0,
                                   .any = true,
                                   .reason = kNotFiniteBlock});
    }
  }
}

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_VECTOR_ROWS_H_
