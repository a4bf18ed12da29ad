#include "reference/cache/model_attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace kvcheck {

void AttendPlainly(std::span<const double> q, std::span<const StoredToken> tokens, int64_t kv_head,
                   double scale, std::optional<float> sink, VectorTable* table,
                   std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  if (tokens.empty()) return;
  std::vector<double> scores;
  std::vector<double> vector(std::max(q.size(), out.size()));
  double max = sink ? static_cast<double>(*sink) : -std::numeric_limits<double>::infinity();
  for (const StoredToken& token : tokens) {
    table->Decode(token.k, kv_head, vector.data());
    double sum = 0;
    for (size_t i = 0; i < q.size(); ++i) sum += q[i] * vector[i];
    scores.push_back(sum * scale);
    max = std::max(max, scores.back());
  }
  double denominator = sink ? std::exp(static_cast<double>(*sink) - max) : 0;
  for (size_t j = 0; j < tokens.size(); ++j) {
    const double weight = std::exp(scores[j] - max);
    denominator += weight;
    table->Decode(tokens[j].v, kv_head, vector.data());
    for (size_t i = 0; i < out.size(); ++i) out[i] += weight * vector[i];
  }
  for (double& value : out) value /= denominator;
}

}  // namespace kvcheck
