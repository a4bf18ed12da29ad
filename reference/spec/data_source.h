// Where the data of a case come from, and its text.

#ifndef REFERENCE_SPEC_DATA_SOURCE_H_
#define REFERENCE_SPEC_DATA_SOURCE_H_

#include <cstdint>
#include <string>

#include "reference/spec/text.h"

namespace kvcheck {

// `data=REGIME:SEED` generates the tensors, the same bits on every machine; `data=file` and
// `data=file:HASH` mean tensors that stand beside the case (HASH: first hex digits of their content
// hash).
struct DataSource {
  std::string regime;  // "file" for attached tensors
  uint64_t seed = 0;
  std::string file_hash;
  bool IsFile() const { return regime == "file"; }
  bool operator==(const DataSource&) const = default;
};

std::string Print(const DataSource& data);
// Errors: kParse.
DataSource ParseDataSource(Piece piece);
// True when the text of `data` parses back.
bool HasText(const DataSource& data);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_DATA_SOURCE_H_
