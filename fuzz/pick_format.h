// One of some storage formats.

#ifndef FUZZ_PICK_FORMAT_H_
#define FUZZ_PICK_FORMAT_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "reference/spec/kv_format.h"

namespace kvcheck {

// A quarter of the draws takes a family first: some have 54 formats, others one.
// below(n): a random number below n. Precondition: formats is not empty.
template <typename Below>
const KvFormat& PickFormat(const std::vector<KvFormat>& formats, Below below) {
  std::vector<size_t> families;
  for (const KvFormat& format : formats) {
    if (std::find(families.begin(), families.end(), format.index()) == families.end()) {
      families.push_back(format.index());
    }
  }
  if (families.size() == 1 || below(4) != 0) return formats[below(formats.size())];
  const size_t family = families[below(families.size())];
  std::vector<const KvFormat*> of_family;
  for (const KvFormat& format : formats) {
    if (format.index() == family) of_family.push_back(&format);
  }
  return *of_family[below(of_family.size())];
}

}  // namespace kvcheck

#endif  // FUZZ_PICK_FORMAT_H_
