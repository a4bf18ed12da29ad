// The loop of linear.h, compiled once per instruction set: KVCHECK_PRODUCT names the function.
// Nothing is contracted, and each output's sum goes from the first input to the last, so every
// build gives the same bits.

#include <cstdint>

namespace kvcheck::inl {

// Rows at once, whose accumulators stay in registers.
inline constexpr int64_t kProductRows = 4;
inline constexpr int64_t kProductColumns = 8;

// y[r][o] = sum_i x[r][i] w[i][o] of some rows and outputs.
template <int64_t kRows, int64_t kColumns>
static inline void ProductTile(const double* x, int64_t in, const double* w, int64_t out,
                               double* y) {
  double sums[kRows][kColumns] = {};
  for (int64_t i = 0; i < in; ++i) {
    const double* weights = w + i * out;
    for (int64_t r = 0; r < kRows; ++r) {
      const double value = x[r * in + i];
      for (int64_t o = 0; o < kColumns; ++o) sums[r][o] += value * weights[o];
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t o = 0; o < kColumns; ++o) y[r * out + o] = sums[r][o];
  }
}

// One column of tiles: the weights that it reads stay in L1 for all rows.
template <int64_t kColumns>
static inline void ProductColumns(const double* x, int64_t rows, int64_t in, const double* w,
                                  int64_t out, double* y) {
  int64_t r = 0;
  for (; r + kProductRows <= rows; r += kProductRows) {
    ProductTile<kProductRows, kColumns>(x + r * in, in, w, out, y + r * out);
  }
  for (; r < rows; ++r) ProductTile<1, kColumns>(x + r * in, in, w, out, y + r * out);
}

}  // namespace kvcheck::inl

namespace kvcheck {

void KVCHECK_PRODUCT(const double* x, int64_t rows, int64_t in, const double* w, int64_t out,
                     double* y) {
  int64_t o = 0;
  for (; o + inl::kProductColumns <= out; o += inl::kProductColumns) {
    inl::ProductColumns<inl::kProductColumns>(x, rows, in, w + o, out, y + o);
  }
  for (; o < out; ++o) inl::ProductColumns<1>(x, rows, in, w + o, out, y + o);
}

}  // namespace kvcheck
