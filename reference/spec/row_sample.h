// Which rows of the outputs of a case are judged, where not all of them are.

#ifndef REFERENCE_SPEC_ROW_SAMPLE_H_
#define REFERENCE_SPEC_ROW_SAMPLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvcheck {

class RowSample {
 public:
  // rows: ascending, of each output.
  explicit RowSample(std::vector<std::vector<int64_t>> rows) : rows_(std::move(rows)) {}
  bool Has(int output, int64_t row) const {
    const auto& rows = rows_[static_cast<size_t>(output)];
    return std::binary_search(rows.begin(), rows.end(), row);
  }
  // In some output.
  bool HasInAny(int64_t row) const {
    for (size_t output = 0; output < rows_.size(); ++output) {
      if (Has(static_cast<int>(output), row)) return true;
    }
    return false;
  }

 private:
  std::vector<std::vector<int64_t>> rows_;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_ROW_SAMPLE_H_
