// Causes by which the right weights meet other rows of V, or K is read out of V.

#include <fmt/format.h>

#include <algorithm>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

// The weights as they are over other values: of(row, key) -> values of the key.
template <typename Values>
std::optional<Mixture> Weighted(const SeenProblem& problem, const SeenRow& row,
                                const Values& values) {
  Mixture mixture = {std::vector<double>(problem.channels, 0), 1};
  for (int64_t j = row.first; j <= row.last; ++j) {
    const auto at = static_cast<size_t>(j);
    if (row.is_visible[at] == 0 || row.weight[at] == 0) continue;
    const double* v = values(row, j);
    for (size_t c = 0; c < problem.channels; ++c) mixture.sum[c] += row.weight[at] * v[c];
  }
  return mixture;
}

void AddOtherValues(Causes* causes) {
  const SeenProblem& problem = causes->problem();
  const AttentionCase& c = causes->c();
  const auto over = [&](const auto& values) {
    return
        [&problem, values](const SeenRow& row, size_t) { return Weighted(problem, row, values); };
  };
  if (c.k_dim >= c.v_dim) {
    causes->AddIfLikely({"V read from K", "V is read from K", 0},
                        over([dim = c.k_dim](const SeenRow& row, int64_t key) {
                          return &row.head->k.hi[static_cast<size_t>(key * dim)];
                        }));
  }
  if (c.k_dim == c.v_dim) {
    causes->AddIfLikely({"K read from V", "K is read from V", 0},
                        [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
                          return Rescore(problem, row, {.cap = {}, .k = &row.head->v.hi});
                        });
  }
  for (const int64_t by : {1, -1}) {
    causes->AddIfLikely({"V rows shifted",
                         fmt::format("the row of V {} each key is read in place of its own",
                                     by == 1 ? "after" : "before"),
                         0, 0, 2},
                        over([by, n = problem.kv_len](const SeenRow& row, int64_t key) {
                          return row.Values(std::clamp<int64_t>(key + by, 0, n - 1));
                        }));
  }
  causes->Add({"last values swapped", "the V rows of the last two keys are exchanged", 1},
              [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
                int64_t before = row.last - 1;
                while (before >= row.first && row.is_visible[static_cast<size_t>(before)] == 0) {
                  --before;
                }
                if (before < row.first) return std::nullopt;
                const double gap = row.weight[static_cast<size_t>(before)] -
                                   row.weight[static_cast<size_t>(row.last)];
                Mixture mixture = row.Right();
                const double* a = row.Values(before);
                const double* b = row.Values(row.last);
                for (size_t i = 0; i < problem.channels; ++i) mixture.sum[i] += gap * (b[i] - a[i]);
                return mixture;
              });
}

}  // namespace

void AddCausesOfValues(Causes* causes) { AddOtherValues(causes); }

}  // namespace kvcheck
