// The basis in which a format stores rows: blocks of channels, each multiplied by signs s and by a
// normalized Hadamard matrix, R = H diag(s) / sqrt(N) with R R^T = I. Beside it every channel is
// stored as it is.

#ifndef REFERENCE_FORMATS_STORED_BASIS_H_
#define REFERENCE_FORMATS_STORED_BASIS_H_

#include <cstddef>
#include <span>
#include <vector>

namespace kvcheck {

// Channels that are rotated together. Coordinate i of the block takes the place of channels[i].
struct RotatedBlock {
  std::vector<size_t> channels;  // ascending; as many as a power of two
  std::vector<float> signs;      // +1 or -1
};

struct StoredBasis {
  std::vector<RotatedBlock> blocks;  // empty: rows are not rotated

  bool Rotates() const { return !blocks.empty(); }
  // Channels of a block, the same of all. Precondition: Rotates().
  size_t BlockSize() const { return blocks.front().channels.size(); }
  // R row and R^T row in place, each element within 2^-48 of the sum of absolute values of its
  // block over sqrt(N): 9 levels of sums at most, and three products, in double.
  void Rotate(std::span<double> row) const;
  void RotateBack(std::span<double> row) const;
};

// `count` blocks of `size` consecutive channels.
StoredBasis ConsecutiveBlocks(size_t count, size_t size, std::span<const float> signs);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_STORED_BASIS_H_
