// Replaced rules of attention that differ in one function alone.

#ifndef TOOLS_FAULTS_ATTENTION_FAULT_RULES_H_
#define TOOLS_FAULTS_ATTENTION_FAULT_RULES_H_

#include <algorithm>
#include <span>
#include <vector>

#include "reference/attention/rules.h"
#include "reference/numerics/convert.h"
#include "reference/spec/tensor.h"

namespace kvcheck::attention_fault {

// kEdit(case, query, set): changes what the query sees; false: nothing to change.
template <auto kEdit>
AttentionRules Visible() {
  AttentionRules rules;
  rules.visible = [hits = rules.hits](const AttentionCase& c, const QueryIndex& q,
                                      VisibleSet* set) {
    if (kEdit(c, q, set)) hits->fetch_add(1);
  };
  return rules;
}

// A member of the rules that is one function without hits of its own.
template <auto kMember, auto kRule>
AttentionRules Replaced() {
  AttentionRules rules;
  rules.*kMember = kRule;
  return rules;
}

// kMember as a function of one number; it counts where it changes the number.
template <auto kMember, auto kNumber>
AttentionRules Number() {
  AttentionRules rules;
  rules.*kMember = [hits = rules.hits](double right) {
    const double wrong = kNumber(right);
    if (wrong != right) hits->fetch_add(1);
    return wrong;
  };
  return rules;
}

// kScale(case): the factor of q.k.
template <auto kScale>
AttentionRules Scaled() {
  AttentionRules rules;
  rules.scale = [hits = rules.hits](const AttentionCase& c) {
    const double wrong = kScale(c);
    if (wrong != c.scale) hits->fetch_add(1);
    return wrong;
  };
  return rules;
}

// kEdit(case, query, out): changes a finished row.
template <auto kEdit>
AttentionRules Output() {
  AttentionRules rules;
  rules.output = [hits = rules.hits](const AttentionCase& c, const QueryIndex& q,
                                     std::span<double> out) {
    const std::vector<double> right(out.begin(), out.end());
    kEdit(c, q, out);
    if (!std::equal(right.begin(), right.end(), out.begin())) hits->fetch_add(1);
  };
  return rules;
}

// An input as numbers, changed and stored again.
template <typename Edit>
void EditNumbers(Tensor* tensor, Edit edit) {
  std::vector<double> values(static_cast<size_t>(tensor->ElementCount()));
  DecodeTo(*tensor, 0, values);
  edit(&values);
  EncodeFrom(values, tensor->dtype, tensor->bytes.data());
}

// The slices of `count` along the first axis move by one: slice i becomes slice i + 1.
inline void RotateSlices(Tensor* tensor, int64_t count) {
  const auto slice = static_cast<std::ptrdiff_t>(tensor->bytes.size()) / count;
  std::rotate(tensor->bytes.begin(), tensor->bytes.begin() + slice, tensor->bytes.end());
}

}  // namespace kvcheck::attention_fault

#endif  // TOOLS_FAULTS_ATTENTION_FAULT_RULES_H_
