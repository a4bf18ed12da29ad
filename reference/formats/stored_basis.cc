#include "reference/formats/stored_basis.h"

#include <numeric>

#include "reference/formats/turboquant_rotation.h"

namespace kvcheck {
namespace {

template <typename Move>
void ForEachBlock(const StoredBasis& basis, std::span<double> row, Move rotate) {
  std::vector<double> values;
  for (const RotatedBlock& block : basis.blocks) {
    values.clear();
    for (const size_t channel : block.channels) values.push_back(row[channel]);
    rotate(std::span<const float>(block.signs), std::span<double>(values));
    for (size_t i = 0; i < values.size(); ++i) row[block.channels[i]] = values[i];
  }
}

}  // namespace

void StoredBasis::Rotate(std::span<double> row) const {
  ForEachBlock(*this, row, kvcheck::Rotate<double>);
}

void StoredBasis::RotateBack(std::span<double> row) const {
  ForEachBlock(*this, row, kvcheck::RotateBack<double>);
}

StoredBasis ConsecutiveBlocks(size_t count, size_t size, std::span<const float> signs) {
  StoredBasis basis;
  for (size_t b = 0; b < count; ++b) {
    RotatedBlock block = {std::vector<size_t>(size), {signs.begin(), signs.end()}};
    std::iota(block.channels.begin(), block.channels.end(), b * size);
    basis.blocks.push_back(std::move(block));
  }
  return basis;
}

}  // namespace kvcheck
