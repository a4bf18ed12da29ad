// A change of a plan as what a kernel would have to do for it: hints advise no word that the plan's
// owner would have to lie about, so they say what it means.

#ifndef REFERENCE_SPEC_PLAN_MEANING_H_
#define REFERENCE_SPEC_PLAN_MEANING_H_

#include <string>
#include <string_view>

namespace kvcheck {

// change: "p=bf16 instead of p=f32", or the first word of it. "P were rounded to bf16"; of a field
// without a sentence "the plan said FIELD"; of what is no plan "".
std::string MeaningOf(std::string_view change);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PLAN_MEANING_H_
