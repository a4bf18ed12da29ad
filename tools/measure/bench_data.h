// The rows that formats are measured on: drawn from N(0, 1), from a regime of reference/data, or
// read from a file.
//
// "normal" is N(0, 1) itself, by Marsaglia's polar method. The generator's own Gauss() is a sum of
// twelve uniform numbers, whose tails are thinner: the range of 64 of them, and with it the error
// of group-wise codes, is 1 % smaller than the figures that are published for N(0, 1).
// "outlier" is the same with one channel in 32 multiplied by 10 to 30, as keys of real models have
// them: what a scale per group loses and a rotation wins back.
// Source: Marsaglia, Bray, "A convenient method for generating normal variables", 1964.

#ifndef TOOLS_MEASURE_BENCH_DATA_H_
#define TOOLS_MEASURE_BENCH_DATA_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

inline constexpr std::string_view kNormalData = "normal";
inline constexpr std::string_view kOutlierData = "outlier";

// "normal", "outlier", and the regimes of reference/data/row_regime.h.
std::vector<std::string_view> BenchRegimes();

// N(0, 1), the same on every machine: row r depends on (seed, stream, r) alone.
std::vector<double> NormalRow(uint64_t seed, std::string_view stream, int64_t row, int64_t dim);

// Shape (rows, dim). stream: which tensor ("k"), of "normal" and "outlier"; of regimes `seed` alone
// counts.
// Errors: kIllegalCase for an unknown regime.
Tensor DrawRows(std::string_view regime, uint64_t seed, std::string_view stream, DType dtype,
                int64_t rows, int64_t dim);

// K and V of one layer: equal but for head_dim. The last axis is head_dim, that before it tokens,
// all others together count heads.
struct KvRows {
  Tensor k;
  Tensor v;
  int64_t heads = 1;
  int64_t tokens = 0;
  int64_t KDim() const { return k.shape.RowLength(); }
  int64_t VDim() const { return v.shape.RowLength(); }
};

// FILE:NAME of K, or of K and of V; one alone is both.
// Errors: kUsage, kUnreadableFile, kMissingData, kUnsupported for values that are no finite floats
// or shapes that do not fit each other.
KvRows ReadKvRows(const std::vector<std::string>& places);

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_BENCH_DATA_H_
