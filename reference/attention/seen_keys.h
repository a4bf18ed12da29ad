// Which keys did a query see? An output is linear in its weights, o = sum p_j v_j: weights that are
// off by the factors 1 + x_j move it by e = sum_j y_j p_j (v_j - o) with y = x / (1 + sum p x). A
// range of keys that has the weight P and is lost has y = -1 / (1 - P), one that is counted twice
// 1 / (1 + P). Here stand the rows that are asked, with the weight of every key (of a hidden one
// that which it would have), and sums over ranges of them, from which every cause (causes.h) gives
// the output that it would make.

#ifndef REFERENCE_ATTENTION_SEEN_KEYS_H_
#define REFERENCE_ATTENTION_SEEN_KEYS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "reference/attention/row_reference.h"
#include "reference/attention/visible.h"
#include "reference/spec/case.h"
#include "reference/spec/profile.h"
#include "reference/spec/seen_keys.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// Rows looked at, at most; fewer where their weights would take more than kSeenBytes.
inline constexpr int64_t kMostSeenRows = 64;
inline constexpr int64_t kSeenBytes = int64_t{1} << 28;

// What the rows belong to. Everything outlives them.
struct AskedRows {
  const AttentionCase& c;
  const Profile& profile;
  const TensorMap& inputs;
  const MaskReader& mask;
  std::span<const double> sinks;  // (Hq); empty: none
  std::function<std::shared_ptr<const HeadData>(int64_t batch, int64_t kv_head)> head;
};

// A weighted sum of rows of V, and the sum of its weights: the output is their quotient.
struct Mixture {
  std::vector<double> sum;  // (Dv)
  double share = 0;
};

enum class KeySet { kVisible, kHidden };

struct SeenRow {
  int64_t row = 0;  // of the output
  QueryIndex query;
  int64_t kv_head = 0;
  int64_t position = 0;  // of the query on the axis of keys
  std::shared_ptr<const HeadData> head;
  std::vector<double> q;            // (Dk)
  std::vector<double> x;            // [T] scale q.k
  std::vector<double> bias;         // [T]; empty: none
  std::vector<double> weight;       // [T] of hidden keys too; 0 where it is no number
  std::vector<uint8_t> is_visible;  // [T]
  int64_t first = 0, last = 0;      // visible keys
  double max = 0, denominator = 1;  // of the weights
  bool has_sink = false;
  double sink_weight = 0;
  // Per channel; precision: 1 / sigma^2 of a right kernel, 0 where the channel takes no part.
  std::vector<double> o, got, error, precision;
  // Sums over the columns before multiples of SeenProblem::step, Dv channels and a share each.
  std::vector<double> visible_sums, hidden_sums;

  const double* Values(int64_t key) const {
    return &head->v.hi[static_cast<size_t>(key * head->v.dim)];
  }
  // What the definition makes of the row: o, and 1 with the sink's weight in it.
  Mixture Right() const { return {o, 1}; }
};

struct SeenProblem {
  const AskedRows& asked;
  int64_t kv_len = 0;
  size_t channels = 0;
  int64_t step = 16;
  std::vector<SeenRow> rows = {};
  size_t counted = 0;  // of rows: those that are explained; the others only show how far it goes
  std::vector<size_t> screen = {};  // some of the rows, for what is tried often
  double elements = 0;
  double misfit = 0;  // of the right answer

  size_t Columns() const { return channels + 1; }
};

// Adds `times` the weight of a key, or of those of columns [from, to) that are in the set.
void AddKey(const SeenRow& row, int64_t key, double times, Mixture* mixture);
void AddRange(const SeenProblem& problem, const SeenRow& row, int64_t from, int64_t to, KeySet keys,
              double times, Mixture* mixture);

// sum_c precision (got - predicted)^2; not finite where the prediction is not.
double MisfitOf(const SeenRow& row, std::span<const double> predicted);
double MisfitOf(const SeenRow& row, const Mixture& mixture);

// The rows of `wanted` (indices of output rows, ascending) that can be asked, or a part spread over
// them, and after these the controls; read gives their observed values.
SeenProblem MakeProblem(const AskedRows& asked, const Arithmetic& arithmetic,
                        std::span<const int64_t> wanted, std::span<const int64_t> controls,
                        const std::function<void(int64_t row, std::span<double> got)>& read);

// Of each row: the changes of the weights of its keys. A_j = p_j sum_c e_c (v_jc - o_c) / s_c^2,
// D_j = p_j^2 sum_c (v_jc - o_c)^2 / s_c^2; the change is A / D with the standard error 1 / sqrt D,
// and both add up over rows.
struct KeySums {
  std::vector<double> a, d;  // [T]
};
KeySums SumsOf(const SeenRow& row);

// The changes by head, query and block of keys, and the keys that stand out.
void DescribeWeights(const SeenProblem& problem, SeenKeys* seen);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_SEEN_KEYS_H_
