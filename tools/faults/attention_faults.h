// The catalogue of attention faults: each is the simulated kernel with exactly one named rule
// replaced. What public report a fault stands for is in catalogue.md beside this file.

#ifndef TOOLS_FAULTS_ATTENTION_FAULTS_H_
#define TOOLS_FAULTS_ATTENTION_FAULTS_H_

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "reference/attention/rules.h"
#include "reference/spec/case.h"
#include "reference/spec/implementation.h"
#include "tools/faults/fault.h"

namespace kvcheck {

// What a kernel computes; a fault may answer another question than the one that was put.
struct AttentionQuestion {
  AttentionCase c;
  Plan plan;  // resolved: every field is set
  Profile profile;
  TensorMap inputs;
};

struct AttentionFault : FaultText {
  // One of the two: the definition with a rule replaced, or what is asked in place of the question,
  // which has the same outputs (it does nothing where the case has no such rule).
  AttentionRules (*rules)() = nullptr;
  void (*change)(AttentionQuestion* question) = nullptr;
  // Of DetectionFaults: where the case is one in which the fault can show.
  bool (*applies)(const AttentionCase& c) = nullptr;
};

const std::vector<AttentionFault>& AttentionFaults();
// nullptr when there is none of this id.
const AttentionFault* FindAttentionFault(std::string_view id);
// The simulated kernel with the fault.
std::unique_ptr<Implementation> MakeFaultyAttention(const AttentionFault& fault, const Plan& plan,
                                                    const Profile& profile);

// Their parts: faults of which bench/reference/detection measures the detection, each by a replaced
// rule; of masks; of numbers; of rows, heads and codes.
std::span<const AttentionFault> DetectionFaults();
std::span<const AttentionFault> MaskFaults();
std::span<const AttentionFault> NumberFaults();
std::span<const AttentionFault> OperandFaults();

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_ATTENTION_FAULTS_H_
