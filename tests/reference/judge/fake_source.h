// An ExpectedSource made of given numbers, so that the judge is tested on values that no reference
// would produce: wrong precisions, missing bounds, chosen fault directions.

#ifndef TESTS_REFERENCE_JUDGE_FAKE_SOURCE_H_
#define TESTS_REFERENCE_JUDGE_FAKE_SOURCE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/implementation.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// One output, "out". `make` fills a tile whose output, rows, precision and sizes are set: value 0,
// bound 0, no other parts.
class FakeSource : public ExpectedSource {
 public:
  using Fill = std::function<void(ExpectedTile&, const TileRequest&)>;

  FakeSource(OutputInfo info, int64_t rows_per_tile, Fill fill)
      : infos_{std::move(info)}, rows_per_tile_(rows_per_tile), fill_(std::move(fill)) {}

  const std::vector<OutputInfo>& Outputs() const override { return infos_; }
  OutputInfo& info() { return infos_[0]; }
  int64_t rows() const { return infos_[0].shape.ElementCount() / infos_[0].row_length; }
  int64_t TileCount() const override { return (rows() + rows_per_tile_ - 1) / rows_per_tile_; }

  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override {
    ++asked_[static_cast<size_t>(request.precision)];
    ExpectedTile tile;
    tile.first_row = index * rows_per_tile_;
    tile.row_count = std::min(rows_per_tile_, rows() - tile.first_row);
    tile.precision = request.precision;
    const size_t elements = static_cast<size_t>(tile.row_count * infos_[0].row_length);
    tile.value.assign(elements, 0);
    tile.bound.assign(elements, 0);
    fill_(tile, request);
    return {tile};
  }

  // Calls so far at a precision.
  int asked(Precision precision) const { return asked_[static_cast<size_t>(precision)]; }

 private:
  std::vector<OutputInfo> infos_;
  int64_t rows_per_tile_;
  Fill fill_;
  mutable std::array<std::atomic<int>, 4> asked_{};
};

inline OutputInfo AccuracyInfo(const Shape& shape, DType dtype = DType::kFloat32) {
  OutputInfo info;
  info.name = "out";
  info.dtype = dtype;
  info.shape = shape;
  info.row_length = shape.RowLength();
  return info;
}

// A tensor of values that the type holds.
inline Tensor MakeTensor(DType dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor tensor(dtype, shape);
  EncodeFrom(values, dtype, tensor.bytes.data());
  return tensor;
}

inline MemorySink Observed(const Tensor& out) { return MemorySink(TensorMap{{"out", out}}); }

// Values in [-1, 1) on a grid of 2^-20, a function of (seed, i) alone.
inline double Hashed(uint64_t seed, uint64_t i) {
  uint64_t x = (seed * 0x9e3779b97f4a7c15u) ^ (i + 0x632be59bd9b4e019u);
  for (int round = 0; round < 3; ++round) {
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44du;
  }
  return static_cast<double>(static_cast<int64_t>(x >> 43)) * 0x1p-20 - 1;
}

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_JUDGE_FAKE_SOURCE_H_
