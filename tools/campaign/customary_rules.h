// Would another rule have seen it? What tests of caches and kernels compare with, asked about one
// answer beside the right one: allclose, NMSE, cosine, and shapes alone.

#ifndef TOOLS_CAMPAIGN_CUSTOMARY_RULES_H_
#define TOOLS_CAMPAIGN_CUSTOMARY_RULES_H_

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

// What a test that looks at tensors has before it.
struct PlainAnswer {
  std::string shape;           // names, types and extents; "refused" for a call that was
  std::vector<double> values;  // in one order; empty where the test has nothing to look at
};

inline constexpr std::array<std::string_view, 4> kOtherRules = {"allclose", "NMSE", "cosine",
                                                                "shape"};
// allclose |got - want| <= 1e-2 + 1e-2 |want|, as numpy's and PyTorch's with these arguments; NMSE
// sum (got - want)^2 / sum want^2 <= 5e-4, that of ggml's test-backend-ops for attention; cosine
// >= 0.99. They reject another shape too, and where only one side is not finite.
// true: the rule rejects.
using Rejected = std::array<bool, kOtherRules.size()>;
Rejected RejectedByOtherRules(const PlainAnswer& got, const PlainAnswer& want);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_CUSTOMARY_RULES_H_
