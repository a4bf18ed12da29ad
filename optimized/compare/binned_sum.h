// A sum of nonnegative doubles that does not depend on their order or grouping, so that a tensor
// cut into any windows, merged in any order, has the same sum, bit for bit. Terms are cut along
// powers of 2^32 and added as integers, exactly; only the three leading bins are kept, which loses
// less than 2^-64 of the largest term per term (Demmel and Nguyen, "Parallel reproducible
// summation", 2015). Terms may carry an exponent of their own, so squares neither overflow nor
// underflow.

#ifndef OPTIMIZED_COMPARE_BINNED_SUM_H_
#define OPTIMIZED_COMPARE_BINNED_SUM_H_

#include <array>
#include <cstdint>

namespace kvcheck {

class BinnedSum {
 public:
  // Adds times * term * 2^exponent. term: finite, not negative. The times of all calls together
  // stay below 2^40, |exponent| below 2^12.
  void Add(double term, uint64_t times = 1, int exponent = 0);
  // Adds times * x^2, rounded to 53 bits. x: finite.
  void AddSquare(double x, uint64_t times = 1);
  void Merge(const BinnedSum& other);

  // sqrt(sum / count), within three roundings of the kept sum; 0 for an empty sum.
  double RootMean(int64_t count) const;

  bool operator==(const BinnedSum&) const = default;

 private:
  __extension__ using Bin = unsigned __int128;
  static constexpr int kBins = 3;

  // Makes bin `top` the leading one if it is above the present one.
  void Raise(int top);

  // bins_[i] counts in units of 2^(32 (top_ - i) - kOffset). A term of 53 bits, moved by up to 31
  // and added 2^40 times, fits.
  std::array<Bin, kBins> bins_{};
  int top_ = 0;
};

}  // namespace kvcheck

#endif  // OPTIMIZED_COMPARE_BINNED_SUM_H_
