// Where the failing elements lie, axis by axis, and the sentence a person would say about it: "all
// failures at l >= 512 in hq=3", "only the last t", "every second dv".

#ifndef REFERENCE_JUDGE_FAILURE_TALLY_H_
#define REFERENCE_JUDGE_FAILURE_TALLY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/spec/shape.h"

namespace kvcheck {

// Consecutive failing elements of an output.
struct FailureRun {
  int64_t first = 0;
  int64_t count = 0;
};

// Coordinates of failing elements on one axis. Axes longer than 2^16 are cut into cells of
// 2^cell_bits coordinates.
struct AxisTally {
  int64_t extent = 0;
  int cell_bits = 0;
  std::vector<int64_t> failed;   // per cell
  int64_t first_coordinate = 0;  // in texts; of a slice
  bool is_slice = false;         // then no end of it is an end of the axis
};

class FailureTally {
 public:
  FailureTally(const Shape& shape, int64_t row_length);

  void Add(const FailureRun& run);
  int64_t elements() const { return elements_; }
  int64_t rows() const { return rows_; }
  int64_t whole_rows() const { return whole_rows_; }
  // The first rows that fail wholly, at most 8.
  const std::vector<int64_t>& first_whole_rows() const { return first_whole_rows_; }
  const std::vector<AxisTally>& axes() const { return axes_; }

 private:
  void AddInRow(int64_t row, int64_t first, int64_t count);

  Shape shape_;
  int64_t row_length_;
  int64_t elements_ = 0;
  int64_t rows_ = 0;
  int64_t whole_rows_ = 0;
  int64_t current_row_ = -1;
  int64_t in_current_row_ = 0;
  std::vector<int64_t> first_whole_rows_;
  std::vector<AxisTally> axes_;
};

// What is special about the set of failing coordinates of one axis; nullopt when it is all of them
// or shows no pattern. label: "hq".
std::optional<std::string> DescribeCoordinates(const std::string& label, const AxisTally& tally);

// The sentences about a tally, most general first; empty when nothing failed.
std::vector<std::string> DescribeFailures(const FailureTally& tally, const Shape& shape,
                                          int64_t row_length);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_FAILURE_TALLY_H_
