// Quantiles of nonnegative numbers from a histogram over their logarithm: 32 cells per octave, read
// off the bits of the double. Counts are integers, so sketches merge in any order to the same
// result; a quantile is off by at most one cell (2^(1/32), and never reported too small).

#ifndef REFERENCE_JUDGE_LOG_SKETCH_H_
#define REFERENCE_JUDGE_LOG_SKETCH_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kvcheck {

class LogSketch {
 public:
  // NaN counts as infinity.
  void Add(double x) { AddAll({&x, 1}); }
  // Add for each number.
  void AddAll(std::span<const double> numbers);
  void Merge(const LogSketch& other);
  int64_t count() const { return count_; }
  // The smallest cell edge that at least ceil(q count) numbers do not exceed, and at most the exact
  // maximum; 0 when empty. q in [0, 1]; q = 1 is exact.
  double Quantile(double q) const;

 private:
  void Grow(int64_t cell);

  int64_t count_ = 0;
  int64_t zeros_ = 0;
  int64_t infinities_ = 0;
  double largest_ = 0;
  int64_t first_cell_ = 0;
  std::vector<int64_t> cells_;
};

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_LOG_SKETCH_H_
