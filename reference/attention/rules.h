// The definition of attention as named rules, each of which a mutant may replace. The defaults are
// the definition; a replaced rule counts how often it made a difference, so that a fault that was
// never exercised is not mistaken for one that was not caught.

#ifndef REFERENCE_ATTENTION_RULES_H_
#define REFERENCE_ATTENTION_RULES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "reference/attention/visible.h"
#include "reference/spec/case.h"

namespace kvcheck {

struct AttentionRules {
  // Key/value head that a query head reads.
  std::function<int64_t(const AttentionCase&, int64_t query_head)> head_map;
  // The factor of q.k.
  std::function<double(const AttentionCase&)> scale;
  // Which query's mask is applied to this query.
  std::function<QueryIndex(const AttentionCase&, const QueryIndex&)> mask_query;
  // Changes the visible set after the mask.
  std::function<void(const AttentionCase&, const QueryIndex&, VisibleSet*)> visible;
  // Column whose K (or V) vector is read in place of that of the i-th visible key.
  std::function<int32_t(std::span<const int32_t> keys, size_t i)> k_row;
  std::function<int32_t(std::span<const int32_t> keys, size_t i)> v_row;
  // An undeclared step on P before P.V, and on the correction exp(m_old - m_new) of the
  // denominator and of the sums P.V.
  std::function<double(double p)> p_step;
  std::function<double(double correction)> denominator_rescale;
  std::function<double(double correction)> sums_rescale;
  // Whether the sink joins this range of keys; the definition: the last one.
  std::function<bool(int split, int splits)> sink_joins;
  // Weight of a partial result in the merge, before what is rounded of it; index: of those that are
  // merged.
  std::function<double(size_t index, size_t count, double weight)> merge_weight;
  // Changes a finished row of the output. Shapes: out (Dv).
  std::function<void(const AttentionCase&, const QueryIndex&, std::span<double> out)> output;
  // Changes the natural log-sum-exp of a row.
  std::function<double(const AttentionCase&, const QueryIndex&, double lse)> lse;

  // How often a replaced rule changed something; shared by copies.
  std::shared_ptr<std::atomic<int64_t>> hits = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_RULES_H_
