// What the errors of failing rows say about the keys that their queries saw, as plain data: by how
// much the weight of keys differs from what it should be, and the causes that were tried on them.
// Filled by sources of which a row is a weighted mean of inputs (attention); the judge only carries
// it.

#ifndef REFERENCE_SPEC_SEEN_KEYS_H_
#define REFERENCE_SPEC_SEEN_KEYS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace kvcheck {

// The estimated change of the weight of keys [first, first + count), in multiples of the weight
// that they should have, or would have where the mask hides them: -1 lost, +1 counted twice or seen
// though hidden.
struct WeightEstimate {
  int64_t first = 0;
  int64_t count = 0;
  double change = 0;
  double error = 0;  // standard error of it; infinite where nothing can be told
  double Z() const { return error > 0 ? change / error : 0; }
  bool operator==(const WeightEstimate&) const = default;
};

// The same by query and block of keys of one head, for a picture.
struct HeadEstimates {
  int64_t batch = 0;
  int64_t head = 0;
  std::vector<int64_t> queries;
  std::vector<double> change, error;  // [query][block]
  bool operator==(const HeadEstimates&) const = default;
};

// A cause that was put to the test: what all rows would be under it, against what they are.
struct TriedCause {
  std::string name;
  std::string text;
  double explained = 0;  // share of the excess error
  double misfit = 0;     // sum of ((got - predicted) / sigma)^2
  bool operator==(const TriedCause&) const = default;
};

struct SeenKeys {
  int64_t kv_len = 0;
  int64_t rows = 0;      // that were looked at
  int64_t elements = 0;  // N: the misfit that noise leaves
  double misfit = 0;     // of the right answer
  std::string cause;     // name of the one that explains the rows; empty: none does
  std::string text;      // what happened, with its numbers, as a clause; empty: see cause
  double explained = 0;  // by it
  // The cause has numbers that were fitted to the errors: parts of the output with a cause each,
  // rows of K or V that are in no tensor. Where another question explains all, it is not that.
  bool has_free_numbers = false;
  std::vector<TriedCause> tried;     // best first, a few
  std::vector<WeightEstimate> keys;  // the keys whose weights differ most, strongest first
  int64_t block = 0;                 // keys of a column of `heads`
  std::vector<HeadEstimates> heads;
  bool operator==(const SeenKeys&) const = default;
};

// Rows of an output that are to be explained.
struct RowsToExplain {
  std::vector<int64_t> failing;  // ascending, or a part of them that is spread over all
  bool is_part = false;          // of the failing rows
  // Where no row fails by itself, and the statistics of many do: rows spread over all.
  std::vector<int64_t> others;
  std::function<void(int64_t row, std::span<double> got)> read;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_SEEN_KEYS_H_
