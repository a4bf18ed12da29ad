// Plans that contradict themselves, their profile or their case: what no kernel can do, and what a
// bound would silently pass over.

#ifndef REFERENCE_ATTENTION_CONTRADICTIONS_H_
#define REFERENCE_ATTENTION_CONTRADICTIONS_H_

#include "reference/spec/case.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {

// plan: as declared, with fields unsaid. Errors: kIllegalCase, saying what to declare instead.
void RefuseContradictions(const Plan& plan, const Profile& profile, const AttentionCase& c);
// plan: with every field filled.
void RefuseScaleOfExactWeights(const Plan& plan);

// Runs of channels that share the scales of an encoded query and of K: the terms of integer q.k.
int64_t IntegerGroups(const KvFormat& query, const AttentionCase& c);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_CONTRADICTIONS_H_
