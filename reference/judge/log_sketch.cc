#include "reference/judge/log_sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kvcheck {
namespace {

// The exponent field and five bits of the mantissa: 32 cells per octave.
constexpr int kShift = 52 - 5;

int64_t CellOf(double x) { return static_cast<int64_t>(std::bit_cast<uint64_t>(x) >> kShift); }

double UpperEdge(int64_t cell) {
  return std::bit_cast<double>(static_cast<uint64_t>(cell + 1) << kShift);
}

}  // namespace

void LogSketch::Grow(int64_t cell) {
  if (cells_.empty()) {
    first_cell_ = cell;
    cells_.resize(1);
    return;
  }
  if (cell < first_cell_) {
    cells_.insert(cells_.begin(), static_cast<size_t>(first_cell_ - cell), 0);
    first_cell_ = cell;
  } else if (cell >= first_cell_ + static_cast<int64_t>(cells_.size())) {
    cells_.resize(static_cast<size_t>(cell - first_cell_ + 1));
  }
}

void LogSketch::AddAll(std::span<const double> numbers) {
  // Counted in registers: the cells are what each number has to touch.
  int64_t zeros = 0;
  int64_t* cells = cells_.data();
  uint64_t size = cells_.size();
  double largest = largest_;
  for (const double x : numbers) {
    if (x == 0) {
      ++zeros;
    } else if (x <= std::numeric_limits<double>::max()) {
      largest = std::max(largest, x);
      const int64_t cell = CellOf(x);
      if (static_cast<uint64_t>(cell - first_cell_) >= size) {
        Grow(cell);
        cells = cells_.data();
        size = cells_.size();
      }
      ++cells[cell - first_cell_];
    } else {
      ++infinities_;
      largest = std::numeric_limits<double>::infinity();
    }
  }
  count_ += static_cast<int64_t>(numbers.size());
  zeros_ += zeros;
  largest_ = largest;
}

void LogSketch::Merge(const LogSketch& other) {
  count_ += other.count_;
  zeros_ += other.zeros_;
  infinities_ += other.infinities_;
  largest_ = std::max(largest_, other.largest_);
  if (other.cells_.empty()) return;
  Grow(other.first_cell_);
  Grow(other.first_cell_ + static_cast<int64_t>(other.cells_.size()) - 1);
  const size_t shift = static_cast<size_t>(other.first_cell_ - first_cell_);
  for (size_t i = 0; i < other.cells_.size(); ++i) cells_[shift + i] += other.cells_[i];
}

double LogSketch::Quantile(double q) const {
  if (count_ == 0) return 0;
  const int64_t rank =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(q * static_cast<double>(count_))));
  if (rank >= count_) return largest_;
  int64_t below = zeros_;
  if (rank <= below) return 0;
  for (size_t i = 0; i < cells_.size(); ++i) {
    below += cells_[i];
    if (rank <= below) return std::min(largest_, UpperEdge(first_cell_ + static_cast<int64_t>(i)));
  }
  return largest_;
}

}  // namespace kvcheck
