// What losing keys of a row would do to its output: whether a comparison that passes has seen
// anything (bound.md, section 4, blindness).

#ifndef REFERENCE_ATTENTION_SENSITIVITY_H_
#define REFERENCE_ATTENTION_SENSITIVITY_H_

#include "reference/attention/row_reference.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

struct RowSensitivity {
  Sensitivity kind = Sensitivity::kNoInputs;
  double share = 0;  // of the keys whose loss, one at a time, would show
};

// want_share: all keys are tried; else share stays 0, and the search ends at the first that shows.
RowSensitivity SensitivityOf(const RowQuestion& row, const RowReference& reference,
                             bool want_share);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_SENSITIVITY_H_
