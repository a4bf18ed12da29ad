#include "tools/campaign/customary_rules.h"

#include <cmath>

namespace kvcheck {

Rejected RejectedByOtherRules(const PlainAnswer& got, const PlainAnswer& want) {
  if (got.shape != want.shape || got.values.size() != want.values.size()) {
    return {true, true, true, true};
  }
  bool close = true;
  bool finite = true;
  double error2 = 0, want2 = 0, got2 = 0, dot = 0;
  for (size_t i = 0; i < got.values.size(); ++i) {
    const double g = got.values[i], w = want.values[i];
    if (g == w || (std::isnan(g) && std::isnan(w))) {
      if (!std::isfinite(g)) continue;
    } else if (!std::isfinite(g) || !std::isfinite(w)) {
      finite = false;
      continue;
    }
    close = close && std::fabs(g - w) <= 1e-2 + 1e-2 * std::fabs(w);
    error2 += (g - w) * (g - w);
    want2 += w * w;
    got2 += g * g;
    dot += g * w;
  }
  // Where both are zero, or nothing is there, nothing is rejected.
  const bool nmse = error2 > 0 && !(error2 / want2 <= 5e-4);
  const bool cosine = error2 > 0 && !(dot / std::sqrt(want2 * got2) >= 0.99);
  return {!finite || !close, !finite || nmse, !finite || cosine, false};
}

}  // namespace kvcheck
