// What kvcheck fuzz draws: traces of operations on caches, attention under drawn plans, rows for
// codecs; and how each is made smaller.

#ifndef TOOLS_CAMPAIGN_FUZZ_SUBJECTS_H_
#define TOOLS_CAMPAIGN_FUZZ_SUBJECTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/campaign/subject.h"
#include "tools/corridor/case_judges.h"

namespace kvcheck {

struct DrawSettings {
  uint64_t seed = 1;
  std::vector<std::string> layouts;  // globs, of caches; empty: all
  std::vector<std::string> formats;  // globs, of caches and codecs; empty: all
  std::optional<Observe> observe;    // of caches: instead of what is drawn
};

// cancel: of the judges that it makes.
// Errors: kUsage for a glob that matches nothing, or that the kind has no use for.
std::unique_ptr<Subject> MakeSubject(const Answerer& answerer, const DrawSettings& settings,
                                     const Cancel& cancel = {});

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_FUZZ_SUBJECTS_H_
